//! The module that Python imports: arguments go in, results come out.
//!
//! ```text
//! extension   the module itself
//! batches     batches of columns
//! messages    documents as objects of dataclasses
//! writers     objects of dataclasses as documents
//! objects     documents as Python's own types
//! texts       documents as text
//! given       what Python gives: buffers, schemas
//! ```

mod batches;
mod extension;
mod given;
mod messages;
mod objects;
mod texts;
mod writers;
