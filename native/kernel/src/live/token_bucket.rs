//! How many bytes of excerpts a connection may send: a token bucket, one token for each byte.
//!
//! Tokens come evenly, and a tenth of a second's worth is kept. Queues that have nothing left to
//! catch up with may use all of them, the others only what is above half: so what is live goes out
//! at once while much else waits. Where too few are left, nothing goes until an eighth has come:
//! many small sends would cost more than they bring.
//!
//! One excerpt goes out whole, however long it is. What it takes too much is owed.
//!
//! `cqrepl/net/tokenbucket.py` says the same for the event loop; tokens go to and fro with the
//! socket.

use std::time::{Duration, Instant};

/// So much of a second's tokens is kept.
const KEPT_PARTS: i64 = 10;
/// Queues that have much leave one half of what is kept.
const RESERVE_PARTS: i64 = 2;
/// So much of it comes before anything goes out again.
const STEP_PARTS: i64 = 8;
const NS_PER_S: i128 = 1_000_000_000;

/// The tokens of one connection.
pub struct TokenBucket {
    bytes_per_s: i64,
    /// Tokens times the nanoseconds of a second; below zero what is owed.
    scaled: i128,
    /// When tokens came last; `None` for a pump whose time does not go on.
    filled_at: Option<Instant>,
    /// For queues without and with much to catch up with: true after tokens were too few.
    is_shut: [bool; 2],
}

impl TokenBucket {
    /// A bucket with so many tokens, below zero for what is owed. They become more only where the
    /// time is given, which is now.
    pub fn new(bytes_per_s: i64, tokens: i64, now: Option<Instant>) -> Self {
        debug_assert!(bytes_per_s > 0);
        let scaled = i128::from(tokens) * NS_PER_S;
        TokenBucket { bytes_per_s, scaled, filled_at: now, is_shut: [true; 2] }
    }

    /// Takes in the tokens that have come until now.
    pub fn fill(&mut self, now: Instant) {
        let Some(filled_at) = self.filled_at.filter(|&filled_at| now > filled_at) else {
            return;
        };
        let passed_ns = i128::try_from((now - filled_at).as_nanos()).unwrap_or(i128::MAX);
        let come = passed_ns.saturating_mul(self.bytes_per_s.into());
        let most = i128::from(self.kept()) * NS_PER_S;
        self.scaled = self.scaled.saturating_add(come).min(most.max(self.scaled));
        self.filled_at = Some(now);
    }

    /// How many bytes may go out now, of queues with or without much to catch up with.
    pub fn room(&mut self, of_much: bool) -> usize {
        let [live, much] = self.is_shut;
        let is_shut = self.tokens() < self.least(of_much, if of_much { much } else { live });
        self.is_shut = if of_much { [live, is_shut] } else { [is_shut, much] };
        if is_shut {
            return 0;
        }
        usize::try_from(self.tokens() - self.floor(of_much)).unwrap_or(0)
    }

    /// So many bytes are about to go out.
    pub fn spend(&mut self, bytes: usize) {
        self.scaled -= i128::try_from(bytes).unwrap_or(i128::MAX / NS_PER_S) * NS_PER_S;
    }

    /// The tokens there are; below zero what is owed.
    pub fn tokens(&self) -> i64 {
        i64::try_from(self.scaled.div_euclid(NS_PER_S)).unwrap_or(i64::MIN)
    }

    /// When anything may go out again, of queues with or without much to catch up with; `None` when
    /// something may now, or never.
    pub fn opens_at(&mut self, of_much: bool) -> Option<Instant> {
        let filled_at = self.filled_at.filter(|_| self.room(of_much) == 0)?;
        let missing = i128::from(self.least(of_much, true)) * NS_PER_S - self.scaled;
        let wait_ns = missing.div_euclid(self.bytes_per_s.into()).saturating_add(1);
        filled_at.checked_add(Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX)))
    }

    fn kept(&self) -> i64 {
        (self.bytes_per_s / KEPT_PARTS).max(1)
    }

    /// What is left for the other queues.
    fn floor(&self, of_much: bool) -> i64 {
        if of_much {
            self.kept() / RESERVE_PARTS
        } else {
            0
        }
    }

    /// With fewer tokens nothing goes out.
    fn least(&self, of_much: bool, is_shut: bool) -> i64 {
        let step = if is_shut { (self.kept() / STEP_PARTS).max(1) } else { 1 };
        self.floor(of_much) + step
    }
}
