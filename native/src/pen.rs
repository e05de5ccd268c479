//! Appends to one open store file in one call: the usual case of what Python does in many.
//!
//! `cqrepl/queue/appender.py` and `storewriter.py` say what an append is, and are the reference. A
//! pen does the same steps on the same words, as long as nothing out of the ordinary is needed:
//!
//! ```text
//! take       turn 0 -> 1, lock word unlocked -> process id, start key      else CONTENDED
//! compare    append lock, listing, file size, header word at our place     else a refusal
//!            index, lengths, indexes left, index page, space reserved      else a refusal
//! lay        bodies, headers, gaps, 8 zero bytes behind                    invisible
//! publish    first header word 0 -> length                                 the run is there
//! record     write position, sequence word
//! index      slots, used, lastIndex
//! give back  start key 0, lock word process id -> unlocked, turn 0
//! ```
//!
//! Whatever does not compare changes nothing and is handed back as a `Refusal`; Python then takes
//! the long way, which knows about rolls, new pages, growth and repair. A run is appended whole or
//! not at all. Waiting is not done here either.
//!
//! The `turn` is a word of this process alone: two threads look alike in the lock word, so whoever
//! takes that one takes the turn first, Python's way too. After a fork the child finds the turns of
//! its parent's pens taken, so these refuse, for ever: the process id in them is another's.
//!
//! The place, next sequence and position of its header, is read and changed only while the lock is
//! held. So any threads may use one pen; other processes show in the header word at that place.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::fault::{self, Fault};
use crate::mem::{self, Cells, Source};
use crate::store::{Laid, Run};

const UNLOCKED: i64 = i64::MIN;
const PROCESS_MASK: i64 = 0xFFFF_FFFF;
const ARRAY_HEAD_BYTES: usize = 16;
const ARRAY_USED: usize = 8;
const LONG_BYTES: usize = 8;
const END_MARK_BYTES: usize = 8;
const OUTSIDE: Fault = Fault::Value("expected the words of a pen within the files");
const NUMBERS: Fault = Fault::Value("expected numbers of a pen that a store file can have");

/// Why nothing was appended; the numbers are those of `wire.kernel.Refusal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The write lock is held, by whomever.
    Contended = 1,
    /// The append lock is another process's.
    AppendLocked = 2,
    /// Others have appended, or changed the directory.
    Changed = 3,
    /// The file is shorter than what is mapped of it, or its size cannot be told.
    Cut = 4,
    /// The clock is in another cycle.
    Roll = 5,
    /// The first excerpt's index is not the next one.
    Index = 6,
    /// An excerpt is longer than allowed.
    TooLong = 7,
    /// The cycle has no indexes for so many.
    Full = 8,
    /// An index page is due.
    Page = 9,
    /// Space must be reserved first.
    Space = 10,
    /// A payload is no bytes in one piece; Python knows what to say.
    Unfit = 11,
    /// A header came to be at our place while the lock was ours.
    Clash = 12,
    /// Everything was appended, but the lock was taken away by force meanwhile.
    LockLost = 13,
}

/// What a pen knows of its queue and file. Positions are byte offsets in table store and file.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject))]
pub struct Terms {
    /// In the table store: of the write lock's word,
    pub lock: usize,
    /// of its start key,
    pub start: usize,
    /// of the append lock's word,
    pub append_lock: usize,
    /// and of the count of changes of the directory,
    pub changes: usize,
    /// which was this when the rest was looked at.
    pub changes_seen: i64,
    /// The process id, as it goes into the lock word.
    pub process: i64,
    /// What goes into the start key.
    pub process_start: i64,
    /// Of the open store file.
    pub descriptor: RawFd,
    /// In the store file: of the write position,
    pub write_position: usize,
    /// of the sequence word, if there is one,
    pub sequence_word: Option<usize>,
    /// and of `lastIndex`.
    pub last_index: usize,
    /// How many bits a sequence has in the sequence word.
    pub sequence_bits: u32,
    /// Of the excerpt with the sequence 0.
    pub index_first: i64,
    /// The first sequence that has no index.
    pub sequence_end: i64,
    /// Number of slots in an index page.
    pub index_count: i64,
    /// How many excerpts there are to a slot.
    pub index_spacing: i64,
    /// Position of the array of the index page that the next sequence belongs into,
    pub page: usize,
    /// the first sequence of that page,
    pub page_first: i64,
    /// and how many bytes the next page takes.
    pub page_size: usize,
    /// The longest payload.
    pub payload_max: usize,
    /// All before this position is allocated.
    pub reserved: usize,
    /// When the clock leaves the cycle, in milliseconds since 1970.
    pub cycle_end_ms: i64,
}

