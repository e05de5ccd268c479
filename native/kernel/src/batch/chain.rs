//! The chain over excerpts: a hash of all that a cycle holds up to an excerpt, in order.
//!
//! ```text
//! chain(0)     = 0
//! chain(n + 1) = XXH3_128(payload n, seed = XXH3_64(chain(n), sequence, length))
//! ```
//!
//! Numbers are little-endian: a chain has 16 bytes, the sequence and the length 8 each. It guards
//! against accidents, not against forgers.

use xxhash_rust::xxh3::{xxh3_128_with_seed, xxh3_64, Xxh3};

use crate::batch::columns::excerpt;
use crate::mem::fault::{self, Fault};
use crate::mem::{Longs, Source};

/// Bytes of a chain.
pub const CHAIN_BYTES: usize = 16;
/// So much of a payload is copied at a time: what is mapped may change, so it is never hashed where
/// it stands.
const COPIED_BYTES: usize = 64 << 10;

/// A chain that grows.
pub struct Chain {
    /// The chain over all excerpts before the next one.
    pub value: [u8; CHAIN_BYTES],
    sequence: u64,
    copy: Vec<u8>,
}

impl Chain {
    /// The chain over all excerpts before the one with this sequence.
    pub fn new(value: [u8; CHAIN_BYTES], sequence: i64) -> Result<Self, Fault> {
        let sequence = u64::try_from(sequence)
            .map_err(|_| Fault::Value("expected a sequence of at least 0"))?;
        Ok(Chain { value, sequence, copy: Vec::new() })
    }

    /// Goes on over excerpts that follow.
    pub fn extend(&mut self, data: Source, offsets: Longs, lengths: Longs) -> Result<(), Fault> {
        if offsets.len() != lengths.len() {
            return Err(fault::PART_OUTSIDE);
        }
        for nth in 0..lengths.len() {
            let (offset, length) = excerpt(data, offsets, lengths, nth)?;
            self.add(data, offset, length)?;
        }
        Ok(())
    }

    fn add(&mut self, data: Source, offset: usize, length: usize) -> Result<(), Fault> {
        let mut inner = [0; CHAIN_BYTES + 16];
        inner[..CHAIN_BYTES].copy_from_slice(&self.value);
        inner[CHAIN_BYTES..CHAIN_BYTES + 8].copy_from_slice(&self.sequence.to_le_bytes());
        inner[CHAIN_BYTES + 8..].copy_from_slice(&(length as u64).to_le_bytes());
        let seed = xxh3_64(&inner);
        let outer = if length <= COPIED_BYTES {
            self.take(data, offset, length)?;
            xxh3_128_with_seed(&self.copy, seed)
        } else {
            let mut hash = Xxh3::with_seed(seed);
            let mut done = 0;
            while done < length {
                let count = COPIED_BYTES.min(length - done);
                self.take(data, offset + done, count)?;
                hash.update(&self.copy);
                done += count;
            }
            hash.digest128()
        };
        self.value = outer.to_le_bytes();
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    fn take(&mut self, data: Source, offset: usize, count: usize) -> Result<(), Fault> {
        self.copy.clear();
        data.part(offset, count).ok_or(fault::EXCERPT_OUTSIDE)?.append_to(&mut self.copy)
    }
}
