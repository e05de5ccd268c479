//! Appends to one open store file.
//!
//! ```text
//! pen          appends a batch in one call
//! terms        what a pen knows of its queue, and why it refuses
//! store_words  the words of a store file that its writers keep up
//! ```

pub mod pen;
pub mod store_words;
pub mod terms;
