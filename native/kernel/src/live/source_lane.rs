//! One queue in the pump of a source: excerpts of a mapped file become frames, and acknowledgements
//! come back.
//!
//! What is about to be sent is noted before it is sent, so that no acknowledgement can come before
//! the note. The event loop asks for the notes while the pump runs, so they are behind a mutex.
//!
//! An acknowledgement of what was sent raises the mark of the host at once, for the threads that wait
//! for it. One of anything else raises nothing. From a peer that can prove what it holds the event
//! loop refuses it; from another one it is passed over, and kept as what that peer claims.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use crate::append::clock::monotonic_ns;

use crate::batch::apart::{Apart, APART_MIN};
use crate::batch::documents::{self, Limits, Walk};
use crate::batch::frames::{Frames, Framing, INT64};
use crate::batch::runs::{self, Growing, RunHead};
use crate::live::board::{Row, APPENDED};
use crate::live::control::locked;
use crate::live::found_runs::{File, FoundRun, FoundRuns};
use crate::live::lane_moves::{LaneMoves, SourceLaneMove, SourceLaneState};
use crate::live::recorded::{Certain, Recorded, Says, WalkCheck};
use crate::live::send_budget::SendBudget;
use crate::mem::fault::{self, push, Fault};
use crate::mem::{Source, Target};

/// After so many excerpts what was framed is noted.
const RUN_EXCERPTS: usize = 1024;
const HEADER_BYTES: i64 = documents::HEADER_BYTES as i64;
/// The most bytes of a run: the peer takes it once all of it has come.
const RUN_BYTES: usize = 80 << 10;
/// The most that a frame adds to its payload and its cid document is less than this.
const FRAME_BYTES: usize = 128;

/// Where a lane is, and what it may still send.
#[derive(Clone, Copy)]
pub struct LanePlace {
    /// The position of the next header.
    pub position: i64,
    /// The index of the next excerpt.
    pub index: i64,
    /// The sequence of the next excerpt.
    pub sequence: i64,
    /// All documents before this position agree with what was recorded.
    pub certain_end: i64,
    /// How long the frames from one slot to the next were, the last time; 0 when not known.
    pub stretch_bytes: usize,
    /// The position of the header of the last excerpt sent; 0 when none was.
    pub position_last: i64,
    /// How many excerpts the window has room for.
    pub room_excerpts: i64,
    /// How many payload bytes the window has room for.
    pub room_bytes: i64,
    /// How many excerpts were sent and are not acknowledged.
    pub held: i64,
}

/// What was handed to the socket, or is just about to be, and what was acknowledged.
pub struct Sent {
    /// Where the lane is.
    pub place: LanePlace,
    /// The lengths of the excerpts sent since the event loop asked last, but for those that are
    /// settled.
    pub lengths: VecDeque<i64>,
    /// Those before them that were acknowledged since: how many, and the sum of their lengths. None
    /// where all acknowledgements are kept.
    pub settled: (i64, i64),
    /// The acknowledgements since then: index, nano time, and the time at which each came. Only the
    /// last one is kept, unless the lane is logged.
    pub acks: Vec<[i64; 3]>,
    /// The last index that the peer was sent, in this lane or before.
    pub index_sent: i64,
    /// The last index that the peer has acknowledged, or had before.
    pub index_held: i64,
    /// The greatest index that the peer has acknowledged and was not sent, where it cannot prove what
    /// it holds; `NOTHING` when there was none.
    pub index_claimed: i64,
    /// The event loop is woken once when this index is acknowledged.
    pub target: i64,
    /// True when no acknowledgement raises a mark any more.
    pub is_muted: bool,
}

impl Sent {
    /// Everything up to an index is acknowledged, which was sent: the length of each is needed no
    /// more. They would be megabytes until the event loop takes them.
    fn settle(&mut self, index: i64) {
        let first = self.place.index.saturating_sub(self.lengths.len() as i64);
        let count =
            index.saturating_sub(first).saturating_add(1).clamp(0, self.lengths.len() as i64);
        let (settled, bytes) = self.settled;
        let sum: i64 = self.lengths.drain(..count as usize).sum();
        self.settled = (settled + count, bytes.saturating_add(sum));
    }
}

