//! Runs: excerpts that are passed on with the bytes of the store file as they stand.
//!
//! ```text
//! word | payload | gap | word | payload | gap | ... | word | payload
//! ```
//!
//! A run begins at a header and ends with its last payload. Only whole excerpts stand in it, each
//! header a multiple of 4 bytes behind the first one, and zeros in the gaps. `cqrepl/kernel/plainruns.py`
//! is the reference.
//!
//! In a document, behind a cid document:
//!
//! ```text
//! word | C3 'run' | 82 u32 | AF index8 | A6 count4 | A7 nanos8 | 82 u32 | bytes
//! ```

use crate::batch::apart::Apart;
use crate::batch::documents::{BODY_MAX, HEADER_BYTES, META_DATA, NOT_COMPLETE};
use crate::batch::layout::{Laid, SlotCounter, TAIL};
use crate::mem::fault::{self, push, Fault};
use crate::mem::{Longs, Source, Target};

/// The fewest excerpts of a run; a single one is framed.
pub const EXCERPTS_MIN: usize = 2;
/// The most excerpts of a run.
pub const EXCERPTS_MAX: usize = 16_384;
/// The most bytes from the first header of a run to the end of its last payload.
pub const BYTES_MAX: usize = 1 << 20;
/// The bytes of a document before those of its run.
pub const HEAD_BYTES: usize = 41;
const NAME: [u8; 4] = *b"\xC3run";
const BLOCK: u8 = 0x82;
const INDEX: u8 = 0xAF;
const COUNT: u8 = 0xA6;
const NANOS: u8 = 0xA7;
const IN_BLOCK: usize = HEAD_BYTES - HEADER_BYTES - NAME.len() - 5;

/// What is wrong with bytes that should be a run; the numbers are those of
/// `cqrepl.kernel.batch.RunFault`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunFault {
    /// They end before the last excerpt begins.
    Ended = 1,
    /// More bytes stand behind the last excerpt.
    Longer = 2,
    /// They end within an excerpt.
    Cut = 3,
    /// Meta-data stand among the excerpts.
    Meta = 4,
    /// An excerpt is not complete.
    Working = 5,
    /// A header word is 0.
    Empty = 6,
    /// An excerpt is longer than allowed.
    TooLong = 7,
    /// A gap holds something else than zeros.
    Gap = 8,
}

/// A walk over the headers of a run, from the first one on.
pub struct RunWalk<'a> {
    data: Source<'a>,
    end: usize,
    payload_max: i64,
    at: usize,
    /// The offset behind the last payload.
    pub behind: usize,
}

impl<'a> RunWalk<'a> {
    /// A walk over the bytes from `start` to `end`.
    pub fn new(
        data: Source<'a>,
        start: usize,
        end: usize,
        payload_max: i64,
    ) -> Result<Self, Fault> {
        if start > end || end > data.len() {
            return Err(fault::POSITION_OUTSIDE);
        }
        Ok(RunWalk { data, end, payload_max, at: start, behind: start })
    }

    /// Passes one excerpt; the answer is where its payload starts, and how long it is.
    #[inline]
    pub fn excerpt(&mut self) -> Result<(usize, usize), RunFault> {
        let body = self.at + HEADER_BYTES;
        if body > self.end {
            return Err(RunFault::Ended);
        }
        if !is_zero(self.data, self.behind, self.at) {
            return Err(RunFault::Gap);
        }
        let word = u32::from_le_bytes(self.data.read(self.at).ok_or(RunFault::Ended)?);
        if word == 0 {
            return Err(RunFault::Empty);
        }
        if word & NOT_COMPLETE != 0 {
            return Err(RunFault::Working);
        }
        if word & META_DATA != 0 {
            return Err(RunFault::Meta);
        }
        if i64::from(word) > self.payload_max {
            return Err(RunFault::TooLong);
        }
        let length = word as usize; // it has at most 30 bits
        let behind = body.saturating_add(length);
        if behind > self.end {
            return Err(RunFault::Cut);
        }
        self.behind = behind;
        self.at = behind + gap_behind(length);
        Ok((body, length))
    }

    /// Ends the walk: nothing may stand behind the last excerpt.
    pub fn ends(&self) -> Result<(), RunFault> {
        if self.behind == self.end {
            Ok(())
        } else {
            Err(RunFault::Longer)
        }
    }
}

/// Where payloads are, and how long they are.
pub type Places = (Vec<i64>, Vec<i64>);

