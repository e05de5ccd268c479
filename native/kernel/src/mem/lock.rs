//! The queue's write lock, as a pen takes it: without waiting, and given back in any case.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// What stands in a lock's word that nobody holds.
pub const UNLOCKED: i64 = i64::MIN;

/// The words of a lock, and whose they are to name.
pub struct Lock<'a> {
    /// Whose turn it is in this process.
    pub turn: &'a AtomicU32,
    /// Names the process that holds the lock,
    pub word: &'a AtomicI64,
    /// and since when that process runs.
    pub start: &'a AtomicI64,
    /// This process,
    pub process: i64,
    /// and what goes into the start key.
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
        // it tells who holds the lock, never whether it is held
        self.start.store(self.process_start, Ordering::Relaxed);
        Some(Held(self))
    }

    /// False when somebody has taken the lock away.
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

/// A lock that is held until this goes.
pub struct Held<'l, 'a>(&'l Lock<'a>);

impl Held<'_, '_> {
    /// Gives it back; false when somebody has taken it away.
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
