//! What a pen knows of its queue, and why it appends nothing.

use std::os::fd::RawFd;

/// Why nothing was appended; the numbers are those of `cqrepl.kernel.batch.Refusal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The write lock is held, by whomever.
    Contended = 1,
    /// The append lock is another process's.
    AppendLocked = 2,
    /// Others have changed the directory, or have appended what cannot just be walked over.
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
    /// So much more is allocated at once where that is allowed; twice as much the next time.
    pub step: usize,
    /// When the clock leaves the cycle, in milliseconds since 1970.
    pub cycle_end_ms: i64,
}