/// One queue in the pump of a source.
pub struct SourceLane<'a> {
    /// The mapped store file.
    pub store: Source<'a>,
    /// The cid document that selects the handler.
    pub cid_document: &'a [u8],
    /// The length of the longest excerpt that may be sent.
    pub payload_max: i64,
    /// True when the peer takes runs.
    pub has_runs: bool,
    /// What the lane is held against.
    pub recorded: Recorded,
    /// What lanes have found of this file, and of others; `None` when it is the queue's only lane.
    pub found: Option<(&'a FoundRuns, File)>,
    /// What was sent, for the event loop, which asks while the pump runs.
    pub sent: &'a Mutex<Sent>,
    /// True when all acknowledgements are to be kept.
    pub is_logged: bool,
    /// The marks of the host that acknowledges.
    pub row: &'a Row,
    /// True when the peer can prove what it holds.
    pub can_prove: bool,
    /// What it shares with the other lanes; `None` where nothing is acknowledged.
    pub budget: Option<&'a SendBudget>,
    /// True when it has filled the buffer when it was looked at last, or used up the tokens: others
    /// go first.
    pub has_much: &'a AtomicBool,
    /// In which state it is.
    pub moves: &'a LaneMoves<SourceLaneState>,
    /// With less room than this, the pump comes back with acknowledgements at once.
    pub room_low: (i64, i64),
}

/// Excerpts that were taken, and may not all be sent.
struct Passed {
    /// Where the lane is behind them.
    place: LanePlace,
    /// The lengths of their payloads.
    lengths: Vec<i64>,
    /// True when all of them agree with what is recorded.
    is_certain: bool,
    /// True when the excerpt behind them stands elsewhere than recorded.
    is_astray: bool,
    /// How many are proved by a slot, at least.
    proved: Option<Proved>,
    /// What was written before them.
    first: Mark,
}

/// A place among these excerpts: all before it are certain.
#[derive(Clone, Copy)]
struct Proved {
    place: LanePlace,
    count: usize,
    mark: Mark,
}

/// How much was written, and what was put apart.
#[derive(Clone, Copy)]
struct Mark {
    filled: usize,
    apart: (usize, usize),
}

/// What excerpts are taken into, one after the other.
trait Taking {
    /// Takes one more; false when it does not fit.
    fn take(&mut self, body: i64, length: i64) -> Result<bool, Fault>;
    /// The bytes up to where the excerpt with this header would be.
    fn bytes(&self, header: i64) -> usize;
    /// How much was written.
    fn mark(&self) -> Mark;
}

impl Taking for Framing<'_, '_> {
    #[inline]
    fn take(&mut self, body: i64, length: i64) -> Result<bool, Fault> {
        self.put(body, length)
    }

    fn bytes(&self, _header: i64) -> usize {
        self.filled + self.apart.bytes
    }

    fn mark(&self) -> Mark {
        Mark { filled: self.filled, apart: self.apart.mark() }
    }
}

/// Excerpts that become a run: nothing is written before it is known where it ends.
struct RunTaking<'d> {
    data: Source<'d>,
    growing: Growing,
    before: usize,
}

impl Taking for RunTaking<'_> {
    #[inline]
    fn take(&mut self, body: i64, length: i64) -> Result<bool, Fault> {
        Ok(self.growing.takes(self.data, body, length))
    }

    fn bytes(&self, header: i64) -> usize {
        let header = usize::try_from(header).unwrap_or(0);
        let behind = self.growing.start().filter(|&start| start < header);
        self.before + behind.map_or(0, |start| header - start)
    }

    fn mark(&self) -> Mark {
        Mark { filled: self.before, apart: (0, 0) }
    }
}

/// What a look at a lane has found.
pub enum Look {
    /// There is nothing new, or no room for it.
    Nothing,
    /// Frames were written, up to this offset.
    Framed(usize),
    /// One excerpt needs a buffer of so many bytes.
    Longer(usize),
    /// The tailer has to look at what stands there.
    Unusual,
}

