//! How many excerpts the lanes of one connection may have sent that are not acknowledged, together:
//! the source keeps the length of each. `cqrepl/protocol/sendwindow.py` says the same for the event
//! loop, and which queue may have how many of them.

use std::sync::atomic::{AtomicI64, Ordering};

/// A queue may hold so many times what is free.
const SHARE: i64 = 7;

/// What is free. The event loop gives back what was acknowledged while the pump runs.
#[derive(Debug, Default)]
pub struct SendBudget(AtomicI64);

impl SendBudget {
    /// Begins with so many.
    pub fn new(free: i64) -> Self {
        SendBudget(AtomicI64::new(free))
    }

    /// So many are free now.
    pub fn set(&self, free: i64) {
        self.0.store(free, Ordering::Relaxed);
    }

    /// How many are free.
    pub fn free(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// How many more a queue may send that holds so many: one at least where it holds none and any
    /// is free, as it would wait for ever else.
    pub fn room(&self, held: i64) -> i64 {
        let free = self.free();
        let least = if held == 0 { free.clamp(0, 1) } else { 0 };
        free.saturating_mul(SHARE).saturating_sub(held).div_euclid(SHARE + 1).max(least)
    }

    /// So many are sent.
    pub fn take(&self, count: i64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    /// So many were acknowledged.
    pub fn give(&self, count: i64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}
