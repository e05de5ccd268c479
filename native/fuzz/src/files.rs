//! A small table store and a small store file as a pen knows them, filled with what means harm.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

use cqrepl_kernel::append::pen::{Pen, PenPlace};
use cqrepl_kernel::append::terms::Terms;
use cqrepl_kernel::batch::documents::{Limits, Walk};
use cqrepl_kernel::mem::fault::Fault;
use cqrepl_kernel::mem::{Cells, Source};

const UNLOCKED: i64 = i64::MIN;
const PROCESS: i64 = 4242;
const APPEND_LOCK: usize = 16;
const PAGE: usize = 24;
const SLOTS: usize = 16;

/// Where documents begin: behind the words that writers keep up, and the index page.
pub const FIRST: usize = PAGE + 16 + 8 * SLOTS;
/// The index of the first excerpt.
pub const INDEX_FIRST: i64 = 5 << 32;
/// The limits of a walk that has none.
pub const FREE: Limits = Limits { count: i64::MAX, bytes: i64::MAX, payload: i64::MAX };

/// The bytes of the files. Each is an allocation of its own, which allocators put where longs can
/// be.
pub struct Files {
    /// The table store: two locks and a count of changes.
    pub table: Box<[u8]>,
    /// The store file: three words, an index page, documents.
    pub store: Box<[u8]>,
    /// The turn: a word of this process.
    pub turn: Box<[u8]>,
}

impl Files {
    /// Files whose locks are free, with these documents and so many bytes behind them.
    pub fn new(documents: &[u8], room: usize) -> Self {
        let mut table = vec![0; 32];
        table[..8].copy_from_slice(&UNLOCKED.to_le_bytes());
        table[APPEND_LOCK..APPEND_LOCK + 8].copy_from_slice(&UNLOCKED.to_le_bytes());
        let mut store = vec![0; FIRST + documents.len() + room];
        store[FIRST..FIRST + documents.len()].copy_from_slice(documents);
        Files { table: table.into(), store: store.into(), turn: vec![0; 4].into() }
    }

    /// Terms that fit the files, with 16 slots, one for every second excerpt.
    pub fn terms(&self) -> Terms {
        Terms {
            lock: 0,
            start: 8,
            append_lock: APPEND_LOCK,
            changes: APPEND_LOCK + 8,
            changes_seen: 0,
            process: PROCESS,
            process_start: 77,
            descriptor: long_file(),
            write_position: 0,
            sequence_word: Some(8),
            last_index: 16,
            sequence_bits: 32,
            index_first: INDEX_FIRST,
            sequence_end: 1 << 32,
            index_count: SLOTS as i64,
            index_spacing: 2,
            page: PAGE,
            page_first: 0,
            pages: None,
            page_size: 64,
            payload_max: 200,
            reserved: self.store.len(),
            step: 0,
            cycle_end_ms: i64::MAX,
        }
    }

    /// A pen on the files, at that place.
    pub fn pen<'a>(&'a mut self, terms: &'a Terms, place: &'a PenPlace) -> Result<Pen<'a>, Fault> {
        let Files { table, store, turn } = self;
        let (store, table) = (Cells::from(&mut **store), Cells::from(&mut **table));
        Pen::new(store, table, Cells::from(&mut **turn), terms, place)
    }

    /// True when no process holds the write lock, and no thread has its turn.
    pub fn are_free(&self) -> bool {
        self.table[..8] == UNLOCKED.to_le_bytes() && self.turn.iter().all(|&byte| byte == 0)
    }

    /// The excerpts from a position on, as readers find them.
    pub fn excerpts(&self, position: i64) -> Vec<&[u8]> {
        let end = self.store.len() as i64;
        let mut walk =
            Walk::new(Source::from(&*self.store), position, end, FREE).expect("within the file");
        walk.step(usize::MAX).expect("there is memory");
        let found = walk.offsets.iter().zip(&walk.lengths);
        found.map(|(&offset, &length)| &self.store[offset as usize..][..length as usize]).collect()
    }
}

/// What a store file holds for a payload.
pub fn stored(payload: &[u8]) -> &[u8] {
    if payload.is_empty() {
        &[0x8F]
    } else {
        payload
    }
}

/// A file that is longer than the store file, as a pen asks a file only for its size.
fn long_file() -> RawFd {
    static FILE: OnceLock<File> = OnceLock::new();
    let open = || File::open(std::env::current_exe().expect("a path")).expect("it runs");
    FILE.get_or_init(open).as_raw_fd()
}