/// Next sequence, and position of its header. Others may look at any time.
#[derive(Debug, Default)]
pub struct Place {
    /// The sequence.
    pub sequence: AtomicI64,
    /// The position, less than 2^63.
    pub position: AtomicI64,
}

/// A pen in use: the words it needs have been looked up.
pub struct Pen<'a> {
    terms: &'a Terms,
    place: &'a Place,
    store: Cells<'a>,
    turn: &'a AtomicU32,
    lock: &'a AtomicI64,
    start: &'a AtomicI64,
    append_lock: &'a AtomicI64,
    changes: &'a AtomicI64,
    write_position: &'a AtomicI64,
    sequence_word: Option<&'a AtomicI64>,
    last_index: &'a AtomicI64,
    page_end: i64,
}

impl<'a> Pen<'a> {
    /// A pen on a mapped store file and table store; `turn` is 4 bytes of this process.
    pub fn new(
        store: Cells<'a>,
        table: Cells<'a>,
        turn: Cells<'a>,
        terms: &'a Terms,
        place: &'a Place,
    ) -> Result<Self, Fault> {
        let word = |cells: &Cells<'a>, position| cells.cell_8(position).ok_or(OUTSIDE);
        let slots = usize::try_from(terms.index_count).ok().filter(|&count| count > 0);
        let array_end = slots
            .and_then(|slots| slots.checked_mul(LONG_BYTES)?.checked_add(ARRAY_HEAD_BYTES))
            .and_then(|bytes| bytes.checked_add(terms.page))
            .ok_or(NUMBERS)?;
        let has_indexes = terms.sequence_end > 0
            && terms.index_first >= 0
            && terms.index_first.checked_add(terms.sequence_end - 1).is_some();
        if terms.page_first < 0 || terms.index_spacing < 1 || !has_indexes {
            return Err(NUMBERS);
        }
        let span = terms.index_count.saturating_mul(terms.index_spacing);
        if array_end > store.len() || !terms.page.is_multiple_of(LONG_BYTES) {
            return Err(OUTSIDE);
        }
        if terms.reserved > store.len() {
            return Err(OUTSIDE);
        }
        word(&store, terms.page)?; // it may be written
        Ok(Pen {
            terms,
            place,
            store,
            turn: turn.cell_4(0).ok_or(OUTSIDE)?,
            lock: word(&table, terms.lock)?,
            start: word(&table, terms.start)?,
            append_lock: word(&table, terms.append_lock)?,
            changes: word(&table, terms.changes)?,
            write_position: word(&store, terms.write_position)?,
            sequence_word: terms.sequence_word.map(|at| word(&store, at)).transpose()?,
            last_index: word(&store, terms.last_index)?,
            page_end: terms.page_first.saturating_add(span),
        })
    }

    /// The index of the next excerpt, as of the last append.
    pub fn next_index(&self) -> i64 {
        self.terms.index_first.wrapping_add(self.place.sequence.load(Ordering::Relaxed))
    }

    /// The position of its header.
    pub fn position(&self) -> i64 {
        self.place.position.load(Ordering::Relaxed)
    }

