//! Appends to one open store file in one call: the usual case of what Python does in many.
//!
//! `cqrepl/queue/write/appender.py` and `storewriter.py` say what an append is, and are the reference. A
//! pen does the same steps on the same words, as long as nothing out of the ordinary is needed:
//!
//! ```text
//! take       turn 0 -> 1, lock word unlocked -> process id, start key      else CONTENDED
//! compare    append lock, listing, file size                               else a refusal
//! catch up   over what other writers have appended to this index page, recording it
//! compare    index, lengths, indexes left, index page, space reserved      else a refusal
//!            (space may be allocated here, where the caller has time)
//! lay        bodies, headers, gaps, 8 zero bytes behind                    invisible
//! publish    first header word 0 -> length                                 the batch is there
//! record     write position, sequence word
//! page       behind the excerpt that begins it, if the file is kept open; then the rest of the batch
//! index      slots, used, lastIndex
//! give back  start key 0, lock word process id -> unlocked, turn 0
//! ```
//!
//! If a comparison fails, the pen answers with a `Refusal` and appends nothing: a batch goes in
//! whole or not at all. What was recorded for other writers stays, as Python's way records it too.
//! Python then goes the long way, which knows about rolls, new pages, growth, repair, and waiting.
//!
//! The `turn` is a word of this process alone. Two threads look alike in the lock word, so a thread
//! takes the turn before it takes the lock; Python's way does so too. After a fork the child
//! process must not use the pens of its parent: it finds their turns taken, so they refuse for
//! ever. The process id in these pens is that of the parent.
//!
//! The place of a pen, which is the next sequence and the position of its header, is read and
//! changed only while the lock is held. So any threads may use one pen. What other processes have
//! appended shows in the header word at that place.

use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::append::clock;
use crate::append::store_words::{IndexPage, StoreWords};
use crate::append::terms::{Refusal, Terms};
use crate::batch::apart::{Apart, APART_MIN};
use crate::batch::documents::{Limits, Walk, WalkStop, BODY_MAX, HEADER_BYTES, META_DATA};
use crate::batch::layout::{self, Laid, MeasuredBatch};
use crate::batch::runs::MeasuredRuns;
use crate::mem::fault::{self, Fault};
use crate::mem::lock::{Lock, UNLOCKED};
use crate::mem::{self, Cells, Source, Target};

const PROCESS_MASK: i64 = 0xFFFF_FFFF;
const END_MARK_BYTES: usize = 8;
/// A pen walks over so many excerpts of other writers.
const CAUGHT_MAX: i64 = 4096;
/// From this size on, a batch is written to the file where that may be done; else its pages are
/// brought into memory before.
const LONG_BATCH_BYTES: usize = 32 << 10;
/// And so many bytes ahead of the batch. More at once holds up one batch in many for longer, and
/// has left the processor's caches by the time that it is written.
const POPULATED_BYTES: usize = 128 << 10;
/// A batch that is longer is stored through the mapping.
const IMAGE_BYTES_MAX: usize = 1 << 20;
/// The longest step in which space is allocated. A file system in memory clears it all at once, for
/// half a millisecond each MiB.
const STEP_MAX: usize = 4 << 20;
/// Steps double as often as that: from one byte on they have reached the longest by then.
const DOUBLINGS_MAX: u32 = STEP_MAX.ilog2();
const OUTSIDE: Fault = Fault::Value("expected the words of a pen within the files");
/// An index page up to the padding before its array, and the code of that.
const PAGE_NAME: [u8; 7] = *b"\xB9\x05index";
const PADDING: u8 = 0x8F;
const ARRAY: u8 = 0x8D;
const ARRAY_HEAD_BYTES: usize = 16;
const LONG_BYTES: usize = 8;
/// What an index page takes beside its slots, with the zeros behind it, at most.
const PAGE_BYTES: usize =
    HEADER_BYTES + PAGE_NAME.len() + 1 + 4 + ARRAY_HEAD_BYTES + END_MARK_BYTES;
const NUMBERS: Fault = Fault::Value("expected numbers of a pen that a store file can have");

/// True for a batch of that size that is written to the file, where that may be done.
pub fn is_written(size: usize) -> bool {
    (LONG_BATCH_BYTES..=IMAGE_BYTES_MAX).contains(&size)
}

