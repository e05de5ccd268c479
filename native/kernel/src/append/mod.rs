//! Appends to one open store file.
//!
//! ```text
//! pen          appends a batch in one call
//! clock        the clocks of the machine, or the time that is given instead
//! terms        what a pen knows of its queue, and why it refuses
//! store_words  the words of a store file that its writers keep up
//! ```

pub mod clock;
pub mod pen;
pub mod store_words;
pub mod terms;
