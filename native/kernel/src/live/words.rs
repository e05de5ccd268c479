//! A look at words that other processes write, again and again, until one of them changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::mem::Source;

/// A word of 4 bytes, and what stood there; `None` is never what stands there.
pub type Word<'a> = (Source<'a>, Option<u32>);

/// How long to pause before each look, the first too.
#[derive(Clone, Copy)]
pub struct Pauses {
    /// Before each of the first looks.
    pub first: Duration,
    /// Before all later ones.
    pub later: Duration,
    /// So many are the first ones.
    pub count: u64,
}

/// The answer is true when a word has changed, false when the look was cancelled.
pub fn until_changed(words: &[Word<'_>], pauses: Pauses, is_cancelled: &AtomicBool) -> bool {
    let mut left = pauses.count;
    loop {
        std::thread::sleep(if left > 0 { pauses.first } else { pauses.later });
        left = left.saturating_sub(1);
        if is_cancelled.load(Ordering::Relaxed) {
            return false;
        }
        if has_changed(words) {
            return true;
        }
    }
}

/// True when something else stands in one of them.
pub fn has_changed(words: &[Word<'_>]) -> bool {
    words.iter().any(|(word, value)| word.header(0) != *value)
}