thread_local! {
    /// The memory in which a batch is put together.
    static IMAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The place where the next excerpt goes. Other threads may look at it at any time.
#[derive(Debug, Default)]
pub struct PenPlace {
    /// The next sequence.
    pub sequence: AtomicI64,
    /// The position of its header, less than 2^63.
    pub position: AtomicI64,
    /// Pages before this position have been brought into memory for a long batch.
    pub populated: AtomicI64,
    /// All before this position has been allocated by the pen itself.
    pub reserved: AtomicI64,
    /// The number of steps in which the pen has allocated space.
    pub steps: AtomicU32,
    /// The array of the index page that the pen has added last, and the first sequence of that page;
    /// 0 while it is in the page that it was made for.
    pub page: AtomicI64,
    /// See `page`.
    pub page_first: AtomicI64,
}

impl PenPlace {
    fn load(&self) -> (i64, i64) {
        (self.sequence.load(Ordering::Relaxed), self.position.load(Ordering::Relaxed))
    }

    fn store(&self, sequence: i64, position: i64) {
        debug_assert!(self.sequence.load(Ordering::Relaxed) < sequence);
        debug_assert!(self.position.load(Ordering::Relaxed) < position);
        self.sequence.store(sequence, Ordering::Relaxed);
        self.position.store(position, Ordering::Relaxed);
    }
}

/// What is appended.
#[derive(Clone, Copy)]
enum Content<'c, 'd> {
    /// Excerpts that are laid one by one.
    Batch(&'c MeasuredBatch<'d>),
    /// Excerpts that stand as they are to be stored.
    Runs(&'c MeasuredRuns<'d>),
}

impl Content<'_, '_> {
    fn count(self) -> usize {
        match self {
            Content::Batch(batch) => batch.count(),
            Content::Runs(runs) => runs.count,
        }
    }

    fn longest(self) -> usize {
        match self {
            Content::Batch(batch) => batch.longest,
            Content::Runs(runs) => runs.longest,
        }
    }

    /// The bytes that are stored.
    fn size(self) -> usize {
        match self {
            Content::Batch(batch) => batch.size,
            Content::Runs(runs) => runs.size(),
        }
    }

    /// An upper bound of these, by which both ways of storing reserve space at the same excerpt.
    fn size_bound(self) -> usize {
        match self {
            Content::Batch(batch) => batch.size_bound(),
            Content::Runs(runs) => layout::size_bound(runs.count, runs.payload_bytes),
        }
    }
}

/// Excerpts that are split where an index page goes between them.
enum Split<'d> {
    Batch(MeasuredBatch<'d>, Option<MeasuredBatch<'d>>),
    Runs(MeasuredRuns<'d>, Option<MeasuredRuns<'d>>),
}

impl<'d> Split<'d> {
    /// The first `count` excerpts, and the others, if there are any.
    fn of(
        content: Content<'_, 'd>,
        count: usize,
        sequence: i64,
        spacing: i64,
    ) -> Result<Self, Fault> {
        Ok(match content {
            Content::Batch(batch) => {
                let (before, behind) = batch.split(count)?;
                Split::Batch(before, behind)
            }
            Content::Runs(runs) => {
                let (before, behind) = runs.split(count, sequence, spacing)?;
                Split::Runs(before, behind)
            }
        })
    }

    fn before(&self) -> Content<'_, 'd> {
        match self {
            Split::Batch(before, _) => Content::Batch(before),
            Split::Runs(before, _) => Content::Runs(before),
        }
    }

    fn behind(&self) -> Option<Content<'_, 'd>> {
        match self {
            Split::Batch(_, behind) => behind.as_ref().map(Content::Batch),
            Split::Runs(_, behind) => behind.as_ref().map(Content::Runs),
        }
    }
}

/// A pen in use: the words that it needs have been looked up.
pub struct Pen<'a> {
    terms: &'a Terms,
    place: &'a PenPlace,
    store: Cells<'a>,
    lock: Lock<'a>,
    append_lock: &'a AtomicI64,
    changes: &'a AtomicI64,
    words: StoreWords<'a>,
}

