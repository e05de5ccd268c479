//! Batches of excerpts in plain memory: found, framed, scanned, laid and joined.
//!
//! Nothing in this folder touches a file, a socket or a clock.
//!
//! ```text
//! documents  documents of a store file, and the walk that finds excerpts among them
//! layout     the documents of a batch, as they are to stand in a store file
//! frames     `re` frames: how they are written, and how they are found in what was received
//! runs       excerpts with all that stands between them, as the store file has them
//! columns    payloads side by side
//! chain      a hash over all excerpts up to one
//! joined     payloads that Python gives one by one
//! apart      gather lists: payloads that are sent or written from where they stand
//! ```

pub mod apart;
pub mod chain;
pub mod columns;
pub mod documents;
pub mod frames;
#[cfg(feature = "python")]
pub mod joined;
pub mod layout;
pub mod runs;
