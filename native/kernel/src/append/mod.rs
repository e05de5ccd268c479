//! Appends to one open store file.
//!
//! ```text
//! pen          appends a run in one call
//! terms        what a pen knows of its queue, and why it refuses
//! store_words  what a writer records of a store file
//! ```

pub mod pen;
pub mod store_words;
pub mod terms;
