//! Documents that are for no lane: which of them the event loop can act on while a pump runs on.
//!
//! That is so for what changes no queue: that the peer is there, how far it has come, what its files
//! hold, what it waits for, and where its readers stand. All else begins or ends something, and the
//! pump comes back for it.

use crate::batch::documents::{HEADER_BYTES, LENGTH_MASK};

/// The bit of a header that tells meta-data from data.
const META_DATA: u32 = 1 << 30;
/// How a document begins that only selects a handler: the name of the cid; and how long it is at
/// most.
const CID: &[u8] = b"\xC3cid";
const CID_MAX: usize = CID.len() + 9;
/// How those data documents begin: a code for a name of that length, and the name.
const NAMES: [&[u8]; 8] = [
    b"\xC9heartbeat",
    b"\xC3idx",
    b"\xC3syn",
    b"\xC3apl",
    b"\xC3cmt",
    b"\xC5proof",
    b"\xC5level",
    b"\xC6tailer",
];

/// Where the document that starts at `start` ends; `None` when it is not all there.
pub fn document_end(data: &[u8], start: usize) -> Option<usize> {
    let header = header_at(data, start)?;
    let length = usize::try_from(header & LENGTH_MASK).ok()?;
    let end = start.checked_add(HEADER_BYTES)?.checked_add(length)?;
    (end <= data.len()).then_some(end)
}

/// True for a whole document from `start` to `end` that the event loop can act on while a pump runs
/// on.
pub fn changes_nothing(data: &[u8], start: usize, end: usize) -> bool {
    let body = data.get(start + HEADER_BYTES..end).unwrap_or_default();
    match header_at(data, start) {
        Some(header) if header & META_DATA != 0 => body.starts_with(CID) && body.len() <= CID_MAX,
        Some(_) => NAMES.iter().any(|name| body.starts_with(name)),
        None => false,
    }
}

fn header_at(data: &[u8], start: usize) -> Option<u32> {
    let header = data.get(start..)?.first_chunk::<HEADER_BYTES>()?;
    Some(u32::from_le_bytes(*header))
}