/// Where the excerpts of a run are, and how long they are.
pub fn split(
    data: Source,
    start: i64,
    end: i64,
    count: i64,
    payload_max: i64,
) -> Result<Result<Places, RunFault>, Fault> {
    let start = fault::offset(start, fault::POSITION_OUTSIDE)?;
    let end = fault::offset(end, fault::POSITION_OUTSIDE)?;
    let mut walk = RunWalk::new(data, start, end, payload_max)?;
    let (mut offsets, mut lengths) = (Vec::new(), Vec::new());
    for _ in 0..count {
        match walk.excerpt() {
            Ok((offset, length)) => {
                push(&mut offsets, offset as i64)?;
                push(&mut lengths, length as i64)?;
            }
            Err(refused) => return Ok(Err(refused)),
        }
    }
    Ok(walk.ends().map(|()| (offsets, lengths)))
}

/// How many excerpts of a batch, from `start` on, stand in its data as a run.
pub fn run_length(
    data: Source,
    offsets: Longs,
    lengths: Longs,
    start: i64,
    count_max: i64,
    bytes_max: i64,
) -> Result<i64, Fault> {
    let start = fault::offset(start, fault::PART_OUTSIDE)?;
    if offsets.len() != lengths.len() {
        return Err(fault::PART_OUTSIDE);
    }
    let mut growing: Option<Growing> = None;
    let mut count = 0;
    while count < count_max {
        let nth = start.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
        let Some((offset, length)) = offsets.get(nth).zip(lengths.get(nth)) else {
            break;
        };
        let grows = growing.get_or_insert_with(|| Growing::new(bytes_max));
        if !grows.takes(data, offset, length) {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// A run that grows, excerpt by excerpt, from the data that they stand in.
pub struct Growing {
    bytes_max: i64,
    /// Where the first header stands, and where the next one has to; `None` before the first.
    place: Option<(usize, usize)>,
    is_over: bool,
    /// The offset behind the last payload.
    pub end: usize,
}

impl Growing {
    /// A run of at most so many bytes.
    pub fn new(bytes_max: i64) -> Self {
        Growing { bytes_max, place: None, is_over: false, end: 0 }
    }

    /// Where the first header stands; `None` before the first excerpt.
    pub fn start(&self) -> Option<usize> {
        self.place.map(|(first, _)| first)
    }

    /// Takes the excerpt whose payload is there; false when it does not belong to this run.
    #[inline]
    pub fn takes(&mut self, data: Source, offset: i64, length: i64) -> bool {
        let (Ok(body), Ok(length)) = (usize::try_from(offset), usize::try_from(length)) else {
            return false;
        };
        let Some(header) = body.checked_sub(HEADER_BYTES).filter(|_| length > 0 && !self.is_over)
        else {
            return false;
        };
        let (first, next) = self.place.unwrap_or((header, header));
        let end = body.saturating_add(length);
        if header != next || end > data.len() {
            return false;
        }
        let bytes = i64::try_from(end - first).unwrap_or(i64::MAX);
        let word = data.read(header).map(u32::from_le_bytes);
        if bytes > self.bytes_max || word.map(|word| word as usize) != Some(length) {
            return false;
        }
        let next = end + gap_behind(length);
        // the run ends with this excerpt where the next one could not follow
        self.is_over = next > data.len() || !is_zero(data, end, next);
        (self.place, self.end) = (Some((first, next)), end);
        true
    }
}

/// What a document says of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// The index of the first excerpt.
    pub index: i64,
    /// The number of excerpts.
    pub count: usize,
    /// The nano time.
    pub ns: i64,
    /// The number of bytes of the run.
    pub size: usize,
}

impl RunHead {
    /// True when a document at `at` says that it holds a run, as far as it is there.
    pub fn stands_at(data: Source, at: usize) -> bool {
        data.holds(at.saturating_add(HEADER_BYTES), &NAME)
    }

    /// The head of the document at `at`, if it is one that may be written, and the document is
    /// whole.
    pub fn read(data: Source, at: usize) -> Option<Self> {
        let [word @ .., b0, b1, b2, b3] = data.read::<8>(at)?;
        let [block, inner @ ..] = data.read::<5>(at.checked_add(8)?)?;
        let [index_code, index @ ..] = data.read::<9>(at.checked_add(13)?)?;
        let [count_code, count @ ..] = data.read::<5>(at.checked_add(22)?)?;
        let [ns_code, ns @ ..] = data.read::<9>(at.checked_add(27)?)?;
        let [size_block, size @ ..] = data.read::<5>(at.checked_add(36)?)?;
        let number = |bytes| usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX);
        let (size, index) = (number(size), i64::from_le_bytes(index));
        let count = number(count);
        let is_head = [b0, b1, b2, b3] == NAME
            && [block, index_code, count_code, ns_code, size_block]
                == [BLOCK, INDEX, COUNT, NANOS, BLOCK]
            && number(inner) == size.saturating_add(IN_BLOCK)
            && number(word) == size.saturating_add(HEAD_BYTES - HEADER_BYTES)
            && (EXCERPTS_MIN..=EXCERPTS_MAX).contains(&count)
            && size <= BYTES_MAX
            && index >= 0
            && index.checked_add(count as i64).is_some()
            && data.has(at, HEAD_BYTES + size);
        is_head.then(|| RunHead { index, count, ns: i64::from_le_bytes(ns), size })
    }

    /// Stores the head at `at`.
    pub fn put(&self, out: &mut Target, at: usize) -> Result<(), Fault> {
        let word = self.size.saturating_add(HEAD_BYTES - HEADER_BYTES);
        if word > BODY_MAX {
            return Err(fault::TOO_LONG);
        }
        let mut head = [0; HEAD_BYTES];
        let number = |number: usize| (number as u32).to_le_bytes(); // each is at most the word
        let parts: [(usize, &[u8]); 11] = [
            (0, &number(word)),
            (4, &NAME),
            (8, &[BLOCK]),
            (9, &number(self.size + IN_BLOCK)),
            (13, &[INDEX]),
            (14, &self.index.to_le_bytes()),
            (22, &[COUNT]),
            (23, &number(self.count)),
            (27, &[NANOS]),
            (28, &self.ns.to_le_bytes()),
            (36, &[BLOCK]),
        ];
        for (start, part) in parts.into_iter().chain([(37, &number(self.size)[..])]) {
            let there = head.get_mut(start..).and_then(|rest| rest.get_mut(..part.len()));
            there.ok_or(fault::POSITION_OUTSIDE)?.copy_from_slice(part);
        }
        out.put(at, &head).ok_or(fault::POSITION_OUTSIDE)
    }
}

/// Runs that were looked through, so that they can be stored as they are, one behind the other.
pub struct MeasuredRuns<'a> {
    /// The bytes of each, from its first header to the end of its last payload.
    parts: Vec<Source<'a>>,
    /// The number of excerpts.
    pub count: usize,
    /// The greatest of the lengths of the payloads.
    pub longest: usize,
    /// The sum of the lengths of the payloads.
    pub payload_bytes: usize,
    /// The sequence and header of each excerpt that belongs into the index, from the start of the
    /// first run.
    marks: Vec<(i64, usize)>,
    last: usize,
    /// The offset behind the last gap.
    end: usize,
}

