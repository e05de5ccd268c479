//! What a pen knows of its queue, and why it appends nothing.

use std::os::fd::RawFd;

/// Why nothing was appended; the numbers are those of `cqrepl.kernel.batch.Refusal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The write lock is held by another thread or process.
    Contended = 1,
    /// The append lock is held by another process.
    AppendLocked = 2,
    /// The directory has changed, or other writers have appended what a pen cannot just walk over.
    Changed = 3,
    /// The file was removed, is shorter than what is mapped of it, or tells neither.
    Cut = 4,
    /// The clock is in another cycle.
    Roll = 5,
    /// The index of the first excerpt is not the next one.
    Index = 6,
    /// An excerpt is longer than allowed.
    TooLong = 7,
    /// The cycle has no indexes for so many excerpts.
    Full = 8,
    /// An index page is due.
    Page = 9,
    /// Space must be reserved first.
    Space = 10,
    /// A payload has no bytes, or has them in several pieces. Python knows what to say.
    Unfit = 11,
    /// A header came to be at the place of the batch while this process held the lock.
    Clash = 12,
    /// Everything was appended, but the lock was taken away by force meanwhile.
    LockLost = 13,
}

/// What a pen knows of its queue and of its store file. The positions are byte offsets in the table
/// store and in the store file.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject))]
pub struct Terms {
    /// The position in the table store of the write lock's word.
    pub lock: usize,
    /// The position in the table store of the write lock's start key.
    pub start: usize,
    /// The position in the table store of the append lock's word.
    pub append_lock: usize,
    /// The position in the table store of the count of changes of the directory.
    pub changes: usize,
    /// What that count was when the rest was looked at.
    pub changes_seen: i64,
    /// The process id, as it goes into the lock word.
    pub process: i64,
    /// Since when this process runs, as it goes into the start key.
    pub process_start: i64,
    /// The descriptor of the open store file.
    pub descriptor: RawFd,
    /// The position in the store file of the write position.
    pub write_position: usize,
    /// The position in the store file of the sequence word, if there is one.
    pub sequence_word: Option<usize>,
    /// The position in the store file of `lastIndex`.
    pub last_index: usize,
    /// How many bits a sequence has in the sequence word.
    pub sequence_bits: u32,
    /// The index of the excerpt with the sequence 0.
    pub index_first: i64,
    /// The first sequence that has no index.
    pub sequence_end: i64,
    /// The number of slots in an index page.
    pub index_count: i64,
    /// How many excerpts there are to a slot.
    pub index_spacing: i64,
    /// The position of the array of the index page that the next sequence belongs into.
    pub page: usize,
    /// The first sequence of that index page.
    pub page_first: i64,
    /// The position of the array of the page of pages; `None` where a pen adds no index pages.
    pub pages: Option<usize>,
    /// How many bytes the next index page takes.
    pub page_size: usize,
    /// The length of the longest payload that is allowed.
    pub payload_max: usize,
    /// The position before which all space is allocated.
    pub reserved: usize,
    /// How many bytes more are allocated at once, where that is allowed; the next time it is twice
    /// as many.
    pub step: usize,
    /// When the clock leaves the cycle, in milliseconds since 1970.
    pub cycle_end_ms: i64,
}
