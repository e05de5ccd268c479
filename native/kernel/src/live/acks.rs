//! Acknowledgements, in the one shape that our sinks write: a cid document, then a body of 25
//! bytes.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::live::control::{receive_some, Heard};

/// The bytes of the body before the index; `NANOS` stands between the index and the nano time.
const HEAD: [u8; 9] = *b"\x19\0\0\0\xC3idx\xAF";
const NANOS: [u8; 4] = *b"\xC2ns\xA7";
const BYTES: usize = HEAD.len() + 8 + NANOS.len() + 8;
const INBOX_BYTES: usize = 16 << 10;
/// The name of the index, and within how many bytes of a body it stands in any shape.
const NAME: &[u8] = b"idx";
const NAME_WITHIN: usize = 12;

/// Puts an acknowledgement behind what is to be sent.
pub fn write(out: &mut Vec<u8>, cid_document: &[u8], index: i64, ns: i64) {
    out.extend_from_slice(cid_document);
    out.extend_from_slice(&HEAD);
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&NANOS);
    out.extend_from_slice(&ns.to_le_bytes());
}

/// The index and the nano time of the acknowledgement that stands behind a cid document; `None` for
/// anything else.
fn read(body: &[u8]) -> Option<(i64, i64)> {
    let rest = body.strip_prefix(&HEAD)?;
    let (index, rest) = rest.split_first_chunk()?;
    let ns = rest.strip_prefix(&NANOS)?.first_chunk()?;
    Some((i64::from_le_bytes(*index), i64::from_le_bytes(*ns)))
}

/// True for a body that begins with the name of an index, however it is written.
fn names_index(body: &[u8]) -> bool {
    let start = body.get(..body.len().min(NAME_WITHIN)).unwrap_or_default();
    start.windows(NAME.len()).any(|name| name == NAME)
}

/// What takes acknowledgements in: a lane of a source.
pub trait Taker {
    /// The cid document that stands before the acknowledgements for this taker.
    fn cid_document(&self) -> &[u8];
    /// Takes an acknowledgement in.
    fn take(&self, index: i64, ns: i64);
}

/// Which of `among` the document at the start of `data` selects. It is likely to be the one that
/// the last document has selected, so that is tried first.
pub fn addressed<T>(
    among: &[T],
    cid_document: impl Fn(&T) -> &[u8],
    likely: usize,
    data: &[u8],
) -> Option<usize> {
    let is_it = |one: &T| data.starts_with(cid_document(one));
    if among.get(likely).is_some_and(is_it) {
        return Some(likely);
    }
    among.iter().position(is_it)
}

/// What stands behind the acknowledgements that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing stands there, or the beginning of an acknowledgement.
    Nothing,
    /// A document that is no acknowledgement for a taker stands there.
    Other,
    /// An acknowledgement for a taker stands there, in another shape than ours.
    Foreign,
}

/// The bytes that the peer of a source has sent.
pub struct Inbox {
    bytes: Vec<u8>,
    end: usize,
    started: Instant,
    /// When the peer was heard.
    pub heard: Heard,
}

impl Inbox {
    /// An inbox that begins with what was received before.
    pub fn new(received: &[u8], started: Instant) -> Self {
        let mut bytes = received.to_vec();
        bytes.resize(received.len() + INBOX_BYTES, 0);
        Inbox { bytes, end: received.len(), started, heard: Heard::default() }
    }

    /// Receives what is there, without waiting; false at the end of the stream.
    pub fn receive(&mut self, socket: BorrowedFd) -> io::Result<bool> {
        let room = self.bytes.get_mut(self.end..).unwrap_or_default();
        if room.is_empty() {
            return Ok(true);
        }
        let count = receive_some(socket, room)?;
        if let Some(count) = count.filter(|&count| count > 0) {
            self.heard.received(Instant::now(), self.end);
            self.end += count;
        }
        Ok(count != Some(0))
    }

    /// Gives the takers the acknowledgements that are there.
    pub fn hand_out<T: Taker>(&mut self, takers: &[T]) -> Behind {
        let mut at = 0;
        let mut likely = 0;
        let behind = loop {
            let data = self.bytes.get(at..self.end).unwrap_or_default();
            let nth = addressed(takers, T::cid_document, likely, data);
            let Some((nth, taker)) = nth.and_then(|nth| Some((nth, takers.get(nth)?))) else {
                let is_cut = takers.iter().any(|taker| taker.cid_document().starts_with(data));
                break if data.is_empty() || is_cut { Behind::Nothing } else { Behind::Other };
            };
            likely = nth;
            let start = taker.cid_document().len();
            let body = data.get(start..data.len().min(start + BYTES)).unwrap_or_default();
            if body.len() < BYTES && (body.starts_with(&HEAD) || HEAD.starts_with(body)) {
                break Behind::Nothing;
            }
            let Some((index, ns)) = read(body) else {
                break if names_index(body) { Behind::Foreign } else { Behind::Other };
            };
            taker.take(index, ns);
            at += start + BYTES;
        };
        debug_assert!(at <= self.end, "no more was handed out than had come");
        if at > 0 {
            self.heard.taken(self.started);
        }
        self.bytes.copy_within(at..self.end, 0);
        self.end -= at;
        behind
    }

    /// What was received and not given to a taker.
    pub fn left(&self) -> Vec<u8> {
        self.bytes.get(..self.end).unwrap_or_default().to_vec()
    }
}