impl<'a> SourceLane<'a> {
    /// Takes an acknowledgement in, or word of a further level. The answer is false for one of what
    /// was not sent, or a level of what was not acknowledged: the event loop is to refuse it.
    pub fn take(&self, level: usize, index: i64, ns: i64) -> bool {
        if level == APPENDED {
            return self.take_ack(index, ns);
        }
        let sent = locked(self.sent);
        let is_known = index <= sent.index_held;
        if is_known && !sent.is_muted {
            self.row.raise_to(level, index);
        }
        is_known
    }

    fn take_ack(&self, index: i64, ns: i64) -> bool {
        let mut sent = locked(self.sent);
        if index > sent.index_sent {
            if self.can_prove {
                return index <= sent.index_held;
            }
            sent.index_claimed = sent.index_claimed.max(index);
            return true;
        }
        if sent.acks.last().is_some_and(|last| index <= last[0]) {
            return true; // an older one that was overtaken on its way says nothing new
        }
        if !self.is_logged {
            sent.acks.clear();
        }
        sent.acks.push([index, ns, monotonic_ns()]);
        sent.index_held = sent.index_held.max(index);
        if !self.is_logged {
            sent.settle(index);
        }
        if !sent.is_muted {
            self.row.raise_to(APPENDED, index);
        }
        if index >= sent.target {
            sent.target = i64::MAX;
            self.row.ring();
        }
        true
    }

    /// True when the room that the acknowledgements give is needed.
    pub fn needs_room(&self) -> bool {
        let sent = locked(self.sent);
        let (excerpts, bytes) = self.room_low;
        let (place, has_acks) = (&sent.place, !sent.acks.is_empty());
        let is_low = place.room_excerpts < excerpts || place.room_bytes < bytes;
        has_acks && (is_low || self.room(place) < place.held)
    }

    /// How many excerpts may be sent.
    fn room(&self, place: &LanePlace) -> i64 {
        let room = self.budget.map_or(i64::MAX, |budget| budget.room(place.held));
        room.min(place.room_excerpts)
    }

    /// True when there was more than could be sent when it was looked at last.
    pub fn is_behind(&self) -> bool {
        self.has_much.load(Ordering::Relaxed)
    }

    /// Whether there was is another thing than before.
    pub fn change_behind(&self, is_behind: bool) {
        self.has_much.store(is_behind, Ordering::Relaxed);
        let made = if is_behind { SourceLaneMove::FallBehind } else { SourceLaneMove::ComeUp };
        self.moves.make(made);
    }

    /// True when an excerpt stands where the lane is.
    pub fn has_more(&self) -> bool {
        let position = locked(self.sent).place.position;
        let limits = Limits { count: 1, bytes: i64::MAX, payload: self.payload_max };
        let walk = Walk::new(self.store, position, length_of(self.store), limits);
        walk.is_ok_and(|mut walk| walk.excerpt().is_ok())
    }

