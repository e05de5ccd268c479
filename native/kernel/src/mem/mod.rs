//! Memory that other processes and threads may change, and the words that they agree through.
//!
//! This folder is the only place with unsafe code.
//!
//! ```text
//! views      bytes, numbers and words of a mapped file or of a buffer
//! of_files   calls on open files
//! of_python  the buffers of Python's objects
//! cut_files  the last words of a process whose mapped file was cut
//! lock       the write lock of a queue
//! fault      what can be wrong with arguments
//! ```

#[cfg(feature = "python")]
mod cut_files;
pub mod fault;
pub mod lock;
mod of_files;
#[cfg(feature = "python")]
mod of_python;
mod views;

#[cfg(feature = "python")]
pub use cut_files::name_cut_files;
pub use of_files::{allocate, named_file_size, open_file, write_at};
#[cfg(feature = "python")]
pub use of_python::{new_bytes, number_bytes, Payload, Payloads, View, ViewOfLongs};
pub use views::{Cells, Longs, Source, Target};