impl<'a> MeasuredRuns<'a> {
    /// Looks through a run, whose first excerpt has this sequence.
    ///
    /// `spacing` is the number of excerpts to an index slot.
    pub fn new(
        bytes: Source<'a>,
        count: usize,
        payload_max: i64,
        sequence: i64,
        spacing: i64,
    ) -> Result<Result<Self, RunFault>, Fault> {
        let mut slots = SlotCounter::new(sequence, spacing, count)?;
        let mut walk = RunWalk::new(bytes, 0, bytes.len(), payload_max)?;
        let (mut longest, mut payload_bytes, mut last) = (0, 0, 0);
        for _ in 0..count {
            let (body, length) = match walk.excerpt() {
                Ok(found) => found,
                Err(refused) => return Ok(Err(refused)),
            };
            last = body - HEADER_BYTES;
            slots.pass(last)?;
            longest = longest.max(length);
            payload_bytes += length; // all these bytes lie within one buffer
        }
        let (marks, end) = (slots.found, bytes.len() + gap_behind(bytes.len()));
        let mut parts = Vec::new();
        push(&mut parts, bytes)?;
        Ok(walk.ends().map(|()| MeasuredRuns {
            parts,
            count,
            longest,
            payload_bytes,
            marks,
            last,
            end,
        }))
    }

    /// Puts runs behind these, which were measured with the sequence that follows.
    pub fn join(&mut self, next: Self) -> Result<(), Fault> {
        let before = self.end;
        for part in next.parts {
            push(&mut self.parts, part)?;
        }
        for (sequence, at) in next.marks {
            push(&mut self.marks, (sequence, before + at))?;
        }
        self.count += next.count; // all these lie within one buffer
        self.longest = self.longest.max(next.longest);
        self.payload_bytes += next.payload_bytes;
        self.last = before + next.last;
        self.end = before + next.end;
        Ok(())
    }

