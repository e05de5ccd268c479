//! Gather lists: bytes that go out in one call, though the long payloads among them stay where they
//! are.
//!
//! Short things are put into a buffer. A cut says that a payload comes before the bytes of the
//! buffer from its place on. So a long payload is copied once, by the system, and never into the
//! buffer.

use std::io::IoSlice;

use crate::mem::fault::{push, Fault};
use crate::mem::Source;

/// A payload of at least so many bytes is handed out as fast as it is copied.
pub const APART_MIN: usize = 1024;
struct Cut<'a> {
    at: usize,
    payload: Source<'a>,
}

/// The payloads that are not in a buffer, in their order.
#[derive(Default)]
pub struct Apart<'a> {
    cuts: Vec<Cut<'a>>,
    /// The sum of their lengths.
    pub bytes: usize,
}

impl<'a> Apart<'a> {
    /// The system takes no more parts than these in one call.
    pub const PARTS_MAX: usize = 1024;

    /// Puts a payload before the bytes of the buffer from `at` on. No payload may be put before one
    /// that was put earlier.
    pub fn put(&mut self, at: usize, payload: Source<'a>) -> Result<(), Fault> {
        debug_assert!(self.cuts.last().is_none_or(|cut| cut.at <= at), "cuts are in order");
        self.bytes = self.bytes.saturating_add(payload.len());
        push(&mut self.cuts, Cut { at, payload })
    }

    /// The present state, to be given to `go_back`.
    pub fn mark(&self) -> (usize, usize) {
        (self.cuts.len(), self.bytes)
    }

    /// Takes all payloads out that were put in after that mark.
    pub fn go_back(&mut self, (count, bytes): (usize, usize)) {
        self.cuts.truncate(count);
        self.bytes = bytes;
    }

    /// Takes all payloads out.
    pub fn clear(&mut self) {
        self.cuts.clear();
        self.bytes = 0;
    }

    /// All bytes, in the buffer and apart from it, but for the first `skipped` ones. There are at
    /// most as many parts as the system takes in one call.
    pub fn parts<'s>(&'s self, buffer: &'s [u8], skipped: usize) -> Vec<IoSlice<'s>> {
        let count = self.cuts.len().saturating_mul(2).saturating_add(1).min(Self::PARTS_MAX);
        let mut parts = Vec::with_capacity(count);
        self.each(buffer, skipped, |part| {
            parts.push(part.io_slice());
            parts.len() < Self::PARTS_MAX
        });
        let total = || parts.iter().map(|part| part.len()).sum::<usize>();
        let left = || (buffer.len() + self.bytes).saturating_sub(skipped);
        debug_assert!(parts.len() == Self::PARTS_MAX || total() == left(), "no byte is left out");
        parts
    }

    /// A copy of all bytes, in the buffer and apart from it, but for the first `skipped` ones.
    pub fn joined(&self, buffer: &[u8], skipped: usize) -> Result<Vec<u8>, Fault> {
        let (mut bytes, mut fault) = (Vec::new(), None);
        self.each(buffer, skipped, |part| {
            fault = part.append_to(&mut bytes).err();
            fault.is_none()
        });
        fault.map_or(Ok(bytes), Err)
    }

    fn each<'s>(
        &'s self,
        buffer: &'s [u8],
        mut skipped: usize,
        mut take: impl FnMut(Source<'s>) -> bool,
    ) {
        let mut wants = |part: Source<'s>| {
            let left = skipped.min(part.len());
            skipped -= left;
            part.part(left, part.len() - left).is_none_or(|part| part.is_empty() || take(part))
        };
        let mut from = 0;
        for cut in &self.cuts {
            let between = buffer.get(from..cut.at).unwrap_or_default();
            if !wants(between.into()) || !wants(cut.payload) {
                return;
            }
            from = cut.at;
        }
        wants(buffer.get(from..).unwrap_or_default().into());
    }
}
