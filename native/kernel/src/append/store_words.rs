//! The words of a store file that its writers keep up after excerpts are published. They are hints
//! for processes that open the file.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::mem::Cells;

const HEAD_BYTES: usize = 16;
const USED: usize = 8;
const LONG_BYTES: usize = 8;

/// The words of one store file.
pub struct StoreWords<'a> {
    /// The position of the last excerpt.
    pub write_position: &'a AtomicI64,
    /// The position and the sequence of the last excerpt, if the file has this word.
    pub sequence_word: Option<&'a AtomicI64>,
    /// How many bits of that word are the sequence.
    pub sequence_bits: u32,
    /// The next sequence that belongs into the index.
    pub last_index: &'a AtomicI64,
}

/// An index page whose array lies within the file.
pub struct IndexPage<'a> {
    store: Cells<'a>,
    array: usize,
    count: i64,
    first: i64,
    spacing: i64,
}

impl<'a> IndexPage<'a> {
    /// The page whose array is at `array` and has so many slots; `None` when it is not all within
    /// the file.
    pub fn new(
        store: Cells<'a>,
        array: usize,
        count: i64,
        first: i64,
        spacing: i64,
    ) -> Option<Self> {
        let slots = usize::try_from(count).ok().filter(|&slots| slots > 0)?;
        let end = slots.checked_mul(LONG_BYTES)?.checked_add(HEAD_BYTES)?.checked_add(array)?;
        let is_there = end <= store.len() && store.cell_8(array).is_some();
        (is_there && first >= 0 && spacing > 0).then_some(IndexPage {
            store,
            array,
            count,
            first,
            spacing,
        })
    }

    /// Sets the slot of a sequence, which belongs into this page.
    pub fn set(&self, sequence: i64, position: i64) {
        debug_assert!(sequence >= self.first);
        let slot = (sequence - self.first) / self.spacing;
        debug_assert!(slot < self.count);
        let at = self.array + HEAD_BYTES + slot as usize * LONG_BYTES;
        let order = Ordering::SeqCst;
        if let Some(cell) = self.store.cell_8(at) {
            if cell.compare_exchange(0, position, order, order).is_err() {
                // the slot holds the same position, or damage that makes readers refuse the excerpt
                cell.store(position, order);
            }
        }
        if let Some(used) = self.store.cell_8(self.array + USED) {
            used.fetch_max(slot + 1, order);
        }
    }
}

impl StoreWords<'_> {
    /// Records the last excerpt, and the excerpts that belong into an index page, which is this one.
    pub fn record(&self, last: usize, sequence: i64, indexed: &[(i64, usize)], page: &IndexPage) {
        debug_assert!(indexed.iter().all(|&(marked, _)| marked <= sequence));
        debug_assert!(indexed.iter().all(|&(_, position)| position <= last));
        self.record_last(last, sequence);
        self.index(indexed, page);
    }

    /// Records the last excerpt.
    pub fn record_last(&self, last: usize, sequence: i64) {
        let order = Ordering::SeqCst;
        self.write_position.fetch_max(last as i64, order);
        if let Some(word) = self.sequence_word {
            let bits = self.sequence_bits;
            let mask = 1_u64.checked_shl(bits).map_or(u64::MAX, |bit| bit - 1);
            let upper = (last as u64).checked_shl(bits).unwrap_or(0);
            let lower = sequence.cast_unsigned() & mask;
            word.store(upper.wrapping_add(lower).cast_signed(), order);
        }
    }

    /// Records excerpts that belong into an index page.
    pub fn index(&self, indexed: &[(i64, usize)], page: &IndexPage) {
        for &(sequence, position) in indexed {
            page.set(sequence, position as i64);
        }
        if let Some((sequence, _)) = indexed.last() {
            self.last_index.fetch_max(sequence.saturating_add(page.spacing), Ordering::SeqCst);
        }
    }
}
