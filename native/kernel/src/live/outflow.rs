//! What a pump sends: frames that were made of excerpts, and whole documents behind them.
//!
//! Frames are made only while nothing else is half sent, so a document never comes between the two
//! halves of another one.
//!
//! A lane takes no more than a buffer at a time. One that could have filled it waits until those
//! have been looked at that had not: what comes now and then is not held up by many that have much.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use crate::batch::apart::Apart;
use crate::live::control::send_parts;
use crate::live::source_lane::{Look, SourceLane};
use crate::mem::fault::Fault;

/// What is to be sent, in this order.
pub struct Outflow<'a> {
    out: Vec<u8>,
    filled: usize,
    apart: Apart<'a>,
    frames_sent: usize,
    /// Whole documents.
    pub documents: Vec<u8>,
    documents_sent: usize,
    /// True while what was left of something half sent stands first among the documents.
    begins_with_rest: bool,
    turn: usize,
    /// For each lane, whether it has filled the buffer when it was looked at last.
    has_much: Vec<bool>,
}

impl<'a> Outflow<'a> {
    /// Begins with what was left unsent, and documents behind it; with room for so many bytes of
    /// frames.
    pub fn new(unsent: Vec<u8>, room: usize) -> Self {
        Outflow {
            out: vec![0; room],
            filled: 0,
            apart: Apart::default(),
            frames_sent: 0,
            begins_with_rest: !unsent.is_empty(),
            documents: unsent,
            documents_sent: 0,
            turn: 0,
            has_much: Vec::new(),
        }
    }

    /// True when all was sent.
    pub fn is_empty(&self) -> bool {
        !self.has_frames() && self.documents.is_empty()
    }

    /// True while frames are to be sent.
    pub fn has_frames(&self) -> bool {
        self.filled > 0
    }

    /// Makes frames of what is new in the lanes, unless something is half sent. The answer is true
    /// when a tailer has to look at what stands in its lane.
    pub fn frame(&mut self, lanes: &[SourceLane<'a>]) -> Result<bool, Fault> {
        if self.has_frames() || self.documents_sent > 0 || self.begins_with_rest {
            return Ok(false);
        }
        self.turn = (self.turn + 1) % lanes.len().max(1);
        self.has_much.resize(lanes.len(), false);
        for of_much in [false, true] {
            for nth in (self.turn..lanes.len()).chain(0..self.turn) {
                if self.is_full() {
                    return Ok(false); // the next time another lane is first
                }
                if self.has_much.get(nth) != Some(&of_much) {
                    continue;
                }
                let Some(lane) = lanes.get(nth) else { continue };
                if self.frame_lane(lane)? {
                    return Ok(true);
                }
                let is_full = self.is_full();
                if let Some(has_much) = self.has_much.get_mut(nth) {
                    *has_much = is_full;
                }
            }
        }
        Ok(false)
    }

    /// True when too little room is left for a look.
    fn is_full(&self) -> bool {
        self.filled + self.apart.bytes > self.out.len() / 4 * 3
    }

    /// Makes frames of what is new in a lane, as far as there is room. The answer is true when a
    /// tailer has to look.
    fn frame_lane(&mut self, lane: &SourceLane<'a>) -> Result<bool, Fault> {
        loop {
            match lane.frame(self.out.as_mut_slice().into(), self.filled, &mut self.apart)? {
                Look::Nothing => return Ok(false),
                Look::Framed(end) => self.filled = end,
                Look::Longer(size) => {
                    // this is no longer than the longest payload; the next look finds the room
                    self.out.try_reserve(size - self.out.len())?;
                    self.out.resize(size, 0);
                }
                Look::Unusual => return Ok(true),
            }
        }
    }

    /// Sends as much as the socket takes; the answer is true when it has taken anything.
    pub fn send(&mut self, socket: BorrowedFd) -> io::Result<bool> {
        let mut has_sent = false;
        while !self.is_empty() {
            let count = send_parts(socket, &self.parts())?;
            if count == 0 {
                break;
            }
            has_sent = true;
            self.passed(count);
        }
        Ok(has_sent)
    }

    fn parts(&self) -> Vec<IoSlice<'_>> {
        let documents = self.documents.get(self.documents_sent..).unwrap_or_default();
        if !self.has_frames() {
            return vec![IoSlice::new(documents)];
        }
        let frames = self.out.get(..self.filled).unwrap_or_default();
        let mut parts = self.apart.parts(frames, self.frames_sent);
        if !documents.is_empty() && parts.len() < Apart::PARTS_MAX {
            parts.push(IoSlice::new(documents));
        }
        parts
    }

    /// So many bytes were sent.
    fn passed(&mut self, count: usize) {
        let frames_left = self.filled + self.apart.bytes - self.frames_sent;
        if count < frames_left {
            self.frames_sent += count;
            return;
        }
        self.filled = 0;
        self.frames_sent = 0;
        self.apart.clear();
        self.documents_sent += count - frames_left;
        debug_assert!(self.documents_sent <= self.documents.len());
        if self.documents_sent >= self.documents.len() {
            self.documents.clear();
            self.documents_sent = 0;
            self.begins_with_rest = false;
        }
    }

    /// A copy of all that is to be sent.
    pub fn rest(&self) -> Result<Vec<u8>, Fault> {
        let frames = self.out.get(..self.filled).unwrap_or_default();
        let mut rest = self.apart.joined(frames, self.frames_sent)?;
        rest.extend_from_slice(self.documents.get(self.documents_sent..).unwrap_or_default());
        Ok(rest)
    }
}
