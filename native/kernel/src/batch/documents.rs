//! Documents of a store file, and the walk that finds excerpts among them.

use crate::mem::fault::{self, push, Fault};
use crate::mem::Source;

/// The length of a header word.
pub const HEADER_BYTES: usize = 4;
/// The bits of a header word that tell the length of its body.
pub const LENGTH_MASK: u32 = 0x3FFF_FFFF;
/// The longest body that a header can tell of.
pub const BODY_MAX: usize = LENGTH_MASK as usize;
/// Set in the header word of what is no excerpt.
pub const META_DATA: u32 = 0x4000_0000;
/// Set in the header word of a document that is still written.
pub const NOT_COMPLETE: u32 = 0x8000_0000;
const END_OF_FILE: u32 = 0xC000_0000;
/// Who passes short excerpts has the processor fetch what stands so far ahead: by itself it looks
/// no further than to the end of a page.
pub const AHEAD: usize = 1024;
/// The length of a payload that is not short.
pub const SHORT: usize = 512;
// excerpts behind which a walk looks ahead: where there are fewer, a writer may be at work
const FEW: usize = 64;

/// Why a walk went no further; the numbers are those of `cqrepl.kernel.batch.Stop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStop {
    /// The next header is zero, or says that its document is not complete.
    NotReady = 0,
    /// The end-of-file mark stands there.
    EndOfFile = 1,
    /// The next document does not lie within the bytes that may be looked at.
    PastEnd = 2,
    /// As many excerpts or bytes as were asked for have been found.
    Limit = 3,
    /// The next payload is longer than allowed.
    TooLarge = 4,
}

/// The bounds of a walk. A bound below 0 allows nothing.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The number of excerpts.
    pub count: i64,
    /// The sum of their lengths. One excerpt is given even if it is longer.
    pub bytes: i64,
    /// The length of each excerpt.
    pub payload: i64,
}

/// A walk over the documents of a store file, which can be interrupted.
pub struct Walk<'a> {
    store: Source<'a>,
    end: u64,
    limits: Limits,
    total: i64,
    count: i64,
    /// The most bytes between a document and the next header: 3, or 0 in old files.
    gap: u64,
    /// The position of the next header to look at.
    pub position: u64,
    /// Where the payloads start that were found.
    pub offsets: Vec<i64>,
    /// The lengths of these payloads.
    pub lengths: Vec<i64>,
}

impl<'a> Walk<'a> {
    /// A walk from the header at `position` on, which looks at nothing from `end` on.
    pub fn new(store: Source<'a>, position: i64, end: i64, limits: Limits) -> Result<Self, Fault> {
        let position = u64::try_from(position).map_err(|_| fault::POSITION_OUTSIDE)?;
        if end > i64::try_from(store.len()).unwrap_or(i64::MAX) {
            return Err(fault::POSITION_OUTSIDE);
        }
        Ok(Walk {
            store,
            end: u64::try_from(end).unwrap_or(0),
            limits,
            total: 0,
            count: 0,
            gap: HEADER_BYTES as u64 - 1,
            position,
            offsets: Vec::new(),
            lengths: Vec::new(),
        })
    }

    /// The walk over a file whose headers stand at multiples of so many bytes: 4, or 1 in files
    /// that old versions of Chronicle Queue wrote.
    pub fn aligned(mut self, alignment: i64) -> Result<Self, Fault> {
        self.gap = match alignment {
            1 => 0,
            4 => 3,
            _ => return Err(fault::ALIGNMENT_UNKNOWN),
        };
        Ok(self)
    }

    /// Passes up to so many documents; `None` when there may be more.
    pub fn step(&mut self, documents: usize) -> Result<Option<WalkStop>, Fault> {
        for _ in 0..documents {
            match self.document() {
                Ok(None) => {}
                Ok(Some((body, length))) => {
                    debug_assert!(self.offsets.last().is_none_or(|&last| last < body as i64));
                    push(&mut self.offsets, body as i64)?;
                    push(&mut self.lengths, length)?;
                    if self.lengths.len() > FEW && length < SHORT as i64 {
                        self.store.expect(self.position as usize + AHEAD);
                    }
                }
                Err(stop) => return Ok(Some(stop)),
            }
        }
        Ok(None)
    }

    /// Passes documents up to the next excerpt, and answers where its payload starts and how long
    /// it is. Neither is put into `offsets` and `lengths`.
    #[inline]
    pub fn excerpt(&mut self) -> Result<(u64, i64), WalkStop> {
        loop {
            if let Some(found) = self.document()? {
                return Ok(found);
            }
        }
    }

    /// Passes one document, and answers with its payload if it is an excerpt.
    #[inline]
    fn document(&mut self) -> Result<Option<(u64, i64)>, WalkStop> {
        // the position is at most 2^63 + 2 at first, then at most the length of the store
        self.position = (self.position + self.gap) & !self.gap;
        let body = self.position + HEADER_BYTES as u64;
        if body > self.end {
            return Err(WalkStop::PastEnd);
        }
        // the word is read once, as another process may store another one at any time
        let Some(word) = self.store.header(self.position as usize) else {
            return Err(WalkStop::PastEnd);
        };
        if word == 0 || word & NOT_COMPLETE != 0 {
            return Err(if word == END_OF_FILE { WalkStop::EndOfFile } else { WalkStop::NotReady });
        }
        let length = word & LENGTH_MASK;
        let next = body + u64::from(length);
        if next > self.end {
            return Err(WalkStop::PastEnd);
        }
        if word & META_DATA != 0 {
            self.position = next;
            return Ok(None);
        }
        self.allow(i64::from(length))?;
        debug_assert!(length > 0, "a word of 0 is no header");
        debug_assert!(self.store.has(body as usize, length as usize));
        self.position = next;
        Ok(Some((body, i64::from(length))))
    }

    fn allow(&mut self, length: i64) -> Result<(), WalkStop> {
        let limits = &self.limits;
        if length > limits.payload {
            return Err(WalkStop::TooLarge);
        }
        self.total += length; // all these bytes lie within one buffer
        if self.count >= limits.count || (self.total > limits.bytes && self.count > 0) {
            return Err(WalkStop::Limit);
        }
        self.count += 1;
        Ok(())
    }
}
