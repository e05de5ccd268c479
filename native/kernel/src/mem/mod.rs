//! Memory that other processes and threads may change, and the words that they agree through.
//!
//! This folder is the only place with unsafe code.
//!
//! ```text
//! views      bytes, numbers and words of a mapped file or of a buffer
//! of_files   calls on open files
//! file_map   a mapped file that can grow where it is
//! of_python  the buffers of Python's objects
//! python_map a mapped file as such an object
//! cut_files  the last words of a process whose mapped file was cut
//! lock       the write lock of a queue
//! fault      what can be wrong with arguments
//! ```

#[cfg(feature = "python")]
mod cut_files;
pub mod fault;
mod file_map;
pub mod lock;
mod of_files;
#[cfg(feature = "python")]
mod of_python;
#[cfg(feature = "python")]
mod python_map;
mod views;

#[cfg(feature = "python")]
pub use cut_files::name_cut_files;
pub use file_map::FileMap;
#[cfg(feature = "python")]
pub use of_files::file_identity;
pub use of_files::{allocate, named_file_size, open_file, write_at};
#[cfg(feature = "python")]
pub use of_python::{new_bytes, number_bytes, Payload, Payloads, View, ViewOfLongs};
#[cfg(feature = "python")]
pub use python_map::PyFileMap;
pub use views::{Cells, Longs, Source, Target};
