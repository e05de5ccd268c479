//! A look at words that other processes write, again and again, until one of them changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::mem::Source;

/// A word of 4 bytes, and what stood there; `None` is never what stands there.
pub type Word<'a> = (Source<'a>, Option<u32>);

/// Pauses before each look, the first too. The answer is true when a word has changed, false when
/// the look was cancelled.
pub fn until_changed(words: &[Word<'_>], pause: Duration, is_cancelled: &AtomicBool) -> bool {
    loop {
        std::thread::sleep(pause);
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
