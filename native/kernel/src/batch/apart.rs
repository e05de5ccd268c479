//! Bytes that go out in one call, though the long ones among them stay where they are.
//!
//! What is short is put into a buffer. A cut says that a payload comes before the buffer's bytes
//! from there on. So a payload is copied once, by the system, and not into the buffer before.

use std::io::IoSlice;

use crate::mem::fault::{push, Fault};
use crate::mem::Source;

/// A payload of so many bytes is as fast to hand out as to copy.
pub const APART_MIN: usize = 1024;
/// The system takes no more parts in one call.
const PARTS_MAX: usize = 1024;

struct Cut<'a> {
    at: usize,
    payload: Source<'a>,
}

/// The payloads that are not in a buffer, in order.
#[derive(Default)]
pub struct Apart<'a> {
    cuts: Vec<Cut<'a>>,
    /// How many bytes they are.
    pub bytes: usize,
}

impl<'a> Apart<'a> {
    /// Puts a payload before the buffer's bytes from `at` on, which is not before the last one.
    pub fn put(&mut self, at: usize, payload: Source<'a>) -> Result<(), Fault> {
        debug_assert!(self.cuts.last().is_none_or(|cut| cut.at <= at), "cuts are in order");
        self.bytes = self.bytes.saturating_add(payload.len());
        push(&mut self.cuts, Cut { at, payload })
    }

    /// Where it stands, to go back to.
    pub fn mark(&self) -> (usize, usize) {
        (self.cuts.len(), self.bytes)
    }

    /// What was put after that mark is not left.
    pub fn go_back(&mut self, (count, bytes): (usize, usize)) {
        self.cuts.truncate(count);
        self.bytes = bytes;
    }

    /// None are left.
    pub fn clear(&mut self) {
        self.cuts.clear();
        self.bytes = 0;
    }

    /// The bytes of the buffer and all payloads but the first `skipped` bytes; as many parts as the
    /// system takes in one call.
    pub fn parts<'s>(&'s self, buffer: &'s [u8], skipped: usize) -> Vec<IoSlice<'s>> {
        let count = self.cuts.len().saturating_mul(2).saturating_add(1).min(PARTS_MAX);
        let mut parts = Vec::with_capacity(count);
        self.each(buffer, skipped, |part| {
            parts.push(part.io_slice());
            parts.len() < PARTS_MAX
        });
        let total = || parts.iter().map(|part| part.len()).sum::<usize>();
        let left = || (buffer.len() + self.bytes).saturating_sub(skipped);
        debug_assert!(parts.len() == PARTS_MAX || total() == left(), "no byte is left out");
        parts
    }

    /// The same, copied: all of it.
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
