//! The word in which readers of all processes see up to where a queue is safe.
//!
//! A program that may go on only once its excerpt is safe, as Java's, looks at this word again and
//! again. So the thread that raises a mark of the board raises the word, too, before it wakes those
//! that wait.

/// A number that other processes see.
pub trait SharedWord: Send + Sync {
    /// Makes it at least this.
    fn raise_to(&self, index: i64);
}

/// Such a word, and when an index counts as safe; `H` is the set of hosts that count.
pub struct SafeWord<H> {
    /// At this level, ...
    pub level: usize,
    /// ... at so many hosts at least, ...
    pub hosts_min: usize,
    /// ... of these, or of all.
    pub hosts: Option<H>,
    /// Is raised then.
    pub word: Box<dyn SharedWord>,
}

impl<H> SafeWord<H> {
    /// Raises the word to the index up to which that is so.
    ///
    /// `held` is up to where each host that counts has the level; negative for nothing.
    pub fn raise(&self, mut held: Vec<i64>) {
        held.sort_unstable();
        let place = held.len().checked_sub(self.hosts_min);
        if let Some(&index) = place.and_then(|place| held.get(place)).filter(|&&index| index >= 0) {
            self.word.raise_to(index);
        }
    }
}
