//! What the writers of a store file recorded beside its documents, to hold a walk against.
//!
//! A walk finds excerpts by their lengths alone, so it is believed only up to an index slot that
//! names the position it came to, or up to an end that agrees with the write position. A slot that
//! is not set says nothing. `cqrepl.queue.read.agreement` tells more, and does the same.

use crate::batch::documents::{
    Limits, Walk, WalkStop, HEADER_BYTES, LENGTH_MASK, META_DATA, NOT_COMPLETE,
};
use crate::mem::fault::Fault;
use crate::mem::Source;

const SLOT_BYTES: usize = 8;
/// How the documents of index pages begin that are found here; others are for the tailer.
const PAGE_NAME: [u8; 7] = *b"\xB9\x05index";
const PADDING: u8 = 0x8F;
const ARRAY: u8 = 0x8D;
/// The most padding before an array, which begins at a multiple of 8.
const PADDING_MAX: usize = 7;
const ARRAY_HEAD_BYTES: usize = 16;
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

    /// The number of sequences of a page.
    fn span(&self) -> i64 {
        self.count.saturating_mul(self.spacing)
    }

    /// The sequence behind those of this page.
    fn end(&self) -> i64 {
        self.sequence.saturating_add(self.span())
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

/// The position of the first slot of the index page whose header is there; `None` where no page of
/// so many slots begins as all pages do that writers make now.
fn slots_of_page(store: Source, header: usize, count: i64) -> Option<usize> {
    let word = Some(header).filter(|at| at.is_multiple_of(HEADER_BYTES));
    let word = word.and_then(|at| store.header(at))?;
    if word & META_DATA == 0 || word & NOT_COMPLETE != 0 {
        return None;
    }
    let body = header.checked_add(HEADER_BYTES)?;
    let end = body.checked_add((word & LENGTH_MASK) as usize)?;
    let padding = body.checked_add(PAGE_NAME.len()).filter(|_| store.holds(body, &PAGE_NAME))?;
    let mut code = padding..padding.saturating_add(PADDING_MAX);
    let code = code.find(|&at| store.read(at) != Some([PADDING]))?;
    let array = code.checked_add(1).filter(|_| store.read(code) == Some([ARRAY]))?;
    let slots = array.checked_add(ARRAY_HEAD_BYTES)?;
    let slots_end = slots.checked_add(usize::try_from(count).ok()?.checked_mul(SLOT_BYTES)?)?;
    let is_whole = slots_end <= end && end <= store.len();
    (is_whole && store.number(array) == Some(count)).then_some(slots)
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
    /// The slots of the index page that the walk begins in, if they are known.
    pub slots: Option<Slots>,
    /// The position of the first slot of the page of pages, which names all others of that kind.
    pub pages: Option<usize>,
}

/// What a page of pages names is no index page that is known here.
struct Unknown;

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

    /// The slots of the index page that a sequence belongs into; `None` while there is no such page.
    fn slots_at(&self, store: Source, sequence: i64) -> Result<Option<Slots>, Unknown> {
        let Some(known) = self.slots else {
            return Ok(None);
        };
        let (span, page) = (known.span(), sequence.checked_div(known.span()).unwrap_or(-1));
        let is_other = sequence < known.sequence || sequence >= known.end();
        let Some(pages) = self.pages.filter(|_| is_other && (0..known.count).contains(&page))
        else {
            return Ok(Some(known));
        };
        let at = usize::try_from(page).unwrap_or(usize::MAX).saturating_mul(SLOT_BYTES);
        let Some(position) = store.number(pages.saturating_add(at)).filter(|&at| at != 0) else {
            return Ok(None);
        };
        let position = usize::try_from(position).ok();
        let position = position.and_then(|at| slots_of_page(store, at, known.count));
        let position = position.ok_or(Unknown)?;
        Ok(Some(Slots { position, sequence: page.saturating_mul(span), ..known }))
    }

    /// The sequence behind those of the page that the next slot from this sequence on is in.
    fn page_end(&self, sequence: i64) -> i64 {
        let Some(slots) = self.slots else {
            return i64::MAX;
        };
        let next = sequence.saturating_add(slots.spacing);
        match next.checked_div(slots.span()).filter(|_| self.pages.is_some()) {
            Some(page) => page.saturating_add(1).saturating_mul(slots.span()),
            None => slots.end(),
        }
    }

    /// Walks on from the header at `position`, which is that of the excerpt `sequence` or of a
    /// document before it, to the first place behind it that agrees. Where the page of the next slot
    /// ends, the tailer has to look: the file may be long.
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
        let page_end = self.page_end(sequence);
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
        let Some(known) = self.recorded.slots else {
            return Says::Nothing;
        };
        self.to_slot = known.spacing - 1;
        let slots = match self.recorded.slots_at(self.store, sequence) {
            Ok(Some(slots)) => slots,
            Ok(None) => return Says::Nothing,
            Err(Unknown) => return Says::Elsewhere,
        };
        self.recorded.slots = Some(slots); // those that follow are in the same page
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