    /// True when the clock, or the time that is given, is behind the end of the cycle.
    pub fn has_rolled(&self, now_ms: Option<i64>) -> bool {
        now_ms.unwrap_or_else(clock_ms) >= self.terms.cycle_end_ms
    }

    /// Appends excerpts `start` to `start + count` of a batch, the first at exactly this index.
    ///
    /// All or none; how many, and why not. `LockLost` comes with all.
    pub fn append(
        &self,
        data: Source,
        offsets: &[i64],
        lengths: &[i64],
        start: usize,
        count: usize,
        index: i64,
    ) -> Result<(usize, Option<Refusal>), Fault> {
        let start = i64::try_from(start).map_err(|_| fault::PART_OUTSIDE)?;
        let part = i64::try_from(count).map_err(|_| fault::PART_OUTSIDE)?;
        let run = Run::new(data, offsets.into(), lengths.into(), start, part)?;
        let (_, refusal) = self.append_run(&run, Some(index))?;
        let is_done = matches!(refusal, None | Some(Refusal::LockLost));
        Ok((if is_done { count } else { 0 }, refusal))
    }

    /// Appends a run at this index, or wherever the end is; the index of its last excerpt.
    pub fn append_run(
        &self,
        run: &Run,
        index: Option<i64>,
    ) -> Result<(i64, Option<Refusal>), Fault> {
        let held = match Held::take(self) {
            Ok(held) => held,
            Err(refusal) => return Ok((0, Some(refusal))),
        };
        let (sequence, position) = match self.room_for(run, index) {
            Ok(place) => place,
            Err(refusal) => return Ok((0, Some(refusal))),
        };
        let header = self.store.cell_4(position).ok_or(fault::POSITION_OUTSIDE)?;
        if header.load(Ordering::Acquire) != 0 {
            return Ok((0, Some(Refusal::Changed)));
        }
        let target = self.store.target().ok_or(OUTSIDE)?;
        let laid = run.lay(target, position as i64, sequence, self.terms.index_spacing)?;
        let order = Ordering::SeqCst;
        if header.compare_exchange(0, laid.first_word.to_le(), order, order).is_err() {
            return Ok((0, Some(Refusal::Clash)));
        }
        let next = sequence + run.count() as i64; // at most the end of the page
        self.place.sequence.store(next, Ordering::Relaxed);
        self.place.position.store(laid.end as i64, Ordering::Relaxed);
        self.record(&laid, next - 1);
        self.index(&laid);
        let refusal = if held.give_back() { None } else { Some(Refusal::LockLost) };
        Ok((self.terms.index_first + (next - 1), refusal))
    }

    /// Where the run goes, as everything is as usual. The lock is held.
    fn room_for(&self, run: &Run, index: Option<i64>) -> Result<(i64, usize), Refusal> {
        let terms = self.terms;
        let sequence = self.place.sequence.load(Ordering::Relaxed);
        let position = self.place.position.load(Ordering::Relaxed);
        let position = usize::try_from(position).map_err(|_| Refusal::Space)?;
        let holder = self.append_lock.load(Ordering::SeqCst);
        if holder != UNLOCKED && holder & PROCESS_MASK != terms.process {
            return Err(Refusal::AppendLocked);
        }
        if self.changes.load(Ordering::Acquire) != terms.changes_seen {
            return Err(Refusal::Changed);
        }
        // touching a page behind the end of a file that was cut kills the process
        if mem::file_size(terms.descriptor).is_none_or(|size| size < self.store.len() as u64) {
            return Err(Refusal::Cut);
        }
        if index.is_some_and(|index| index != terms.index_first.wrapping_add(sequence)) {
            return Err(Refusal::Index);
        }
        if run.longest > terms.payload_max {
            return Err(Refusal::TooLong);
        }
        let count = run.count() as i64;
        if count > terms.sequence_end.saturating_sub(sequence) {
            return Err(Refusal::Full);
        }
        // the excerpt that begins a page ends a run, and makes the page: not here
        if sequence < terms.page_first || count > self.page_end.saturating_sub(sequence) {
            return Err(Refusal::Page);
        }
        // as `StoreWriter` reckons, so that both reserve at the same excerpt
        let pages = if sequence + count == self.page_end { 2 } else { 1 };
        let end = position
            .saturating_add(run.size_bound())
            .saturating_add(terms.page_size.saturating_mul(pages))
            .saturating_add(END_MARK_BYTES);
        if end > terms.reserved {
            return Err(Refusal::Space);
        }
        Ok((sequence, position))
    }

