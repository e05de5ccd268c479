//! Batches of excerpts in plain memory: found, framed, scanned, laid and joined.
//!
//! Nothing in this folder touches a file, a socket or a clock.
//!
//! ```text
//! documents  documents of a store file, and the walk that finds excerpts among them
//! layout     the run of new excerpts that is laid into a store file
//! frames     `re` frames: writing and scanning
//! columns    payloads side by side
//! joined     payloads that Python gives one by one
//! apart      payloads that are sent or written from where they stand
//! ```

pub mod apart;
pub mod columns;
pub mod documents;
pub mod frames;
#[cfg(feature = "python")]
pub mod joined;
pub mod layout;