impl<'a> Pen<'a> {
    /// A pen on a mapped store file and a mapped table store; `turn` is 4 bytes of this process.
    pub fn new(
        store: Cells<'a>,
        table: Cells<'a>,
        turn: Cells<'a>,
        terms: &'a Terms,
        place: &'a PenPlace,
    ) -> Result<Self, Fault> {
        let word = |cells: &Cells<'a>, position| cells.cell_8(position).ok_or(OUTSIDE);
        let has_indexes = terms.sequence_end > 0
            && terms.index_first >= 0
            && terms.index_first.checked_add(terms.sequence_end - 1).is_some();
        if !has_indexes {
            return Err(NUMBERS);
        }
        if terms.reserved > store.len() {
            return Err(OUTSIDE);
        }
        let (page, first, spacing) = (terms.page, terms.page_first, terms.index_spacing);
        IndexPage::new(store, page, terms.index_count, first, spacing).ok_or(OUTSIDE)?;
        let words = StoreWords {
            write_position: word(&store, terms.write_position)?,
            sequence_word: terms.sequence_word.map(|at| word(&store, at)).transpose()?,
            sequence_bits: terms.sequence_bits,
            last_index: word(&store, terms.last_index)?,
        };
        Ok(Pen {
            terms,
            place,
            store,
            lock: Lock {
                turn: turn.cell_4(0).ok_or(OUTSIDE)?,
                word: word(&table, terms.lock)?,
                start: word(&table, terms.start)?,
                process: terms.process,
                process_start: terms.process_start,
            },
            append_lock: word(&table, terms.append_lock)?,
            changes: word(&table, terms.changes)?,
            words,
        })
    }

    /// The index page that the pen is in, and the first sequence of that one. The lock is held.
    fn page(&self) -> Result<(IndexPage<'a>, i64), Fault> {
        let (page, first) = match self.place.page.load(Ordering::Relaxed) {
            0 => (self.terms.page, self.terms.page_first),
            page => (
                usize::try_from(page).map_err(|_| OUTSIDE)?,
                self.place.page_first.load(Ordering::Relaxed),
            ),
        };
        let (count, spacing) = (self.terms.index_count, self.terms.index_spacing);
        Ok((IndexPage::new(self.store, page, count, first, spacing).ok_or(OUTSIDE)?, first))
    }

    /// The number of sequences of an index page.
    fn span(&self) -> i64 {
        self.terms.index_count.saturating_mul(self.terms.index_spacing)
    }

    /// The index of the next excerpt, as of the last append.
    pub fn next_index(&self) -> i64 {
        self.terms.index_first.wrapping_add(self.place.sequence.load(Ordering::Relaxed))
    }

    /// The position of the header of the next excerpt, as of the last append.
    pub fn position(&self) -> i64 {
        self.place.position.load(Ordering::Relaxed)
    }

    /// The position before which all space is allocated.
    pub fn reserved(&self) -> usize {
        let grown = self.place.reserved.load(Ordering::Relaxed);
        usize::try_from(grown).unwrap_or(0).max(self.terms.reserved)
    }

    /// False when the file was removed, so that what is appended is lost, or was cut: a store to a
    /// page behind its end kills the process.
    pub fn is_file_whole(&self) -> bool {
        let size = mem::named_file_size(self.terms.descriptor);
        size.is_some_and(|size| size >= self.store.len() as u64)
    }

    /// True when the clock, or the time that is given, is behind the end of the cycle.
    pub fn has_rolled(&self, now_ms: Option<i64>) -> bool {
        now_ms.unwrap_or_else(clock::wall_ms) >= self.terms.cycle_end_ms
    }

