//! The batch kernel: everything on the data path that happens once for each excerpt.
//!
//! `cqrepl/kernel/batch.py` says what each function means, `cqrepl/kernel/plain.py` is the reference: both give
//! the same results for every input, and raise the same exceptions.
//!
//! ```text
//! mem      views of memory that others may change; the only module with unsafe code
//! store    documents of a store file: walk and lay
//! frames   `re` frames: write and scan
//! columns  payloads side by side
//! marks    what a writer records of a store file
//! pen      appends to one open store file in one call; terms is what it knows, and why it refuses;
//!          lock is the queue's
//!
//! streaming, receiving   live pumps of a source and a sink, each in a thread of its own
//! lane, acks             one queue of a source in it, and what a sink says of it
//! control, pausing       how they are called back, and how they wait
//!
//! python                 the module `cqrepl._native`: arguments in, results out, the GIL released in
//! pen_class, live_class  between; its pen; its pumps; joined is what Python gives one by one
//! ```
//!
//! Nothing read from a file, a socket or an argument is believed: every access through `mem` is
//! compared with the buffer's length, and a number that was compared is the one that is used, not
//! read a second time, as another process may have changed it.

pub mod acks;
pub mod apart;
pub mod columns;
pub mod control;
pub mod fault;
pub mod frames;
#[cfg(feature = "python")]
mod joined;
pub mod lane;
#[cfg(feature = "python")]
mod live_class;
pub mod lock;
pub mod marks;
pub mod mem;
pub mod pausing;
pub mod pen;
#[cfg(feature = "python")]
mod pen_class;
#[cfg(feature = "python")]
mod python;
pub mod receiving;
pub mod store;
pub mod streaming;
pub mod terms;