    /// Writes frames of what is new into `out`, behind `filled`, and puts long payloads into
    /// `apart`.
    pub fn frame(
        &self,
        mut out: Target<'_>,
        filled: usize,
        apart: &mut Apart<'a>,
    ) -> Result<Look, Fault> {
        let place = locked(self.sent).place;
        let room_excerpts = self.room(&place);
        if room_excerpts <= 0 || place.room_bytes <= 0 {
            return Ok(Look::Nothing);
        }
        let limits = Limits {
            count: room_excerpts,
            bytes: i64::try_from(out.len().saturating_sub(filled + apart.bytes)).unwrap_or(0),
            payload: self.payload_max,
        };
        let is_certain = place.position < place.certain_end;
        if !is_certain && filled > 0 && out.len() < filled + apart.bytes + place.stretch_bytes {
            return Ok(Look::Nothing); // it would end before a slot, and be written in vain
        }
        if let Some(look) = self.found_run(limits.count, place, &mut out, filled, apart)? {
            return Ok(look);
        }
        let Some(check) = self.recorded.check(self.store, place.position, place.sequence) else {
            return Ok(Look::Unusual);
        };
        let end = if is_certain { place.certain_end } else { length_of(self.store) };
        let mut walk = Walk::new(self.store, place.position, end, limits)?;
        let first = match walk.excerpt() {
            Ok(first) => first,
            Err(stop) => {
                let waits = !is_certain && check.waits(stop, place.position);
                return Ok(if waits { Look::Nothing } else { Look::Unusual });
            }
        };
        if self.has_runs {
            if let Some(look) = self.run(limits, place, check.clone(), &mut out, filled, apart)? {
                return Ok(look);
            }
        }
        let check = (!is_certain).then_some(check);
        let (out_bytes, ns_item) = (out.len(), now_item());
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
        let mut run = self.pass(&mut walk, first, &mut framing, place, check, out_bytes)?;
        if run.lengths.is_empty() {
            *apart = mem::take(&mut framing.apart);
            if run.is_astray {
                return Ok(Look::Unusual);
            }
            let (_, length) = first;
            let more = FRAME_BYTES + self.cid_document.len();
            let size = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(more);
            let is_first = filled == 0 && size > out_bytes;
            return Ok(if is_first { Look::Longer(size) } else { Look::Nothing });
        }
        let framed_count = framing.count;
        debug_assert_eq!(framed_count, run.lengths.len(), "each frame is noted");
        let mut filled_end = framing.filled;
        *apart = mem::take(&mut framing.apart);
        if !run.is_certain && !self.is_proved_ahead(&mut run)? {
            let Some(proved) = run.proved else {
                apart.go_back(run.first.apart);
                return Ok(Look::Unusual);
            };
            run.lengths.truncate(proved.count);
            run.place = proved.place;
            filled_end = proved.mark.filled;
            apart.go_back(proved.mark.apart);
        }
        debug_assert!(filled < filled_end);
        debug_assert!(filled_end + apart.bytes <= out_bytes);
        run.place.index = place.index.saturating_add(run.lengths.len() as i64);
        self.note(run.place, run.lengths.iter().copied());
        Ok(Look::Framed(filled_end))
    }

    /// Writes the head of a run of what is new, and puts its bytes into `apart`. `None` when there
    /// are too few excerpts for one, and nothing was written.
    ///
    /// What is certain already is passed together with what is not yet, so that no run ends where
    /// that begins.
    fn run(
        &self,
        limits: Limits,
        place: LanePlace,
        check: WalkCheck,
        out: &mut Target<'_>,
        filled: usize,
        apart: &mut Apart<'a>,
    ) -> Result<Option<Look>, Fault> {
        let head_end = filled + self.cid_document.len() + runs::HEAD_BYTES;
        let before = head_end + apart.bytes;
        let bytes_max = out.len().saturating_sub(before).min(RUN_BYTES);
        let growing = Growing::new(i64::try_from(bytes_max).unwrap_or(i64::MAX));
        let mut taking = RunTaking { data: self.store, growing, before };
        let out_bytes = before + bytes_max;
        let mut walk = Walk::new(self.store, place.position, length_of(self.store), limits)?;
        let Ok(first) = walk.excerpt() else {
            return Ok(None);
        };
        let mut run = self.pass(&mut walk, first, &mut taking, place, Some(check), out_bytes)?;
        if run.lengths.len() < runs::EXCERPTS_MIN || place.index < 0 {
            // at the end of a buffer there may be no room for a second one: it waits for the next,
            // as a frame between two runs keeps the peer from storing them together
            return Ok((filled > 0 && bytes_max < RUN_BYTES).then_some(Look::Nothing));
        }
        if !run.is_certain && !self.is_proved_ahead(&mut run)? {
            let Some(proved) = run.proved.filter(|proved| proved.count >= runs::EXCERPTS_MIN)
            else {
                return Ok(None);
            };
            run.lengths.truncate(proved.count);
            run.place = proved.place;
        }
        let Some((start, end)) = taking.growing.start().zip(self.end_of(&run)) else {
            return Ok(None);
        };
        let (count, size) = (run.lengths.len(), end.saturating_sub(start));
        let bytes = self.store.part(start, size).ok_or(fault::EXCERPT_OUTSIDE)?;
        let filled_end = self.put_run(place.index, count, bytes, out, filled, apart)?;
        debug_assert!(filled_end + apart.bytes <= out_bytes);
        run.place.index = place.index.saturating_add(count as i64);
        self.note(run.place, run.lengths.iter().copied());
        if let Some((found, file)) = self.found {
            let LanePlace { position, position_last, certain_end, stretch_bytes, .. } = run.place;
            found.keep(
                file,
                FoundRun {
                    index: place.index,
                    start,
                    end,
                    lengths: run.lengths.iter().map(|&length| length as u32).collect(),
                    position,
                    position_last,
                    certain_end,
                    stretch_bytes,
                },
            );
        }
        Ok(Some(Look::Framed(filled_end)))
    }

