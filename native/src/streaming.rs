//! The live pump of a source: excerpts of mapped files to frames to a socket, as they appear.
//!
//! It does the usual case and judges nothing. Whatever is not a new excerpt behind the last one, as
//! the end of a file, a file that has grown, a mark that contradicts what was walked to, is left
//! where it is, and the pump comes back: the tailer then looks at it from the same place.
//!
//! What is about to be sent is noted before it is, so that no acknowledgement can come first.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::time::{clock_gettime, ClockId};

use crate::control::{locked, send_some, Control, Ended};
use crate::fault::Fault;
use crate::frames::{Frames, Framing, INT64};
use crate::mem::{Source, Target};
use crate::pausing::Pauser;
use crate::store::{self, Limits, Stop, Walk};

/// So many are looked for at a time, as it is not known how many frames fit.
const RUN_EXCERPTS: i64 = 1024;
const HEADER_BYTES: i64 = store::HEADER_BYTES as i64;
/// More than a frame adds to a payload.
const FRAME_BYTES: usize = 4096;
/// Looks without a pause that asks for the time, after which it is asked for all the same.
const LOOKS_UNTIMED: u32 = 4096;

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

/// Where a lane is, and what it may still send.
#[derive(Clone, Copy)]
pub struct Place {
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

/// What was handed to the socket, or is just about to be.
pub struct Sent {
    /// Where the lane is.
    pub place: Place,
    /// Lengths of the excerpts since somebody asked.
    pub lengths: Vec<i64>,
}

/// One queue of a connection.
pub struct Lane<'a> {
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
}

enum Look {
    Nothing,
    Framed(usize),
    /// One excerpt needs a buffer of so many bytes.
    Longer(usize),
    Unusual,
}

impl Lane<'_> {
    /// Frames what is new into `out` behind `filled`; where it ends then.
    fn frame(&self, out: Target<'_>, filled: usize) -> Result<Look, Fault> {
        let place = locked(self.sent).place;
        if place.room_excerpts <= 0 || place.room_bytes <= 0 {
            return Ok(Look::Nothing);
        }
        let limits = Limits {
            count: place.room_excerpts.min(RUN_EXCERPTS),
            bytes: i64::try_from(out.len() - filled).unwrap_or(i64::MAX),
            payload: self.payload_max,
        };
        let end = i64::try_from(self.store.len()).unwrap_or(i64::MAX);
        let recorded = self.store.number(self.write_position);
        let mut walk = Walk::new(self.store, place.position, end, limits)?;
        let mut stop = None;
        while stop.is_none() {
            stop = walk.step(usize::MAX)?;
        }
        if walk.offsets.is_empty() {
            // a writer records a position after it has stored the header there
            let is_lost = recorded.is_none_or(|recorded| recorded >= place.position);
            let is_waiting = stop == Some(Stop::NotReady) && !is_lost;
            return Ok(if is_waiting { Look::Nothing } else { Look::Unusual });
        }
        if !self.agrees(&place, &walk.offsets) {
            return Ok(Look::Unusual);
        }
        let ns_item = now_item();
        let out_bytes = out.len();
        let frames = Frames {
            data: self.store,
            offsets: walk.offsets.as_slice().into(),
            lengths: walk.lengths.as_slice().into(),
            cid_document: self.cid_document,
            ns_item: &ns_item,
        };
        let from = i64::try_from(filled).unwrap_or(i64::MAX);
        let mut framing = Framing::new(frames, 0, place.index, out, from)?;
        while framing.step(usize::MAX, usize::MAX)? {}
        if framing.count == 0 {
            let length = walk.lengths.first().copied().unwrap_or_default();
            let size = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(FRAME_BYTES);
            let is_first = filled == 0 && size > out_bytes;
            return Ok(if is_first { Look::Longer(size) } else { Look::Nothing });
        }
        self.note(place, &walk, framing.count);
        Ok(Look::Framed(framing.filled))
    }

    /// False when an index slot says that an excerpt stands elsewhere.
    fn agrees(&self, place: &Place, offsets: &[i64]) -> bool {
        let Some(slots) = self.slots else {
            return true;
        };
        let first = (slots.spacing - place.sequence % slots.spacing) % slots.spacing;
        let step = usize::try_from(slots.spacing).unwrap_or(usize::MAX);
        let nth = usize::try_from(first).unwrap_or(usize::MAX);
        let slot = (place.sequence + first - slots.sequence) / slots.spacing;
        for (slot, offset) in (slot..).zip(offsets.iter().skip(nth).step_by(step)) {
            if !(0..slots.count).contains(&slot) {
                break; // of another page
            }
            let at = usize::try_from(slot).map_or(usize::MAX, |slot| slots.position + slot * 8);
            let position = offset - HEADER_BYTES;
            if !self.store.number(at).is_some_and(|found| found == 0 || found == position) {
                return false;
            }
        }
        true
    }

    /// Notes the first `count` excerpts of a walk as sent.
    fn note(&self, mut place: Place, walk: &Walk, count: usize) {
        let lengths = walk.lengths.get(..count).unwrap_or(&walk.lengths);
        let last = walk.offsets.get(count - 1).copied().unwrap_or_default();
        let next = walk.offsets.get(count).map(|offset| offset - HEADER_BYTES);
        place.position = next.unwrap_or(i64::try_from(walk.position).unwrap_or(i64::MAX));
        place.position_last = last - HEADER_BYTES;
        place.index += count as i64;
        place.sequence += count as i64;
        place.room_excerpts -= count as i64;
        place.room_bytes -= lengths.iter().sum::<i64>();
        let mut sent = locked(self.sent);
        sent.place = place;
        sent.lengths.extend_from_slice(lengths);
    }
}

