//! One queue of a source's live pump: excerpts of a mapped file to frames, acknowledgements back.
//!
//! What is about to be sent is noted before it is, so that no acknowledgement can come first. What
//! others ask for while the pump runs is behind a mutex.

use std::mem;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Mutex;

use rustix::time::{clock_gettime, ClockId};

use crate::batch::apart::{Apart, APART_MIN};
use crate::batch::documents::{self, Limits, Walk, WalkStop};
use crate::batch::frames::{Frames, Framing, INT64};
use crate::live::acks::Taker;
use crate::live::control::locked;
use crate::mem::fault::{push, Fault};
use crate::mem::{Source, Target};

/// So many are looked for at a time, as it is not known how many frames fit.
const RUN_EXCERPTS: i64 = 1024;
const SLOT_BYTES: usize = 8;
const HEADER_BYTES: i64 = documents::HEADER_BYTES as i64;
/// More than a frame adds to a payload.
const FRAME_BYTES: usize = 4096;

/// The index slots that the excerpts of a lane fall into, as far as they are known to lie there.
#[derive(Clone, Copy)]
pub struct Slots {
    /// Position of the first slot.
    pub position: usize,
    /// The sequence that it is for.
    pub sequence: i64,
    /// How many there are.
    pub count: i64,
    /// Sequences from one slot to the next.
    pub spacing: i64,
}

impl Slots {
    /// How many excerpts from this sequence on are in no slot, up to one that is.
    fn excerpts_to(&self, sequence: i64) -> i64 {
        (self.spacing - sequence % self.spacing) % self.spacing
    }
}

/// Where a lane is, and what it may still send.
#[derive(Clone, Copy)]
pub struct LanePlace {
    /// Of the next header.
    pub position: i64,
    /// Of the next excerpt.
    pub index: i64,
    /// Its sequence.
    pub sequence: i64,
    /// Position of the header of the last excerpt sent; 0 when none was.
    pub position_last: i64,
    /// Excerpts that the window has room for.
    pub room_excerpts: i64,
    /// Payload bytes that it has room for.
    pub room_bytes: i64,
}

/// What was handed to the socket, or is just about to be, and what was acknowledged.
pub struct Sent {
    /// Where the lane is.
    pub place: LanePlace,
    /// Lengths of the excerpts since somebody asked.
    pub lengths: Vec<i64>,
    /// Acknowledgements since then: index, nano time, and the time now. The last one will do, but
    /// where they are logged.
    pub acks: Vec<[i64; 3]>,
}

/// One queue of a connection.
pub struct SourceLane<'a> {
    /// The mapped store file.
    pub store: Source<'a>,
    /// Selects the handler.
    pub cid_document: &'a [u8],
    /// Longest excerpt that may be sent.
    pub payload_max: i64,
    /// Where writers record the position of the last excerpt.
    pub write_position: usize,
    /// The index page of the place.
    pub slots: Option<Slots>,
    /// What others ask for while the pump runs.
    pub sent: &'a Mutex<Sent>,
    /// True when all acknowledgements are to be kept.
    pub is_logged: bool,
    /// Somebody waits for the acknowledgement of this index: it is told as soon as there is nothing
    /// to send, or after a while.
    pub awaited: &'a AtomicI64,
    /// With less room than this, acknowledgements are told at once.
    pub room_low: (i64, i64),
}

impl Taker for SourceLane<'_> {
    fn cid_document(&self) -> &[u8] {
        self.cid_document
    }

    fn take(&self, index: i64, ns: i64) {
        let mut sent = locked(self.sent);
        if !self.is_logged {
            sent.acks.clear();
        }
        sent.acks.push([index, ns, monotonic_ns()]);
    }
}

/// What a look at a lane has found.
pub enum Look {
    /// Nothing new.
    Nothing,
    /// Frames up to there.
    Framed(usize),
    /// One excerpt needs a buffer of so many bytes.
    Longer(usize),
    /// Something for whoever called the pump.
    Unusual,
}

impl<'a> SourceLane<'a> {
    /// True when the room that acknowledgements give is needed.
    pub fn needs_room(&self) -> bool {
        let sent = locked(self.sent);
        let (excerpts, bytes) = self.room_low;
        let is_low = sent.place.room_excerpts < excerpts || sent.place.room_bytes < bytes;
        is_low && !sent.acks.is_empty()
    }

    /// True when what somebody waits for was acknowledged.
    pub fn is_awaited(&self) -> bool {
        let awaited = self.awaited.load(Ordering::Relaxed);
        locked(self.sent).acks.last().is_some_and(|ack| ack[0] >= awaited)
    }