    /// Does the same with a run that another lane has found. `None` when there is none, or it is not
    /// one for this lane now, and nothing was written.
    fn found_run(
        &self,
        count_max: i64,
        place: LanePlace,
        out: &mut Target<'_>,
        filled: usize,
        apart: &mut Apart<'a>,
    ) -> Result<Option<Look>, Fault> {
        let Some((found, file)) = self.found.filter(|_| self.has_runs) else {
            return Ok(None);
        };
        let Some(rest) = found.from(file, place.index) else {
            return Ok(None);
        };
        let (count, size) = (rest.lengths().len(), rest.size());
        let before = filled + self.cid_document.len() + runs::HEAD_BYTES + apart.bytes;
        let fits = size <= out.len().saturating_sub(before).min(RUN_BYTES)
            && count >= runs::EXCERPTS_MIN
            && count as i64 <= count_max
            && place.position <= i64::try_from(rest.start).unwrap_or(0)
            && rest.stands_in(self.store, self.payload_max);
        let bytes = self.store.part(rest.start, size).filter(|_| fits);
        let Some(bytes) = bytes else {
            return Ok(None);
        };
        let filled_end = self.put_run(place.index, count, bytes, out, filled, apart)?;
        debug_assert!(filled_end + apart.bytes <= out.len());
        let run = &rest.run;
        let behind = LanePlace {
            position: run.position,
            index: place.index.saturating_add(count as i64),
            sequence: place.sequence.saturating_add(count as i64),
            certain_end: run.certain_end.max(place.certain_end),
            stretch_bytes: run.stretch_bytes,
            position_last: run.position_last,
            ..place
        };
        self.note(behind, rest.lengths().iter().copied().map(i64::from));
        Ok(Some(Look::Framed(filled_end)))
    }

    /// Writes the head of a run, and its bytes behind it or apart; the answer is where that ends.
    fn put_run(
        &self,
        index: i64,
        count: usize,
        bytes: Source<'a>,
        out: &mut Target<'_>,
        filled: usize,
        apart: &mut Apart<'a>,
    ) -> Result<usize, Fault> {
        let (size, head_at) = (bytes.len(), filled + self.cid_document.len());
        let head = RunHead { index, count, ns: monotonic_ns(), size };
        out.put(filled, self.cid_document).ok_or(fault::POSITION_OUTSIDE)?;
        head.put(out, head_at)?;
        let head_end = head_at + runs::HEAD_BYTES;
        if size >= APART_MIN {
            apart.put(head_end, bytes)?;
            return Ok(head_end);
        }
        out.copy(head_end, bytes, 0, size).ok_or(fault::POSITION_OUTSIDE)?;
        Ok(head_end + size)
    }

    /// Where the last payload ends.
    fn end_of(&self, run: &Passed) -> Option<usize> {
        let end = run.place.position_last.checked_add(HEADER_BYTES)?;
        usize::try_from(end.checked_add(*run.lengths.last()?)?).ok()
    }