/// The time now as the item behind a payload, in the one width that receivers take fastest.
fn now_item() -> [u8; 9] {
    let now = clock_gettime(ClockId::Monotonic);
    let ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    let mut item = [INT64; 9];
    if let Some(number) = item.last_chunk_mut() {
        *number = ns.to_le_bytes();
    }
    item
}

/// Sends what appears in the lanes until time is over or something else comes up.
///
/// Returns why, and what of a batch has not been sent: it goes first, whoever sends next.
pub fn stream(
    socket: BorrowedFd,
    control: &Control,
    lanes: &[Lane],
    out: &mut Vec<u8>,
    mut pauser: Pauser,
    slice: Duration,
) -> Result<(Ended, Vec<u8>), PumpError> {
    let until = Instant::now() + slice;
    let mut untimed = 0;
    let mut turn = 0;
    loop {
        if control.is_interrupted() {
            return Ok((Ended::Interrupted, Vec::new()));
        }
        turn = (turn + 1) % lanes.len().max(1);
        let (filled, is_unusual) = frame_all(lanes, turn, out)?;
        if filled > 0 {
            let rest = out.get(..filled).unwrap_or_default();
            let unsent = send_all(socket, control, rest)?;
            if !unsent.is_empty() {
                return Ok((Ended::Interrupted, unsent));
            }
            pauser.reset();
        }
        if is_unusual {
            return Ok((Ended::Unusual, Vec::new()));
        }
        let now = if filled > 0 { Some(Instant::now()) } else { pauser.pause() };
        untimed += 1;
        if now.is_some() || untimed > LOOKS_UNTIMED {
            untimed = 0;
            if now.unwrap_or_else(Instant::now) >= until {
                return Ok((Ended::Slice, Vec::new()));
            }
        }
    }
}

fn frame_all(lanes: &[Lane], turn: usize, out: &mut Vec<u8>) -> Result<(usize, bool), Fault> {
    let (before, from) = lanes.split_at(turn.min(lanes.len()));
    let mut filled = 0;
    for lane in from.iter().chain(before) {
        loop {
            match lane.frame(out.as_mut_slice().into(), filled)? {
                Look::Nothing => break,
                Look::Framed(end) => filled = end,
                Look::Longer(size) => {
                    // no longer than the longest payload; the next look finds the room
                    out.try_reserve(size - out.len())?;
                    out.resize(size, 0);
                }
                Look::Unusual => return Ok((filled, true)),
            }
        }
    }
    Ok((filled, false))
}

/// Sends all of it; what is left when it is interrupted while the peer takes nothing.
fn send_all(socket: BorrowedFd, control: &Control, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut rest = bytes;
    loop {
        let count = send_some(socket, rest)?;
        rest = rest.get(count..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(Vec::new());
        }
        if control.is_interrupted() {
            return Ok(rest.to_vec());
        }
        control.wait(socket, PollFlags::OUT, None)?;
    }
}

/// What ends a pump before its time.
#[derive(Debug)]
pub enum PumpError {
    /// The connection is broken.
    Io(io::Error),
    /// An argument makes no sense.
    Fault(Fault),
}

impl From<io::Error> for PumpError {
    fn from(error: io::Error) -> Self {
        PumpError::Io(error)
    }
}

impl From<Fault> for PumpError {
    fn from(fault: Fault) -> Self {
        PumpError::Fault(fault)
    }
}
