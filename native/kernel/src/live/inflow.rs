//! What a pump receives: frames for the lanes of a sink, and acknowledgements for those of a source,
//! in any order. What is for no lane is handed over to the event loop while the pump runs on, if it
//! can be; all else stays where it stands.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::live::acks::{self, Body};
use crate::live::control::{receive_some, Control, Heard, PumpError};
use crate::live::lane_moves::SinkLaneMove;
use crate::live::others::{changes_nothing, document_end};
use crate::live::sink_lane::{Next, SinkLane};
use crate::live::source_lane::SourceLane;

/// So long a pump waits for the rest of a document.
const LATE: Duration = Duration::from_secs(1);

/// What stands behind all that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing, or the beginning of a document.
    Nothing,
    /// A document that no lane takes, and that cannot be handed over.
    Other,
}

/// The bytes that the peer has sent and no lane has taken.
pub struct Inflow {
    buffer: Vec<u8>,
    /// A document that is no shorter is not for a pump.
    room: usize,
    at: usize,
    end: usize,
    /// The lanes that have taken something last: the next is likely to be for the same.
    likely_sink: usize,
    likely_source: usize,
    started: Instant,
    /// When the peer was heard.
    pub heard: Heard,
    /// True when more is likely to be there than was received at once.
    pub is_full: bool,
    /// How many bytes were taken or handed over.
    pub taken: u64,
}

impl Inflow {
    /// Begins with bytes that were received before, and has room for so many in all, or at least
    /// for some more than those.
    pub fn new(received: &[u8], room: usize, started: Instant) -> Self {
        let mut buffer = vec![0; room.max(received.len() + 1)];
        if let Some(start) = buffer.get_mut(..received.len()) {
            start.copy_from_slice(received);
        }
        Inflow {
            buffer,
            room,
            at: 0,
            end: received.len(),
            likely_sink: 0,
            likely_source: 0,
            started,
            heard: Heard::default(),
            is_full: false,
            taken: 0,
        }
    }

    /// Receives what is there, without waiting; `None` when nothing is, 0 at the end of the stream.
    pub fn receive(&mut self, socket: BorrowedFd, now: Instant) -> io::Result<Option<usize>> {
        debug_assert!(self.at <= self.end, "no more was taken than had come");
        self.buffer.copy_within(self.at..self.end, 0);
        self.end -= self.at;
        self.at = 0;
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        let count = receive_some(socket, room)?;
        if let Some(count) = count.filter(|&count| count > 0) {
            self.heard.received(now, self.end);
            self.end += count;
        }
        self.is_full = count.is_some() && self.end == self.buffer.len();
        Ok(count)
    }

    /// Gives the lanes all that is whole, and hands over what is for none.
    pub fn take(
        &mut self,
        sinks: &mut [SinkLane],
        sources: &[SourceLane],
        control: &Control,
    ) -> Result<Behind, PumpError> {
        let before = self.at;
        let mut behind = Ok(None);
        while let Ok(None) = behind {
            behind = self.take_next(sinks, sources, control);
        }
        if self.at > before {
            self.taken += (self.at - before) as u64;
            self.heard.taken(self.started);
        }
        Ok(behind?.unwrap_or(Behind::Nothing))
    }

    /// Takes what comes next; the answer is what stands there when that is left.
    fn take_next(
        &mut self,
        sinks: &mut [SinkLane],
        sources: &[SourceLane],
        control: &Control,
    ) -> Result<Option<Behind>, PumpError> {
        let data = self.buffer.get(self.at..self.end).unwrap_or_default();
        if data.is_empty() {
            return Ok(Some(Behind::Nothing));
        }
        let cut = if data.len() < self.room { Behind::Nothing } else { Behind::Other };
        let nth = addressed(sinks, |lane| lane.cid_document, self.likely_sink, data);
        if let Some((nth, lane)) = nth.and_then(|nth| Some((nth, sinks.get_mut(nth)?))) {
            self.likely_sink = nth;
            let start = lane.cid_document.len();
            return Ok(match lane.store(data)? {
                Next::Taken(count) => {
                    self.at += count;
                    None
                }
                Next::Cut => Some(cut),
                Next::Other => self.hand_over(start, cut, control),
                Next::Unusual => {
                    lane.moves.make(SinkLaneMove::Refuse);
                    Some(Behind::Other)
                }
            });
        }
        let nth = addressed(sources, |lane| lane.cid_document, self.likely_source, data);
        if let Some((nth, lane)) = nth.and_then(|nth| Some((nth, sources.get(nth)?))) {
            self.likely_source = nth;
            let start = lane.cid_document.len();
            return Ok(match acks::read(data.get(start..).unwrap_or_default()) {
                Body::Acknowledgement(level, index, ns) => {
                    if lane.take(level, index, ns) {
                        self.at += start + acks::BYTES;
                        None
                    } else {
                        Some(Behind::Other)
                    }
                }
                Body::Cut => Some(cut),
                Body::Other => self.hand_over(start, cut, control),
            });
        }
        Ok(self.hand_over(0, cut, control))
    }

    /// Hands over the document at `start`, and what stands before it; the answer is what stands
    /// there when that is left: `cut` if it is not whole.
    fn hand_over(&mut self, start: usize, cut: Behind, control: &Control) -> Option<Behind> {
        let data = self.buffer.get(self.at..self.end).unwrap_or_default();
        let Some(end) = document_end(data, start) else {
            return Some(cut);
        };
        let document = data.get(..end).unwrap_or_default();
        if !changes_nothing(data, start, end) || !control.hand_over(document) {
            return Some(Behind::Other);
        }
        self.at += end;
        None
    }

    /// True when the rest of a document is waited for too long: its time limit is for the event
    /// loop to watch.
    pub fn is_late(&self, now: Instant) -> bool {
        self.at < self.end && now >= self.heard.began_since(self.started) + LATE
    }

    /// What was received and not taken.
    pub fn left(&self) -> Vec<u8> {
        self.buffer.get(self.at..self.end).unwrap_or_default().to_vec()
    }
}

/// Which of `among` the document at the start of `data` selects. It is likely to be the one that
/// the last document has selected, or the one behind it, as they take turns: so they are tried in
/// this order, or a thousand queues would cost each document a look at half of them.
fn addressed<T>(
    among: &[T],
    cid_document: impl Fn(&T) -> &[u8],
    likely: usize,
    data: &[u8],
) -> Option<usize> {
    let start = likely.min(among.len());
    let (before, from) = among.split_at(start);
    let nth = from.iter().chain(before).position(|one| data.starts_with(cid_document(one)))?;
    Some((start + nth) % among.len())
}
