//! One queue in the pump of a sink: frames become excerpts at their indexes, and are acknowledged.
//!
//! The lane does the usual case and judges nothing: whole `re` frames and runs, each at the next index,
//! into a file with room. It leaves all else where it stands, from a heartbeat to the end of a cycle.

use std::sync::{Arc, Mutex};

use crate::append::clock::monotonic_ns;
use crate::append::pen::Pen;
use crate::append::terms::Refusal;
use crate::batch::frames::Scan;
use crate::batch::runs::{MeasuredRuns, RunHead, HEAD_BYTES};
use crate::live::acks;
use crate::live::board::{APPENDED, LEVELS, NOTHING};
use crate::live::control::{locked, PumpError};
use crate::live::lane_moves::{LaneMoves, SinkLaneMove, SinkLaneState};
use crate::live::others::document_end;
use crate::live::stored_bell::StoredBell;
use crate::mem::Source;

/// The nano time of what answers no message of its own.
const NO_TIME: i64 = 0;

/// What a lane has stored since the event loop asked last, and what both have to say of it.
#[derive(Default)]
pub struct Stored {
    /// The number of excerpts.
    pub excerpts: i64,
    /// The number of payload bytes.
    pub bytes: i64,
    /// The entry of each batch, as `cqrepl.replicator.queuestate.logs` has it, if the lane is logged.
    pub entries: Vec<u8>,
    /// The bell that is told as soon as anything is stored, and under which number.
    pub awaited: Option<(Arc<StoredBell>, u64)>,
    /// The last index that was acknowledged, in this lane or before, or that was there before.
    pub acknowledged: i64,
    /// Up to which index each level is true here, for the source to be told; no use is made of the
    /// first one.
    pub reached: [i64; LEVELS],
    /// And up to which index that was said.
    pub said: [i64; LEVELS],
}

impl Stored {
    /// Nothing stored yet, nothing said; what was acknowledged before.
    pub fn after(acknowledged: i64) -> Self {
        let none = [NOTHING; LEVELS];
        Stored { acknowledged, reached: none, said: none, ..Stored::default() }
    }

    /// Up to which index a level is to be said now; `None` when there is nothing new.
    fn to_say(&self, level: usize) -> Option<i64> {
        let index = self.acknowledged.min(*self.reached.get(level)?);
        (index > *self.said.get(level)?).then_some(index)
    }
}

/// One queue in the pump of a sink.
pub struct SinkLane<'a> {
    /// The cid document that selects the handler.
    pub cid_document: &'a [u8],
    /// The pen that writes the store file.
    pub pen: Pen<'a>,
    /// The length of the longest excerpt that is taken.
    pub payload_max: i64,
    /// True when the source may send runs.
    pub has_runs: bool,
    /// True when the source wants to know what is stored.
    pub is_acknowledged: bool,
    /// True when the time at which each batch was stored is to be logged.
    pub is_logged: bool,
    /// What was stored, for the event loop, which asks while the pump runs.
    pub stored: &'a Mutex<Stored>,
    /// The index and the nano time that are to be acknowledged.
    pub due: Option<(i64, i64)>,
    /// In which state it is.
    pub moves: &'a LaneMoves<SinkLaneState>,
}

/// What a lane has done with the bytes that begin with its cid document.
pub enum Next {
    /// The frames up to here were stored.
    Taken(usize),
    /// The frame is cut off: more bytes are needed.
    Cut,
    /// Something else stands there.
    Other,
    /// The pen refuses.
    Unusual,
}