    /// The last excerpt, for whoever opens the file next.
    fn record(&self, laid: &Laid, sequence: i64) {
        raise(self.write_position, laid.last as i64);
        if let Some(word) = self.sequence_word {
            let bits = self.terms.sequence_bits;
            let mask = 1_u64.checked_shl(bits).map_or(u64::MAX, |bit| bit - 1);
            let upper = (laid.last as u64).checked_shl(bits).unwrap_or(0);
            let lower = sequence.cast_unsigned() & mask;
            word.store(upper.wrapping_add(lower).cast_signed(), Ordering::SeqCst);
        }
    }

    /// Puts those of the run into the index that belong there; the page has been compared.
    fn index(&self, laid: &Laid) {
        let terms = self.terms;
        for &(sequence, position) in &laid.marks {
            let slot = (sequence - terms.page_first) / terms.index_spacing;
            let at = terms.page + ARRAY_HEAD_BYTES + slot as usize * LONG_BYTES;
            if let Some(cell) = self.store.cell_8(at) {
                let order = Ordering::SeqCst;
                if cell.compare_exchange(0, position as i64, order, order).is_err() {
                    // the same, or damage: readers would refuse the excerpt
                    cell.store(position as i64, order);
                }
            }
            if let Some(used) = self.store.cell_8(terms.page + ARRAY_USED) {
                raise(used, slot + 1);
            }
        }
        if let Some((sequence, _)) = laid.marks.last() {
            raise(self.last_index, sequence.saturating_add(terms.index_spacing));
        }
    }
}

/// Makes a word at least this.
fn raise(word: &AtomicI64, value: i64) {
    word.fetch_max(value, Ordering::SeqCst);
}

/// Milliseconds since 1970.
fn clock_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The queue's write lock, and this process's turn at it; given back in any case.
struct Held<'p, 'a>(&'p Pen<'a>);

impl<'p, 'a> Held<'p, 'a> {
    fn take(pen: &'p Pen<'a>) -> Result<Self, Refusal> {
        let order = Ordering::SeqCst;
        if pen.turn.compare_exchange(0, 1, order, order).is_err() {
            return Err(Refusal::Contended);
        }
        if pen.lock.compare_exchange(UNLOCKED, pen.terms.process, order, order).is_err() {
            pen.turn.store(0, Ordering::Release);
            return Err(Refusal::Contended);
        }
        // it tells who holds the lock, never whether it is held
        pen.start.store(pen.terms.process_start, Ordering::Relaxed);
        Ok(Held(pen))
    }

    /// False when somebody has taken the lock away.
    fn give_back(self) -> bool {
        let was_ours = self.release();
        std::mem::forget(self);
        was_ours
    }

    fn release(&self) -> bool {
        let (pen, order) = (self.0, Ordering::SeqCst);
        let mut is_ours = pen.lock.load(order) == pen.terms.process;
        if is_ours {
            pen.start.store(0, Ordering::Relaxed);
            is_ours = pen.lock.compare_exchange(pen.terms.process, UNLOCKED, order, order).is_ok();
        }
        pen.turn.store(0, Ordering::Release);
        is_ours
    }
}

impl Drop for Held<'_, '_> {
    fn drop(&mut self) {
        self.release();
    }
}
