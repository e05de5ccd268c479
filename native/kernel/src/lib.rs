//! The batch kernel: everything on the data path that happens once for each excerpt.
//!
//! `cqrepl/kernel/batch.py` says what each function means, `cqrepl/kernel/plain.py` is the reference: both give
//! the same results for every input, and raise the same exceptions.
//!
//! ```text
//! python   the module `cqrepl._native`: functions and classes
//! live     live pumps of a source and a sink
//! append   the pen, which appends to one open store file
//! batch    excerpts found, framed, scanned and laid in plain memory
//! mem      views of memory that others may change; the only folder with unsafe code
//! ```
//!
//! Each folder uses only those below it. Sockets, files and clocks are touched in `live`, `append`
//! and `mem` alone. `tests/test_crate_layers.py` holds both.
//!
//! Nothing read from a file, a socket or an argument is believed: every access through `mem` is
//! compared with the buffer's length, and a number that was compared is the one that is used, not
//! read a second time, as another process may have changed it.

pub mod append;
pub mod batch;
pub mod live;
pub mod mem;
#[cfg(feature = "python")]
mod python;
