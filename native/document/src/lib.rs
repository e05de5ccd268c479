//! The codec of binary wire: documents to objects of Python, to the fields of a schema, to columns
//! and to text.
//!
//! `wire/objects` is the reference, in plain Python: both give the same for every input. What is
//! unusual, as a malformed document, a field without a name or a type of the wire that Python has
//! no type for, this crate does not read: it says so (`Unusual`), and `wire/codec.py` has the plain
//! codec read the document, or say why it cannot be read. So all errors are those of the reference.
//!
//! ```text
//! python    the extension that Python imports: objects, messages, columns, texts
//! columns   columns of values, in the layout of Arrow
//! shown     values on one line, and in JSON
//! printed   the text of documents, as Java's dump has it
//! layout    line breaks and brackets of that text
//! shapes    the schema that columns and messages are read by
//! scalars   numbers, dates and decimals out of their texts
//! written   items as Java writes them
//! spelled   texts of numbers, dates and texts
//! typenames names of types that mean something
//! items     the items of a body, one after the other
//! ```
//!
//! Each uses only those below it. There is no file, socket or clock in the crate, and no unsafe
//! code. Nothing that a document says is believed: a length is compared with what is left of the
//! block before it is used, nothing is allocated for a length, and nesting has a limit.

pub mod columns;
pub mod items;
pub mod layout;
pub mod printed;
#[cfg(feature = "python")]
mod python;
pub mod scalars;
pub mod shapes;
pub mod shown;
pub mod spelled;
pub mod typenames;
pub mod written;