    /// Takes one excerpt after the other, as many as fit, and holds them against what is recorded if
    /// they are not certain yet.
    fn pass(
        &self,
        walk: &mut Walk,
        first: (u64, i64),
        taking: &mut impl Taking,
        mut place: LanePlace,
        mut check: Option<WalkCheck>,
        out_bytes: usize,
    ) -> Result<Passed, Fault> {
        let (mut found, mut lengths, mut proved) = (first, Vec::new(), None);
        let first = taking.mark();
        let mut certain_left = check.is_some() && place.position < place.certain_end;
        let (mut is_certain, mut is_astray) = (check.is_none(), false);
        let mut stretch_start = None;
        loop {
            let (body, length) = (found.0 as i64, found.1);
            let header = body - HEADER_BYTES;
            debug_assert!(header >= place.position);
            debug_assert!(header >= place.position_last);
            debug_assert!(self.store.has(body as usize, length as usize));
            let says = check.as_mut().map_or(Says::Nothing, |it| it.pass(header, place.sequence));
            let is_end_of_certain = certain_left && header >= place.certain_end;
            certain_left &= !is_end_of_certain;
            match says {
                Says::Nothing if is_end_of_certain => {
                    place.position = header;
                    let count = lengths.len();
                    proved = (count > 0).then(|| Proved { place, count, mark: taking.mark() });
                }
                Says::Nothing => {}
                Says::Here => {
                    place.position = header;
                    let (count, mark) = (lengths.len(), taking.mark());
                    let now = taking.bytes(header);
                    if let Some(start) = stretch_start.replace(now) {
                        place.stretch_bytes = now - start;
                    }
                    proved = (count > 0).then_some(Proved { place, count, mark });
                    if count >= RUN_EXCERPTS || (count > 0 && out_bytes < now + place.stretch_bytes)
                    {
                        break;
                    }
                }
                Says::Elsewhere => {
                    is_astray = true;
                    break;
                }
            }
            if !taking.take(body, length)? {
                place.position = header;
                break;
            }
            push(&mut lengths, length)?;
            place.position_last = header;
            place.sequence = place.sequence.saturating_add(1);
            match walk.excerpt() {
                Ok(next) => found = next,
                Err(stop) => {
                    place.position = i64::try_from(walk.position).unwrap_or(i64::MAX);
                    is_certain = check.as_ref().is_none_or(|check| check.ends(stop));
                    break;
                }
            }
            if is_certain && lengths.len() >= RUN_EXCERPTS {
                place.position = found.0 as i64 - HEADER_BYTES;
                break;
            }
        }
        Ok(Passed { place, lengths, is_certain, is_astray, proved, first })
    }

    /// True when all of a run is proved: by an earlier walk, or by a walk ahead where so far too
    /// little is proved.
    fn is_proved_ahead(&self, run: &mut Passed) -> Result<bool, Fault> {
        if !run.is_astray && run.place.position <= run.place.certain_end {
            return Ok(true);
        }
        let enough = run.lengths.len() / 4 * 3;
        if run.is_astray || run.proved.is_some_and(|proved| proved.count >= enough) {
            return Ok(false);
        }
        let place = &mut run.place;
        match self.recorded.walk_ahead(self.store, place.position, place.sequence)? {
            Certain::Nothing => Ok(false),
            Certain::Before(end) => {
                place.certain_end = end;
                Ok(true)
            }
        }
    }

    /// Notes excerpts as sent, and where the lane is then.
    fn note(&self, place: LanePlace, lengths: impl ExactSizeIterator<Item = i64> + Clone) {
        let mut sent = locked(self.sent);
        debug_assert!(sent.place.position < place.position);
        debug_assert_eq!(sent.place.index.saturating_add(lengths.len() as i64), place.index);
        // the event loop may have added room meanwhile, so the room is counted down where it is
        // kept
        let count = lengths.len() as i64;
        let room_excerpts = sent.place.room_excerpts - count;
        let room_bytes = sent.place.room_bytes - lengths.clone().sum::<i64>();
        let held = sent.place.held.saturating_add(count);
        sent.place = LanePlace { room_excerpts, room_bytes, held, ..place };
        if let Some(budget) = self.budget {
            budget.take(count);
        }
        sent.index_sent = place.index.saturating_sub(1);
        sent.lengths.extend(lengths);
    }
}

fn length_of(store: Source) -> i64 {
    i64::try_from(store.len()).unwrap_or(i64::MAX)
}

/// The time now as the item behind a payload, in the width that receivers take fastest.
fn now_item() -> [u8; 9] {
    let mut item = [INT64; 9];
    if let Some(number) = item.last_chunk_mut() {
        *number = monotonic_ns().to_le_bytes();
    }
    item
}
