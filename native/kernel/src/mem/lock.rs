//! The write lock of a queue, as a pen takes it: without waiting, and given back in any case.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// The word of a lock that no process holds.
pub const UNLOCKED: i64 = i64::MIN;

/// The words of a lock, and what this process writes into them.
pub struct Lock<'a> {
    /// The word of this process alone that a thread takes before it takes the lock.
    pub turn: &'a AtomicU32,
    /// The word in the table store that names the process holding the lock.
    pub word: &'a AtomicI64,
    /// The word in the table store that tells since when that process runs.
    pub start: &'a AtomicI64,
    /// What names this process in the lock word.
    pub process: i64,
    /// Since when this process runs, as it goes into the start key.
    pub process_start: i64,
}

impl<'a> Lock<'a> {
    /// Takes the lock if it is free; `None` if it is held.
    pub fn take(&self) -> Option<Held<'_, 'a>> {
        let order = Ordering::SeqCst;
        if self.turn.compare_exchange(0, 1, order, order).is_err() {
            return None;
        }
        if self.word.compare_exchange(UNLOCKED, self.process, order, order).is_err() {
            self.turn.store(0, Ordering::Release);
            return None;
        }
        // the start key tells who holds the lock, never whether it is held
        self.start.store(self.process_start, Ordering::Relaxed);
        Some(Held(self))
    }

    /// Gives the lock back; false when another process has taken it away by force.
    fn release(&self) -> bool {
        let order = Ordering::SeqCst;
        let mut is_ours = self.word.load(order) == self.process;
        if is_ours {
            self.start.store(0, Ordering::Relaxed);
            is_ours = self.word.compare_exchange(self.process, UNLOCKED, order, order).is_ok();
        }
        self.turn.store(0, Ordering::Release);
        is_ours
    }
}

/// A lock that is held until this value is dropped.
pub struct Held<'l, 'a>(&'l Lock<'a>);

impl Held<'_, '_> {
    /// Gives the lock back; false when another process has taken it away by force.
    pub fn give_back(self) -> bool {
        let was_ours = self.0.release();
        std::mem::forget(self);
        was_ours
    }
}

impl Drop for Held<'_, '_> {
    fn drop(&mut self) {
        self.0.release();
    }
}
