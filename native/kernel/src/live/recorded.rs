//! What the writers of a store file recorded beside its documents, to hold a walk against.
//!
//! A walk finds excerpts by their lengths alone, so it is believed only up to an index slot that
//! names the position it came to, or up to an end that agrees with the write position. A slot that
//! is not set says nothing. `cqrepl.queue.read.agreement` tells more, and does the same.

use crate::batch::documents::{Limits, Walk, WalkStop, HEADER_BYTES};
use crate::mem::fault::Fault;
use crate::mem::Source;

/// After so many excerpts a walk ahead ends at the last slot that agreed.
const RUN_EXCERPTS: i64 = 1024;
const SLOT_BYTES: usize = 8;
const FREE: Limits = Limits { count: i64::MAX, bytes: i64::MAX, payload: i64::MAX };

/// The slots of the index page that the excerpts of a lane fall into.
#[derive(Clone, Copy)]
pub struct Slots {
    /// The position of the first slot.
    pub position: usize,
    /// The sequence that the first slot is for.
    pub sequence: i64,
    /// The number of slots.
    pub count: i64,
    /// The number of sequences from one slot to the next.
    pub spacing: i64,
}

impl Slots {
    /// How many excerpts from this sequence on have no slot, up to the first one that has a slot.
    fn excerpts_to(&self, sequence: i64) -> i64 {
        (self.spacing - sequence % self.spacing) % self.spacing
    }

    /// The position that the slot of this sequence names; `None` when it is not set, or stands in
    /// another page.
    fn position_of(&self, store: Source, sequence: i64) -> Option<i64> {
        let slot = sequence.saturating_sub(self.sequence) / self.spacing;
        if !(0..self.count).contains(&slot) {
            return None;
        }
        let slot = usize::try_from(slot).unwrap_or(usize::MAX);
        let at = self.position.saturating_add(slot.saturating_mul(SLOT_BYTES));
        store.number(at).filter(|&found| found != 0)
    }
}

/// The word that tells the sequence of the last excerpt.
#[derive(Clone, Copy)]
pub struct SequenceWord {
    /// The position of the word.
    pub position: usize,
    /// How many of its lower bits are the sequence's. The upper ones are the excerpt's position.
    pub bits: u32,
}

impl SequenceWord {
    /// False when the word belongs to the excerpt with this header, and names another sequence.
    fn agrees(&self, store: Source, header: i64, sequence: i64) -> bool {
        let Some(word) = store.number(self.position) else {
            return false;
        };
        let mask = 1_i64.checked_shl(self.bits).unwrap_or(0).wrapping_sub(1);
        let shifted = header.checked_shl(self.bits).unwrap_or(0);
        (word ^ shifted) & !mask != 0 || (word ^ sequence) & mask == 0
    }
}

/// Where a store file tells what its writers recorded.
#[derive(Clone, Copy)]
pub struct Recorded {
    /// The position of the word in which writers record the position of the last excerpt.
    pub write_position: usize,
    /// The word beside it, which very old files do not have.
    pub sequence: Option<SequenceWord>,
    /// The slots of the index page that the walk is in, if they are known.
    pub slots: Option<Slots>,
}

/// What a walk ahead has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certain {
    /// There is no excerpt yet.
    Nothing,
    /// At least one excerpt, and all documents before this position.
    Before(i64),
    /// Not even the first excerpt: the tailer has to look at it.
    Unusual,
}

impl Recorded {
    /// Walks on from the header at `position`, which is that of the excerpt `sequence` or of a
    /// document before it, as far as what was recorded agrees.
    pub fn walk_ahead(
        &self,
        store: Source,
        position: i64,
        sequence: i64,
    ) -> Result<Certain, Fault> {
        // writers record a position after they have stored the header there: as this is read
        // before the walk, the walk finds the excerpt
        let Some(recorded) = store.number(self.write_position) else {
            return Ok(Certain::Unusual);
        };
        let end = i64::try_from(store.len()).unwrap_or(i64::MAX);
        let mut walk = Walk::new(store, position, end, FREE)?;
        let (mut first, mut last, mut count, mut certain) = (None, position, 0_i64, position);
        let mut is_passed = recorded < position;
        let mut to_slot = self.slots.map_or(i64::MAX, |slots| slots.excerpts_to(sequence));
        let stop = loop {
            let header = match walk.excerpt() {
                Ok((body, _)) => body as i64 - HEADER_BYTES as i64,
                Err(stop) => break Some(stop),
            };
            let at = sequence.saturating_add(count);
            if header == recorded {
                if self.sequence.is_some_and(|word| !word.agrees(store, header, at)) {
                    break None;
                }
                is_passed = true;
            }
            if to_slot == 0 {
                let slot = self.slots.and_then(|slots| slots.position_of(store, at));
                match slot {
                    Some(named) if named != header => break None,
                    Some(_) => certain = header,
                    None => {}
                }
                to_slot = self.slots.map_or(i64::MAX, |slots| slots.spacing);
                if count >= RUN_EXCERPTS && slot.is_some() {
                    break None;
                }
            }
            first = first.or(Some(header));
            last = header;
            count += 1;
            to_slot -= 1;
        };
        if matches!(stop, Some(WalkStop::NotReady | WalkStop::EndOfFile)) {
            if first.is_none() && recorded < position {
                let is_end = stop == Some(WalkStop::EndOfFile);
                return Ok(if is_end { Certain::Unusual } else { Certain::Nothing });
            }
            if is_passed && recorded <= last {
                certain = i64::try_from(walk.position).unwrap_or(i64::MAX);
            }
        }
        Ok(match first {
            Some(first) if first < certain => Certain::Before(certain),
            _ => Certain::Unusual,
        })
    }
}