    /// The first `count` excerpts, and the others, if there are any. The first one of all has this
    /// sequence.
    pub fn split(
        &self,
        count: usize,
        sequence: i64,
        spacing: i64,
    ) -> Result<(Self, Option<Self>), Fault> {
        let (mut before, mut behind): (Option<Self>, Option<Self>) = (None, None);
        let mut next = sequence;
        for part in &self.parts {
            let (mut start, mut left) = (0, sequence.saturating_add(count as i64) - next);
            while start < part.len() {
                let mut walk = RunWalk::new(*part, start, part.len(), i64::MAX)?;
                let mut passed = 0;
                while walk.behind < part.len() && (passed == 0 || passed != left) {
                    walk.excerpt().map_err(|_| fault::EXCERPT_OUTSIDE)?;
                    passed += 1;
                }
                let bytes = part.part(start, walk.behind - start).ok_or(fault::PART_OUTSIDE)?;
                let run = Self::new(bytes, passed as usize, i64::MAX, next, spacing)?;
                let run = run.map_err(|_| fault::EXCERPT_OUTSIDE)?;
                let half = if left > 0 { &mut before } else { &mut behind };
                match half {
                    Some(half) => half.join(run)?,
                    None => *half = Some(run),
                }
                (next, left, start) = (next + passed, left - passed, walk.at);
            }
        }
        Ok((before.ok_or(fault::PART_OUTSIDE)?, behind))
    }

    /// The bytes that are stored, from the first header to the end of the zeros behind the last run.
    pub fn size(&self) -> usize {
        self.end + TAIL.len()
    }

    /// What is stored: an image of all that stands between and behind the runs, which is zeros, and
    /// the bytes of the runs apart from it. The image begins with the place of the first header
    /// word.
    pub fn image(&self) -> Result<(Vec<u8>, Apart<'a>), Fault> {
        let (mut image, mut apart) = (Vec::new(), Apart::default());
        let bytes = self.parts.iter().map(Source::len).sum::<usize>();
        let zeros = (self.size() + HEADER_BYTES).saturating_sub(bytes);
        image.try_reserve_exact(zeros)?;
        image.resize(zeros, 0);
        let (mut at, mut skipped) = (HEADER_BYTES, HEADER_BYTES);
        for part in &self.parts {
            let behind = part.part(skipped, part.len().saturating_sub(skipped));
            apart.put(at, behind.ok_or(fault::POSITION_OUTSIDE)?)?;
            at += gap_behind(part.len());
            skipped = 0;
        }
        debug_assert_eq!(at + TAIL.len(), image.len());
        debug_assert_eq!(image.len() + apart.bytes, self.size());
        Ok((image, apart))
    }

    /// What they are to have been stored at `position`.
    pub fn laid(&self, position: usize) -> Result<Laid, Fault> {
        let first = self.parts.first().and_then(|first| first.read(0));
        let first_word = first.map(u32::from_le_bytes).ok_or(fault::POSITION_OUTSIDE)?;
        let mut marks = self.marks.clone();
        marks.iter_mut().for_each(|(_, at)| *at += position);
        Ok(Laid { first_word, end: position + self.end, last: position + self.last, marks })
    }

    /// Lays the runs from the header at `position` on, and leaves the first header word as it is.
    pub fn lay(&self, mut store: Target, position: usize) -> Result<Laid, Fault> {
        let (mut at, mut skipped) = (position, HEADER_BYTES);
        for part in &self.parts {
            let (end, rest) = (at + part.len(), part.len().saturating_sub(skipped));
            let gap = [0; HEADER_BYTES - 1];
            let gap = gap.get(..gap_behind(part.len())).unwrap_or_default();
            store
                .put(end, gap)
                .and_then(|()| store.copy(at + skipped, *part, skipped, rest))
                .ok_or(fault::POSITION_OUTSIDE)?;
            (at, skipped) = (end + gap.len(), 0);
        }
        store.put(at, &TAIL).ok_or(fault::POSITION_OUTSIDE)?;
        self.laid(position)
    }
}

/// The length of the gap behind a payload, in bytes.
pub fn gap_behind(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// True when all bytes from `start` to `end`, at most 3, are 0.
#[inline]
fn is_zero(data: Source, start: usize, end: usize) -> bool {
    (start..end).all(|at| data.read(at) == Some([0_u8]))
}
