//! What the writers of a store file recorded beside its documents, to hold a walk against.
//!
//! A walk finds excerpts by their lengths alone, so it is believed only up to an index slot that
//! names the position it came to, or up to an end that agrees with the write position. A slot that
//! is not set says nothing. `cqrepl.queue.read.agreement` tells more, and does the same.

use crate::batch::documents::{Limits, Walk, WalkStop, HEADER_BYTES};
use crate::mem::fault::Fault;
use crate::mem::Source;

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

    /// The sequence behind those that have a slot in this page.
    fn end(&self) -> i64 {
        self.sequence.saturating_add(self.count.saturating_mul(self.spacing))
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
    /// At least one excerpt, and all documents before this position.
    Before(i64),
    /// Not even the first excerpt, or there is none.
    Nothing,
}

/// What is recorded of one excerpt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// Nothing: it has no slot, or its slot is not set.
    Nothing,
    /// It stands here: all before it is certain.
    Here,
    /// It stands elsewhere, or is another one: the walk has gone astray.
    Elsewhere,
}

impl Recorded {
    /// Begins to hold a walk against what is recorded. To be called before the walk looks at
    /// anything: writers record a position after they have stored the header there, so the walk
    /// finds all that is recorded now. `None` when the file does not have these words.
    pub fn check<'a>(
        &self,
        store: Source<'a>,
        position: i64,
        sequence: i64,
    ) -> Option<WalkCheck<'a>> {
        let written = store.number(self.write_position)?;
        Some(WalkCheck {
            recorded: *self,
            store,
            written,
            is_passed: written < position,
            to_slot: self.slots.map_or(i64::MAX, |slots| slots.excerpts_to(sequence)),
            last: position,
        })
    }

    /// Walks on from the header at `position`, which is that of the excerpt `sequence` or of a
    /// document before it, to the first place behind it that agrees. Where the page of slots ends,
    /// the tailer has to look: the next page tells more, and the file may be long.
    pub fn walk_ahead(
        &self,
        store: Source,
        position: i64,
        sequence: i64,
    ) -> Result<Certain, Fault> {
        let Some(mut check) = self.check(store, position, sequence) else {
            return Ok(Certain::Nothing);
        };
        let end = i64::try_from(store.len()).unwrap_or(i64::MAX);
        let mut walk = Walk::new(store, position, end, FREE)?;
        let (mut count, mut certain) = (0_i64, None);
        let page_end = self.slots.map_or(i64::MAX, |slots| slots.end());
        loop {
            match walk.excerpt() {
                Ok((body, _)) => {
                    let header = body as i64 - HEADER_BYTES as i64;
                    match check.pass(header, sequence.saturating_add(count)) {
                        Says::Elsewhere => break,
                        Says::Here if count > 0 => certain = Some(header),
                        Says::Here | Says::Nothing => {}
                    }
                }
                Err(stop) => {
                    if count > 0 && check.ends(stop) {
                        certain = i64::try_from(walk.position).ok();
                    }
                    break;
                }
            }
            count += 1;
            if certain.is_some() || sequence.saturating_add(count) >= page_end {
                break;
            }
        }
        Ok(certain.map_or(Certain::Nothing, Certain::Before))
    }
}

/// A walk that is held against what is recorded.
#[derive(Clone)]
pub struct WalkCheck<'a> {
    recorded: Recorded,
    store: Source<'a>,
    /// The position recorded of the last excerpt, before the walk began.
    written: i64,
    /// True when the excerpt recorded last was passed.
    is_passed: bool,
    /// How many excerpts come before the next one that has a slot.
    to_slot: i64,
    /// The header passed last.
    last: i64,
}

impl WalkCheck<'_> {
    /// Passes the excerpt with this header.
    #[inline]
    pub fn pass(&mut self, header: i64, sequence: i64) -> Says {
        debug_assert!(header >= self.last);
        self.last = header;
        if header == self.written {
            let word = self.recorded.sequence;
            if word.is_some_and(|word| !word.agrees(self.store, header, sequence)) {
                return Says::Elsewhere;
            }
            self.is_passed = true;
        }
        self.to_slot -= 1;
        if self.to_slot >= 0 {
            return Says::Nothing;
        }
        self.look_at_slot(header, sequence)
    }

    fn look_at_slot(&mut self, header: i64, sequence: i64) -> Says {
        let Some(slots) = self.recorded.slots else {
            return Says::Nothing;
        };
        self.to_slot = slots.spacing - 1;
        match slots.position_of(self.store, sequence) {
            None => Says::Nothing,
            Some(named) if named == header => Says::Here,
            Some(_) => Says::Elsewhere,
        }
    }

    /// True when the walk has passed at least one excerpt, ended so, and what is recorded agrees
    /// that nothing is behind.
    pub fn ends(&self, stop: WalkStop) -> bool {
        let is_end = matches!(stop, WalkStop::NotReady | WalkStop::EndOfFile);
        is_end && self.is_passed && self.written <= self.last
    }

    /// True when a walk that ended so before its first excerpt, at this position, has to wait.
    pub fn waits(&self, stop: WalkStop, position: i64) -> bool {
        stop == WalkStop::NotReady && self.written < position
    }
}