    /// Appends the excerpts `start` to `start + count` of a batch, the first one at exactly this
    /// index.
    ///
    /// The answer is how many were appended, which is all or none, and why not. `LockLost` comes
    /// with all of them. Space is allocated if need be.
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
        let batch = MeasuredBatch::new(data, offsets.into(), lengths.into(), start, part)?;
        let (_, refusal) = self.append_batch(&batch, Some(index), true)?;
        let is_done = matches!(refusal, None | Some(Refusal::LockLost));
        Ok((if is_done { count } else { 0 }, refusal))
    }

    /// Appends a batch at this index, or wherever the end is; the answer is the index of its last
    /// excerpt.
    ///
    /// With `is_kept_open` the file stays open meanwhile, and the caller has the time that a disk
    /// takes.
    pub fn append_batch(
        &self,
        batch: &MeasuredBatch,
        index: Option<i64>,
        is_kept_open: bool,
    ) -> Result<(i64, Option<Refusal>), Fault> {
        self.append_content(Content::Batch(batch), index, is_kept_open)
    }

    /// The sequence of an index, and the number of excerpts to an index slot.
    pub fn slots_from(&self, index: i64) -> (i64, i64) {
        (index.wrapping_sub(self.terms.index_first), self.terms.index_spacing)
    }

    /// Appends runs at this index, with the bytes that they have; the answer is that of `append`.
    /// They were measured with what `slots_from` gives for this index.
    pub fn append_runs(
        &self,
        runs: &MeasuredRuns,
        index: i64,
    ) -> Result<(usize, Option<Refusal>), Fault> {
        let (_, refusal) = self.append_content(Content::Runs(runs), Some(index), true)?;
        let is_done = matches!(refusal, None | Some(Refusal::LockLost));
        Ok((if is_done { runs.count } else { 0 }, refusal))
    }

    fn append_content(
        &self,
        content: Content,
        index: Option<i64>,
        is_kept_open: bool,
    ) -> Result<(i64, Option<Refusal>), Fault> {
        let Some(held) = self.lock.take() else {
            return Ok((0, Some(Refusal::Contended)));
        };
        if let Some(refusal) = self.refusal_of_others() {
            return Ok((0, Some(refusal)));
        }
        let (page, page_first) = self.page()?;
        if let Some(refusal) = self.catch_up(&page, page_first)? {
            return Ok((0, Some(refusal)));
        }
        let (sequence, position) = match self.room_for(content, index, is_kept_open, page_first) {
            Ok(place) => place,
            Err(refusal) => return Ok((0, Some(refusal))),
        };
        let next = sequence + content.count() as i64; // less than the end of the next page
        let to_page = page_first.saturating_add(self.span()) - sequence;
        let end = if content.count() as i64 <= to_page {
            self.put(content, sequence, position, is_kept_open)?.map(|laid| {
                self.words.record(laid.last, next - 1, &laid.marks, &page);
                laid.end
            })
        } else {
            self.put_around_page(content, sequence, position, &page, to_page)?
        };
        let Some(end) = end else {
            return Ok((0, Some(Refusal::Clash)));
        };
        self.place.store(next, end as i64);
        let refusal = if held.give_back() { None } else { Some(Refusal::LockLost) };
        let index_last = self.terms.index_first + (next - 1);
        debug_assert!(index.is_none_or(|index| index + (next - 1 - sequence) == index_last));
        Ok((index_last, refusal))
    }

    /// Lays excerpts, and publishes them; `None` where a header has come to be in their place. The
    /// lock is held, and there is room.
    fn put(
        &self,
        content: Content,
        sequence: i64,
        position: usize,
        is_kept_open: bool,
    ) -> Result<Option<Laid>, Fault> {
        let header = self.store.cell_4(position).ok_or(fault::POSITION_OUTSIDE)?;
        let written = if !is_kept_open {
            None
        } else {
            match content {
                Content::Batch(batch) => self.write(batch, position, sequence)?,
                Content::Runs(runs) => self.write_runs(runs, position)?,
            }
        };
        let laid = match written {
            Some(laid) => laid,
            None => self.lay_content(content, position, sequence)?,
        };
        let next = sequence + content.count() as i64;
        debug_assert_eq!(laid.end + END_MARK_BYTES, position + content.size());
        debug_assert!(laid.end + END_MARK_BYTES <= self.reserved());
        debug_assert!((position..laid.end).contains(&laid.last));
        debug_assert!(laid.marks.iter().all(|(marked, _)| (sequence..next).contains(marked)));
        let order = Ordering::SeqCst;
        let is_published =
            header.compare_exchange(0, laid.first_word.to_le(), order, order).is_ok();
        Ok(is_published.then_some(laid))
    }

    /// Appends up to the excerpt that begins the next index page, that page, and what follows, as
    /// `StoreWriter` does; the answer is where that ends. The file is kept open.
    fn put_around_page(
        &self,
        content: Content,
        sequence: i64,
        position: usize,
        page: &IndexPage,
        to_page: i64,
    ) -> Result<Option<usize>, Fault> {
        let spacing = self.terms.index_spacing;
        let first = sequence + to_page; // of the next page
        let count = usize::try_from(to_page + 1).map_err(|_| NUMBERS)?;
        let split = Split::of(content, count, sequence, spacing)?;
        let Some(laid) = self.put(split.before(), sequence, position, true)? else {
            return Ok(None);
        };
        self.words.record_last(laid.last, first);
        let Some((added, end)) = self.add_page(first, laid.end)? else {
            return Ok(None);
        };
        let (begins, before): (Vec<_>, Vec<_>) =
            laid.marks.into_iter().partition(|&(marked, _)| marked >= first);
        self.words.index(&before, page);
        self.words.index(&begins, &added);
        let Some(behind) = split.behind() else {
            return Ok(Some(end));
        };
        let Some(laid) = self.put(behind, first + 1, end, true)? else {
            return Ok(None);
        };
        self.words.record(laid.last, first + behind.count() as i64, &laid.marks, &added);
        Ok(Some(laid.end))
    }

    /// Adds the index page that begins with a sequence, with its header at a position: the page, and
    /// where it ends. `None` where a header has come to be there.
    fn add_page(
        &self,
        first: i64,
        position: usize,
    ) -> Result<Option<(IndexPage<'a>, usize)>, Fault> {
        let (terms, order) = (self.terms, Ordering::SeqCst);
        let pages = terms.pages.ok_or(OUTSIDE)?;
        let (image, array) = page_image(position, terms.index_count).ok_or(NUMBERS)?;
        let end = position + image.len() - END_MARK_BYTES;
        let is_written = image.len() >= LONG_BATCH_BYTES
            && self.write_behind(position, &image, &Apart::default(), image.len());
        if !is_written {
            let mut target = self.store.target().ok_or(OUTSIDE)?;
            let behind = image.get(HEADER_BYTES..).unwrap_or_default();
            target.put(position + HEADER_BYTES, behind).ok_or(fault::POSITION_OUTSIDE)?;
        }
        let word = (end - position - HEADER_BYTES) as u32 | META_DATA;
        let header = self.store.cell_4(position).ok_or(fault::POSITION_OUTSIDE)?;
        if header.compare_exchange(0, word.to_le(), order, order).is_err() {
            return Ok(None);
        }
        let named = IndexPage::new(self.store, pages, terms.index_count, 0, 1).ok_or(OUTSIDE)?;
        named.set(first.checked_div(self.span()).ok_or(NUMBERS)?, position as i64);
        let (count, spacing) = (terms.index_count, terms.index_spacing);
        let added = IndexPage::new(self.store, array, count, first, spacing).ok_or(OUTSIDE)?;
        self.place.page.store(array as i64, Ordering::Relaxed);
        self.place.page_first.store(first, Ordering::Relaxed);
        Ok(Some((added, end)))
    }

    /// Writes a long batch to the file, not through the mapping: the system then need not clear the
    /// pages first, which takes longer than all the rest. `None` when that is not the way for this
    /// batch.
    fn write(
        &self,
        batch: &MeasuredBatch,
        position: usize,
        sequence: i64,
    ) -> Result<Option<Laid>, Fault> {
        if !is_written(batch.size) {
            return Ok(None);
        }
        IMAGE.with_borrow_mut(|bytes| {
            if bytes.len() < batch.size {
                bytes.try_reserve(batch.size - bytes.len())?;
                bytes.resize(batch.size, 0);
            }
            let image = bytes.get_mut(..batch.size).unwrap_or_default();
            let mut apart = Apart::default();
            let spacing = self.terms.index_spacing;
            let laid =
                batch.lay_image(image, position, sequence, spacing, APART_MIN, &mut apart)?;
            let in_image = batch.size - apart.bytes;
            let image = image.get(..in_image).unwrap_or_default();
            Ok(self.write_behind(position, image, &apart, batch.size).then_some(laid))
        })
    }

    /// Writes an image to the file, all but the header word that it begins with.
    fn write_behind(&self, position: usize, image: &[u8], apart: &Apart, size: usize) -> bool {
        debug_assert_eq!(image.len() + apart.bytes, size);
        let mut done = HEADER_BYTES;
        while done < size {
            let parts = apart.parts(image, done);
            match mem::write_at(self.terms.descriptor, &parts, position + done) {
                Some(count) if count > 0 => done += count,
                _ => return false,
            }
        }
        debug_assert_eq!(done, size, "nothing behind the batch is written");
        true
    }

    /// The same for runs, whose bytes are written from where they are.
    fn write_runs(&self, runs: &MeasuredRuns, position: usize) -> Result<Option<Laid>, Fault> {
        if runs.size() < LONG_BATCH_BYTES {
            return Ok(None);
        }
        let (image, apart) = runs.image()?;
        if !self.write_behind(position, &image, &apart, runs.size()) {
            return Ok(None);
        }
        runs.laid(position).map(Some)
    }

    fn lay_content(&self, content: Content, position: usize, sequence: i64) -> Result<Laid, Fault> {
        let target = self.store.target().ok_or(OUTSIDE)?;
        self.populate(&target, position, content.size());
        match content {
            Content::Batch(batch) => {
                batch.lay(target, position as i64, sequence, self.terms.index_spacing)
            }
            Content::Runs(runs) => runs.lay(target, position),
        }
    }

    /// Brings the pages of a long batch and some ahead of it into memory in one call. That takes
    /// half as long as a page fault for each few pages. If the system refuses, the pages are
    /// faulted in as usual.
    fn populate(&self, target: &Target, position: usize, size: usize) {
        let end = position.saturating_add(size);
        let populated = self.place.populated.load(Ordering::Relaxed);
        let populated = usize::try_from(populated).unwrap_or(0).max(position);
        if size >= LONG_BATCH_BYTES && end > populated {
            let ahead = end.saturating_add(POPULATED_BYTES).min(self.reserved());
            target.populate(populated, ahead);
            self.place.populated.store(ahead as i64, Ordering::Relaxed);
        }
    }

    /// What other processes have done that keeps the pen from appending here. The lock is held.
    fn refusal_of_others(&self) -> Option<Refusal> {
        let terms = self.terms;
        let holder = self.append_lock.load(Ordering::SeqCst);
        if holder != UNLOCKED && holder & PROCESS_MASK != terms.process {
            return Some(Refusal::AppendLocked);
        }
        if self.changes.load(Ordering::Acquire) != terms.changes_seen {
            return Some(Refusal::Changed);
        }
        (!self.is_file_whole()).then_some(Refusal::Cut)
    }

    /// Walks over what other writers have appended since, and records it, as they may have died
    /// before they did. Not while this process keeps the append lock: a sink is to hear of it.
    fn catch_up(&self, page: &IndexPage, page_first: i64) -> Result<Option<Refusal>, Fault> {
        let (sequence, position) = self.place.load();
        let header = usize::try_from(position).ok().and_then(|at| self.store.load_4(at));
        match header {
            None => return Ok(Some(Refusal::Space)),
            Some(0) => return Ok(None),
            Some(_) => {}
        }
        if self.append_lock.load(Ordering::SeqCst) != UNLOCKED {
            return Ok(Some(Refusal::Changed));
        }
        let limits = Limits { count: CAUGHT_MAX, bytes: i64::MAX, payload: i64::MAX };
        let end = self.reserved().saturating_sub(END_MARK_BYTES) as i64;
        let mut walk = Walk::new(self.store.source(), position, end, limits)?;
        let stop = walk.step(2 * CAUGHT_MAX as usize)?;
        let next = sequence.saturating_add(walk.offsets.len() as i64);
        // a header that is not complete is for Python to clear, and an index page for Python to
        // look up
        let is_end = stop == Some(WalkStop::NotReady)
            && self.store.load_4(walk.position as usize) == Some(0);
        let page_end = page_first.saturating_add(self.span());
        let Some(last) = walk.offsets.last().filter(|_| is_end && next < page_end) else {
            return Ok(Some(Refusal::Changed));
        };
        if sequence < page_first {
            return Ok(Some(Refusal::Page));
        }
        debug_assert_eq!(walk.offsets.len(), walk.lengths.len());
        debug_assert!(*last < walk.position as i64);
        let spacing = self.terms.index_spacing;
        let first = (-sequence).rem_euclid(spacing);
        let passed = walk.offsets.iter().enumerate();
        let indexed: Vec<(i64, usize)> = passed
            .skip(first as usize)
            .step_by(spacing as usize)
            .map(|(nth, &body)| (sequence + nth as i64, body as usize - HEADER_BYTES))
            .collect();
        self.words.record(*last as usize - HEADER_BYTES, next - 1, &indexed, page);
        self.place.store(next, walk.position as i64);
        Ok(None)
    }

    /// Where the batch goes, if everything is as usual. The lock is held.
    fn room_for(
        &self,
        content: Content,
        index: Option<i64>,
        is_kept_open: bool,
        page_first: i64,
    ) -> Result<(i64, usize), Refusal> {
        let terms = self.terms;
        let (sequence, position) = self.place.load();
        let position = usize::try_from(position).map_err(|_| Refusal::Space)?;
        if index.is_some_and(|index| index != terms.index_first.wrapping_add(sequence)) {
            return Err(Refusal::Index);
        }
        if content.longest() > terms.payload_max {
            return Err(Refusal::TooLong);
        }
        let count = content.count() as i64;
        if count > terms.sequence_end.saturating_sub(sequence) {
            return Err(Refusal::Full);
        }
        // the excerpt that begins an index page makes that page: one at a time here, and only where
        // the file is kept open
        let to_page = page_first.saturating_add(self.span()).saturating_sub(sequence);
        let may_add = is_kept_open && self.may_add_page(page_first);
        let to_refused = if may_add { to_page.saturating_add(self.span() - 1) } else { to_page };
        if sequence < page_first || to_page < 0 || count > to_refused {
            return Err(Refusal::Page);
        }
        // the sum is the one of `StoreWriter`, so that both reserve space at the same excerpt
        let pages = if count >= to_page { 2 } else { 1 };
        let end = position
            .saturating_add(content.size_bound())
            .saturating_add(terms.page_size.saturating_mul(pages))
            .saturating_add(END_MARK_BYTES);
        if end > self.reserved() && !(is_kept_open && self.allocate(end)) {
            return Err(Refusal::Space);
        }
        Ok((sequence, position))
    }

    /// True when the page of pages has a slot for the page behind the one that begins with this
    /// sequence, and that is as long as the terms say.
    fn may_add_page(&self, page_first: i64) -> bool {
        let (terms, span) = (self.terms, self.span());
        let page = page_first.checked_div(span).and_then(|page| page.checked_add(1));
        let slots = usize::try_from(terms.index_count).unwrap_or(usize::MAX);
        let size = slots.saturating_mul(LONG_BYTES).saturating_add(PAGE_BYTES);
        terms.pages.is_some()
            && page.is_some_and(|page| (1..terms.index_count).contains(&page))
            && page_first.checked_rem(span) == Some(0)
            && size <= terms.page_size
    }

    /// Allocates space up to `end` and one step more, within the file as it is mapped.
    fn allocate(&self, end: usize) -> bool {
        let (start, steps) = (self.reserved(), self.place.steps.load(Ordering::Relaxed));
        let step = self.terms.step.min(STEP_MAX) << steps.min(DOUBLINGS_MAX);
        let step = step.min(STEP_MAX);
        let wanted = end.saturating_add(step).min(self.store.len());
        if step == 0 || wanted < end {
            return false;
        }
        let is_there = mem::allocate(self.terms.descriptor, start, wanted);
        if is_there {
            self.place.reserved.store(wanted as i64, Ordering::Relaxed);
            self.place.steps.store(steps + 1, Ordering::Relaxed);
        }
        is_there
    }
}

/// A new index page whose header is to stand there, and zeros behind it; and where its array starts.
/// Its header word is left 0. `cqrepl.queue.format.storeimage` is the reference.
fn page_image(position: usize, index_count: i64) -> Option<(Vec<u8>, usize)> {
    let code = HEADER_BYTES + PAGE_NAME.len();
    let padding = (position.checked_add(code + 1)?).wrapping_neg() % LONG_BYTES;
    let array = code + padding + 1;
    let slots = usize::try_from(index_count).ok()?.checked_mul(LONG_BYTES)?;
    let size = slots.checked_add(array + ARRAY_HEAD_BYTES + END_MARK_BYTES)?;
    if size > BODY_MAX {
        return None;
    }
    let mut image = Vec::new();
    image.try_reserve_exact(size).ok()?;
    image.resize(HEADER_BYTES, 0);
    image.extend_from_slice(&PAGE_NAME);
    image.resize(code + padding, PADDING);
    image.push(ARRAY);
    image.extend_from_slice(&index_count.to_le_bytes());
    image.resize(size, 0);
    Some((image, position + array))
}