    /// Frames what is new into `out` behind `filled`, long payloads apart; where it ends then.
    pub fn frame(
        &self,
        out: Target<'_>,
        filled: usize,
        apart: &mut Apart<'a>,
    ) -> Result<Look, Fault> {
        let place = locked(self.sent).place;
        if place.room_excerpts <= 0 || place.room_bytes <= 0 {
            return Ok(Look::Nothing);
        }
        let limits = Limits {
            count: place.room_excerpts.min(RUN_EXCERPTS),
            bytes: i64::try_from(out.len().saturating_sub(filled + apart.bytes)).unwrap_or(0),
            payload: self.payload_max,
        };
        let end = i64::try_from(self.store.len()).unwrap_or(i64::MAX);
        let recorded = self.store.number(self.write_position);
        let mut walk = Walk::new(self.store, place.position, end, limits)?;
        let first = match walk.excerpt() {
            Ok(found) => found,
            Err(stop) => {
                // a writer records a position after it has stored the header there
                let is_lost = recorded.is_none_or(|recorded| recorded >= place.position);
                let is_waiting = stop == WalkStop::NotReady && !is_lost;
                return Ok(if is_waiting { Look::Nothing } else { Look::Unusual });
            }
        };
        let (mark, out_bytes, ns_item) = (apart.mark(), out.len(), now_item());
        let none: &[i64] = &[];
        let frames = Frames {
            data: self.store,
            offsets: none.into(),
            lengths: none.into(),
            cid_document: self.cid_document,
            ns_item: &ns_item,
        };
        let from = i64::try_from(filled).unwrap_or(i64::MAX);
        let mut framing =
            Framing::new(frames, 0, place.index, out, from)?.leaving(APART_MIN, mem::take(apart));
        let framed = self.frame_run(&mut walk, first, &mut framing, place)?;
        let (filled_end, framed_count) = (framing.filled, framing.count);
        *apart = mem::take(&mut framing.apart);
        let Some((next, lengths)) = framed else {
            apart.go_back(mark);
            return Ok(Look::Unusual);
        };
        if lengths.is_empty() {
            let (_, length) = first;
            let size = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(FRAME_BYTES);
            let is_first = filled == 0 && size > out_bytes;
            return Ok(if is_first { Look::Longer(size) } else { Look::Nothing });
        }
        debug_assert_eq!(framed_count, lengths.len(), "each frame is noted");
        debug_assert!(filled < filled_end);
        debug_assert!(filled_end + apart.bytes <= out_bytes);
        self.note(next, &lengths);
        Ok(Look::Framed(filled_end))
    }

    /// Frames one excerpt after the other, as many as fit: the place behind them, and their lengths.
    /// `None` when an index slot says that one stands elsewhere: none of them may be sent.
    fn frame_run(
        &self,
        walk: &mut Walk,
        first: (u64, i64),
        framing: &mut Framing,
        mut place: LanePlace,
    ) -> Result<Option<(LanePlace, Vec<i64>)>, Fault> {
        let (mut found, mut lengths) = (first, Vec::new());
        let mut to_slot = self.slots.map_or(i64::MAX, |slots| slots.excerpts_to(place.sequence));
        loop {
            let (body, length) = (found.0 as i64, found.1);
            let header = body - HEADER_BYTES;
            debug_assert!(header >= place.position);
            debug_assert!(header >= place.position_last);
            debug_assert!(self.store.has(body as usize, length as usize));
            if to_slot == 0 {
                if !self.agrees(place.sequence, header) {
                    return Ok(None);
                }
                to_slot = self.slots.map_or(i64::MAX, |slots| slots.spacing);
            }
            if !framing.put(body, length)? {
                place.position = header;
                break;
            }
            push(&mut lengths, length)?;
            place.position_last = header;
            place.sequence = place.sequence.saturating_add(1);
            to_slot -= 1;
            match walk.excerpt() {
                Ok(next) => found = next,
                Err(_) => {
                    place.position = i64::try_from(walk.position).unwrap_or(i64::MAX);
                    break;
                }
            }
        }
        place.index = place.index.saturating_add(lengths.len() as i64);
        Ok(Some((place, lengths)))
    }

    /// False when an index slot says that the excerpt of this sequence stands elsewhere.
    fn agrees(&self, sequence: i64, position: i64) -> bool {
        let Some(slots) = self.slots else {
            return true;
        };
        let slot = sequence.saturating_sub(slots.sequence) / slots.spacing;
        if !(0..slots.count).contains(&slot) {
            return true; // of another page
        }
        let slot = usize::try_from(slot).unwrap_or(usize::MAX);
        let at = slots.position.saturating_add(slot.saturating_mul(SLOT_BYTES));
        self.store.number(at).is_some_and(|found| found == 0 || found == position)
    }

    /// Notes excerpts as sent, and where the lane is then.
    fn note(&self, place: LanePlace, lengths: &[i64]) {
        let mut sent = locked(self.sent);
        debug_assert!(sent.place.position < place.position);
        debug_assert_eq!(sent.place.index.saturating_add(lengths.len() as i64), place.index);
        // there may be more room by now
        let room_excerpts = sent.place.room_excerpts - lengths.len() as i64;
        let room_bytes = sent.place.room_bytes - lengths.iter().sum::<i64>();
        sent.place = LanePlace { room_excerpts, room_bytes, ..place };
        sent.lengths.extend_from_slice(lengths);
    }
}

/// The time now on the clock that frames and logs name.
pub fn monotonic_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// The time now as the item behind a payload, in the one width that receivers take fastest.
fn now_item() -> [u8; 9] {
    let mut item = [INT64; 9];
    if let Some(number) = item.last_chunk_mut() {
        *number = monotonic_ns().to_le_bytes();
    }
    item
}