impl SinkLane<'_> {
    /// Stores the frames at the start of `data`, which begins with the lane's cid document.
    pub fn store(&mut self, data: &[u8]) -> Result<Next, PumpError> {
        if self.has_runs && RunHead::stands_at(data.into(), self.cid_document.len()) {
            return self.store_runs(data);
        }
        let mut scan = Scan::new(data.into(), 0, self.cid_document, self.payload_max)?;
        while scan.step(usize::MAX)? {}
        let count = scan.offsets.len();
        if count == 0 {
            return Ok(match document_end(data, self.cid_document.len()) {
                None => Next::Cut,
                Some(_) => Next::Other,
            });
        }
        debug_assert_eq!(count, scan.lengths.len());
        debug_assert!(scan.end <= data.len());
        debug_assert!(scan.lengths.iter().all(|&length| length <= self.payload_max));
        let source = Source::from(data);
        let (stored, refusal) =
            self.pen.append(source, &scan.offsets, &scan.lengths, 0, count, scan.index_first)?;
        if stored == 0 {
            return Ok(Next::Unusual);
        }
        debug_assert_eq!(stored, count, "a batch is appended as a whole or not at all");
        self.note(scan.index_first, count, scan.lengths.iter().sum(), scan.ns_last);
        // the lock was taken away by force: the appender finds that out when it looks next
        Ok(if refusal == Some(Refusal::LockLost) { Next::Unusual } else { Next::Taken(scan.end) })
    }

    /// Stores the runs at the start of `data`, which begins with the lane's cid document: all that
    /// follow one another, as a batch. One that is not as it should be is for the event loop to
    /// refuse, once those before it are stored.
    fn store_runs(&mut self, data: &[u8]) -> Result<Next, PumpError> {
        if document_end(data, self.cid_document.len()).is_none() {
            return Ok(Next::Cut);
        }
        let data = Source::from(data);
        let Some((head, mut runs)) = self.run_at(data, 0)? else {
            return Ok(Next::Unusual);
        };
        let (mut end, mut ns) = (self.end_of(0, head), head.ns);
        while let Some((next, run)) = self.run_at(data, end)? {
            if next.index != head.index + runs.count as i64 {
                break;
            }
            runs.join(run)?;
            (end, ns) = (self.end_of(end, next), next.ns);
        }
        let (stored, refusal) = self.pen.append_runs(&runs, head.index)?;
        if stored == 0 {
            return Ok(Next::Unusual);
        }
        debug_assert_eq!(stored, runs.count, "runs are appended as a whole or not at all");
        self.note(head.index, runs.count, runs.payload_bytes as i64, ns);
        Ok(if refusal == Some(Refusal::LockLost) { Next::Unusual } else { Next::Taken(end) })
    }

    /// The run whose cid document stands at `at`; `None` where there is none, or not all of it, or
    /// it is not as it should be.
    fn run_at<'d>(
        &self,
        data: Source<'d>,
        at: usize,
    ) -> Result<Option<(RunHead, MeasuredRuns<'d>)>, PumpError> {
        let head_at = at + self.cid_document.len();
        if !data.holds(at, self.cid_document) {
            return Ok(None);
        }
        let Some(head) = RunHead::read(data, head_at) else {
            return Ok(None);
        };
        let (sequence, spacing) = self.pen.slots_from(head.index);
        let bytes = data.part(head_at + HEAD_BYTES, head.size).filter(|_| sequence >= 0);
        let Some(bytes) = bytes else {
            return Ok(None);
        };
        let run = MeasuredRuns::new(bytes, head.count, self.payload_max, sequence, spacing)?;
        Ok(run.ok().map(|run| (head, run)))
    }

    /// Where the document ends of the run whose cid document stands at `at`.
    fn end_of(&self, at: usize, head: RunHead) -> usize {
        at + self.cid_document.len() + HEAD_BYTES + head.size
    }

    /// Notes what was stored, and that it is to be acknowledged.
    fn note(&mut self, index_first: i64, count: usize, bytes: i64, ns: i64) {
        let now_ns = if self.is_logged { monotonic_ns() } else { 0 };
        let index_last = index_first + count as i64 - 1;
        debug_assert!(self.due.is_none_or(|(index, _)| index < index_first));
        if self.due.replace((index_last, ns)).is_none() {
            self.moves.make(SinkLaneMove::Store);
        }
        let mut noted = locked(self.stored);
        noted.excerpts += count as i64;
        noted.bytes += bytes;
        if let Some((bell, number)) = &noted.awaited {
            bell.tell(*number, index_last);
        }
        if self.is_logged {
            for number in [index_last, ns, now_ns, count as i64, bytes] {
                noted.entries.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    /// Puts the acknowledgement that is due behind what is to be sent, and behind that which levels
    /// were reached of what was acknowledged. What a removed file holds is
    /// lost: the next append finds that out, or who watches the names of the files.
    pub fn acknowledge(&mut self, documents: &mut Vec<u8>) {
        let mut stored = locked(self.stored);
        if let Some((index, ns)) = self.due.take() {
            let is_lost = self.is_acknowledged && !self.pen.is_file_whole();
            let made = if is_lost { SinkLaneMove::Disown } else { SinkLaneMove::Acknowledge };
            self.moves.make(made);
            if self.is_acknowledged && !is_lost {
                acks::write(documents, self.cid_document, APPENDED, index, ns);
                stored.acknowledged = stored.acknowledged.max(index);
            }
        }
        for level in APPENDED + 1..LEVELS {
            if let Some(index) = stored.to_say(level) {
                acks::write(documents, self.cid_document, level, index, NO_TIME);
                if let Some(said) = stored.said.get_mut(level) {
                    *said = index;
                }
            }
        }
    }

    /// True when something is to be said: what was stored, or has reached a level.
    pub fn has_word(&self) -> bool {
        let stored = locked(self.stored);
        self.due.is_some() || (APPENDED + 1..LEVELS).any(|level| stored.to_say(level).is_some())
    }
}
