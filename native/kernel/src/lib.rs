//! The batch kernel: everything on the data path that happens once for each excerpt.
//!
//! `cqrepl/kernel/batch.py` says what each function means. `cqrepl/kernel/plain.py` is the reference: both give
//! the same results for every input, and raise the same exceptions.
//!
//! ```text
//! python   the extension that Python imports, with its functions and classes
//! live     the live pumps of a source and of a sink
//! append   the pen, which appends to one open store file
//! batch    excerpts found, framed, scanned and laid in plain memory
//! mem      views of memory that other processes may change; the only folder with unsafe code
//! ```
//!
//! Each folder uses only those below it. Sockets, files and clocks are touched in `live`, `append`
//! and `mem` alone. `tests/test_crate_layers.py` holds both rules.
//!
//! Nothing that was read from a file, a socket or an argument is believed. Every access through
//! `mem` is compared with the length of the buffer. A number that was compared is the one that is
//! used: it is not read a second time, as another process may have changed it.
//!
//! A `debug_assert!` states what one part of the crate promises the next where data change hands.
//! It is about mistakes in this code alone: what a peer, a file or an argument can cause is a
//! `Fault`.

pub mod append;
pub mod batch;
pub mod live;
pub mod mem;
#[cfg(feature = "python")]
mod python;
