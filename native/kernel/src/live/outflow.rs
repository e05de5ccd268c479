//! What a pump sends: frames that were made of excerpts, and whole documents behind them.
//!
//! Frames are made only while nothing else is half sent, so a document never comes between the two
//! halves of another one.
//!
//! A lane takes no more than a buffer at a time. One that could have filled it waits until those
//! have been looked at that had not: what comes now and then is not held up by many that have much.
//! Where the connection has a limit, a lane takes no more than there are tokens, and one that was
//! left with more counts as one that has much.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::batch::apart::Apart;
use crate::live::control::send_parts;
use crate::live::lane_moves::SourceLaneMove;
use crate::live::source_lane::{Look, SourceLane};
use crate::live::token_bucket::TokenBucket;
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
    /// Which lane is looked at first, and which of those that have much.
    turn: usize,
    turn_of_much: usize,
    /// False while the frames are only of lanes that have much, and had to wait for tokens.
    pub is_live: bool,
    /// How much may go out; `None` without a limit.
    pub bucket: Option<TokenBucket>,
}

impl<'a> Outflow<'a> {
    /// Begins with what was left unsent, and documents behind it; with room for so many bytes of
    /// frames, and tokens for them if there is a limit.
    pub fn new(unsent: Vec<u8>, room: usize, bucket: Option<TokenBucket>) -> Self {
        Outflow {
            out: vec![0; room],
            filled: 0,
            apart: Apart::default(),
            frames_sent: 0,
            begins_with_rest: !unsent.is_empty(),
            documents: unsent,
            documents_sent: 0,
            turn: 0,
            turn_of_much: 0,
            is_live: true,
            bucket,
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
        if let Some(bucket) = &mut self.bucket {
            bucket.fill(Instant::now());
        }
        for of_much in [false, true] {
            if self.room(of_much) == 0 {
                continue;
            }
            let last = if of_much { &mut self.turn_of_much } else { &mut self.turn };
            *last = (*last + 1) % lanes.len().max(1);
            let turn = *last;
            for nth in (turn..lanes.len()).chain(0..turn) {
                if self.is_full() {
                    return Ok(false); // the next time another lane is first
                }
                let Some(lane) = lanes.get(nth) else { continue };
                if lane.is_behind() != of_much {
                    continue;
                }
                let before = self.bytes();
                if self.frame_lane(lane, of_much)? {
                    lane.moves.make(SourceLaneMove::MeetOther);
                    return Ok(true);
                }
                let has_framed = self.bytes() > before;
                if !has_framed && self.room(of_much) == 0 {
                    continue; // it was not looked at
                }
                let is_left = self.bucket.is_some() && lane.has_more();
                let is_much = self.is_full() || (is_left && (has_framed || of_much));
                if is_much != of_much {
                    lane.change_behind(is_much);
                }
            }
        }
        Ok(false)
    }

    /// When anything may be framed again, of lanes with or without much to catch up with; `None`
    /// when something may now.
    pub fn opens_at(&mut self, of_much: bool) -> Option<Instant> {
        self.bucket.as_mut()?.opens_at(of_much)
    }

    /// The bytes of all frames.
    fn bytes(&self) -> usize {
        self.filled + self.apart.bytes
    }

    /// How many bytes more may be framed.
    fn room(&mut self, of_much: bool) -> usize {
        self.bucket.as_mut().map_or(usize::MAX, |bucket| bucket.room(of_much))
    }

    /// True when too little room is left for a look.
    fn is_full(&self) -> bool {
        self.bytes() > self.out.len() / 4 * 3
    }

    /// Makes frames of what is new in a lane, as far as there is room. The answer is true when a
    /// tailer has to look.
    fn frame_lane(&mut self, lane: &SourceLane<'a>, of_much: bool) -> Result<bool, Fault> {
        let mut single = 0; // the room that one excerpt takes, which goes out whole
        loop {
            let (room, before) = (self.room(of_much), self.bytes());
            if room == 0 {
                return Ok(false);
            }
            let end = before.saturating_add(room).max(single).min(self.out.len());
            let out = self.out.get_mut(..end).unwrap_or_default();
            match lane.frame(out.into(), self.filled, &mut self.apart)? {
                Look::Nothing => return Ok(false),
                Look::Framed(end) => {
                    self.filled = end;
                    single = 0;
                    self.spend(before, of_much);
                }
                Look::Longer(size) => {
                    single = size;
                    if size > self.out.len() {
                        // this is no longer than the longest payload; the next look finds the room
                        self.out.try_reserve(size - self.out.len())?;
                        self.out.resize(size, 0);
                    }
                }
                Look::Unusual => return Ok(true),
            }
        }
    }

    /// What was framed behind the first `before` bytes is about to be sent.
    fn spend(&mut self, before: usize, of_much: bool) {
        let bytes = self.bytes() - before;
        let is_live = self.bucket.is_none() || !of_much;
        self.is_live = is_live || (before > 0 && self.is_live);
        if let Some(bucket) = &mut self.bucket {
            bucket.spend(bytes);
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
        let frames_left = self.bytes() - self.frames_sent;
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
