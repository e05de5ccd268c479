//! The documents of a batch, as they are to stand in a store file.
//!
//! The first header word is never written here: a reader sees the batch only when that word is
//! stored, which publishes all of it at once.

use crate::batch::apart::Apart;
use crate::batch::documents::{BODY_MAX, HEADER_BYTES};
use crate::mem::fault::{self, push, Fault};
use crate::mem::{Longs, Source, Target};

const EMPTY_STORED: [u8; 1] = [0x8F];
/// The zeros behind what is laid: a dead writer may have left bytes there.
pub const TAIL: [u8; 8] = [0; 8];
/// The most that a document adds to its payload: a header, one byte of body, 3 bytes of gap.
const LAID_BYTES_MAX: usize = HEADER_BYTES + EMPTY_STORED.len() + 3;

/// What was laid, to be published and put into the index.
#[derive(Debug, PartialEq, Eq)]
pub struct Laid {
    /// The word that publishes the batch.
    pub first_word: u32,
    /// The position behind the batch, where the next header is to stand.
    pub end: usize,
    /// The position of the last header.
    pub last: usize,
    /// The sequence and header position of each excerpt that belongs into the index.
    pub marks: Vec<(i64, usize)>,
}

/// Where the payloads of a batch are.
#[derive(Clone, Copy)]
enum PayloadPlaces<'a> {
    /// In one piece of memory.
    Within { data: Source<'a>, offsets: Longs<'a>, lengths: Longs<'a> },
    /// Each in memory of its own.
    Each(&'a [Source<'a>]),
}

impl<'a> PayloadPlaces<'a> {
    /// A payload. Its place is compared each time, as the arrays may change.
    #[inline]
    fn get(&self, nth: usize) -> Result<Source<'a>, Fault> {
        let payload = match self {
            PayloadPlaces::Each(payloads) => payloads.get(nth).copied(),
            PayloadPlaces::Within { data, offsets, lengths } => {
                offsets.get(nth).zip(lengths.get(nth)).and_then(|(offset, length)| {
                    let (offset, length) = (usize::try_from(offset), usize::try_from(length));
                    data.piece(offset.ok()?, length.ok()?)
                })
            }
        };
        let payload = payload.ok_or(fault::EXCERPT_OUTSIDE)?;
        if payload.len() > BODY_MAX {
            return Err(fault::TOO_LONG);
        }
        Ok(payload)
    }

    /// True when a byte of them is a byte of the store, too.
    fn overlap(&self, store: &Target) -> bool {
        match self {
            PayloadPlaces::Within { data, .. } => store.overlaps(*data),
            PayloadPlaces::Each(payloads) => {
                payloads.iter().any(|payload| store.overlaps(*payload))
            }
        }
    }
}

/// A part of a batch that was compared with its data, so that it is known how many bytes it takes.
pub struct MeasuredBatch<'a> {
    payloads: PayloadPlaces<'a>,
    start: usize,
    stop: usize,
    /// The bytes from the first header to the end of the zeros behind the last document.
    pub size: usize,
    /// The sum of the lengths of the payloads.
    pub bytes: usize,
    /// The greatest of the lengths of the payloads.
    pub longest: usize,
}

impl<'a> MeasuredBatch<'a> {
    /// The part with the excerpts `start` to `start + count`.
    pub fn new(
        data: Source<'a>,
        offsets: Longs<'a>,
        lengths: Longs<'a>,
        start: i64,
        count: i64,
    ) -> Result<Self, Fault> {
        let start = fault::offset(start, fault::PART_OUTSIDE)?;
        let count = fault::offset(count, fault::PART_OUTSIDE)?;
        let stop = start.checked_add(count).ok_or(fault::PART_OUTSIDE)?;
        if count == 0 || stop > offsets.len() || offsets.len() != lengths.len() {
            return Err(fault::PART_OUTSIDE);
        }
        Self::measure(PayloadPlaces::Within { data, offsets, lengths }, start, stop)
    }

    /// All of these payloads, at least one, each of which is copied from where it is.
    pub fn of_each(payloads: &'a [Source<'a>]) -> Result<Self, Fault> {
        if payloads.is_empty() {
            return Err(fault::PART_OUTSIDE);
        }
        Self::measure(PayloadPlaces::Each(payloads), 0, payloads.len())
    }

    fn measure(payloads: PayloadPlaces<'a>, start: usize, stop: usize) -> Result<Self, Fault> {
        let (size, bytes, longest) = (TAIL.len(), 0, 0);
        let mut batch = MeasuredBatch { payloads, start, stop, size, bytes, longest };
        for nth in start..stop {
            let length = batch.payloads.get(nth)?.len();
            let laid = HEADER_BYTES + padded(length.max(EMPTY_STORED.len()));
            batch.size = batch.size.checked_add(laid).ok_or(fault::POSITION_OUTSIDE)?;
            batch.bytes += length; // this cannot overflow, as the size did not
            batch.longest = batch.longest.max(length);
        }
        debug_assert!(batch.size.is_multiple_of(HEADER_BYTES));
        debug_assert!(batch.size <= batch.size_bound());
        debug_assert!(batch.longest <= batch.bytes);
        Ok(batch)
    }

    /// The number of excerpts.
    pub fn count(&self) -> usize {
        self.stop - self.start
    }

    /// The first `count` excerpts, and the others, if there are any.
    pub fn split(&self, count: usize) -> Result<(Self, Option<Self>), Fault> {
        let middle = self.start.saturating_add(count).min(self.stop);
        let before = Self::measure(self.payloads, self.start, middle)?;
        let is_over = middle == self.stop;
        let behind = (!is_over).then(|| Self::measure(self.payloads, middle, self.stop));
        Ok((before, behind.transpose()?))
    }

    /// The upper bound of `size` that takes every gap for 3 bytes, as `laid_size` does.
    pub fn size_bound(&self) -> usize {
        size_bound(self.count(), self.bytes)
    }

    /// Lays the batch from the header at `position` on, and leaves the first header word as it is.
    pub fn lay(
        &self,
        mut store: Target,
        position: i64,
        sequence: i64,
        spacing: i64,
    ) -> Result<Laid, Fault> {
        let position = fault::offset(position, fault::POSITION_OUTSIDE)?;
        let end = position.checked_add(self.size).ok_or(fault::POSITION_OUTSIDE)?;
        if end > store.len() || !position.is_multiple_of(HEADER_BYTES) {
            return Err(fault::POSITION_OUTSIDE);
        }
        if spacing < 1 {
            return Err(Fault::Value("expected an index spacing of at least 1"));
        }
        if !self.payloads.overlap(&store) {
            let slots = SlotCounter::new(sequence, spacing, self.stop - self.start)?;
            return self.write(&mut store, position, slots, usize::MAX, &mut Apart::default());
        }
        // the batch is laid into an image first, so that it does not overwrite what is still to be
        // read
        let mut image = Vec::new();
        image.try_reserve_exact(self.size)?;
        image.resize(self.size, 0);
        let none = &mut Apart::default();
        let laid = self.lay_image(&mut image, position, sequence, spacing, usize::MAX, none)?;
        debug_assert_eq!(image.first_chunk(), Some(&[0; HEADER_BYTES]), "it is not published");
        let behind_word = image.get(HEADER_BYTES..).unwrap_or_default();
        store.put(position + HEADER_BYTES, behind_word).ok_or(fault::POSITION_OUTSIDE)?;
        Ok(laid)
    }

    /// Lays the batch into `image`, which has its size, as it is to stand at `position`. Payloads
    /// of at least `apart_min` bytes are put into `apart`, which must be empty. All but the first
    /// header word is written.
    pub fn lay_image(
        &self,
        image: &mut [u8],
        position: usize,
        sequence: i64,
        spacing: i64,
        apart_min: usize,
        apart: &mut Apart<'a>,
    ) -> Result<Laid, Fault> {
        debug_assert_eq!(image.len(), self.size);
        debug_assert_eq!(apart.bytes, 0, "no payload was left apart before");
        let slots = SlotCounter::new(sequence, spacing, self.stop - self.start)?;
        let mut laid = self.write(&mut Target::from(image), 0, slots, apart_min, apart)?;
        laid.end += position;
        laid.last += position;
        laid.marks.iter_mut().for_each(|(_, at)| *at += position);
        Ok(laid)
    }

    /// Writes the documents. A payload that is put apart takes no room in `store`, so all behind it
    /// stands so much earlier there.
    fn write(
        &self,
        store: &mut Target,
        position: usize,
        mut slots: SlotCounter,
        apart_min: usize,
        apart: &mut Apart<'a>,
    ) -> Result<Laid, Fault> {
        let (mut at, mut last, mut first_word) = (position, position, 0);
        for nth in self.start..self.stop {
            let data = self.payloads.get(nth)?;
            let length = data.len();
            slots.pass(at)?;
            let body = at + HEADER_BYTES;
            let stored = length.max(EMPTY_STORED.len());
            let word = stored as u32; // it has at most 30 bits
            let next = body + padded(stored);
            let here = at - apart.bytes;
            let payload = here + HEADER_BYTES;
            let put = if length >= apart_min.max(1) {
                apart.put(payload, data)?;
                store.put(payload, &[0; HEADER_BYTES])
            } else {
                // the gap is written first, and the last bytes of the body over it
                let gap = store.put(next - apart.bytes - HEADER_BYTES, &[0; HEADER_BYTES]);
                gap.and(if length == 0 {
                    store.put(payload, &EMPTY_STORED)
                } else {
                    store.copy(payload, data, 0, length)
                })
            };
            if nth == self.start {
                first_word = word;
            } else {
                store.put(here, &word.to_le_bytes()).ok_or(fault::POSITION_OUTSIDE)?;
            }
            put.ok_or(fault::POSITION_OUTSIDE)?;
            (last, at) = (at, next);
        }
        store.put(at - apart.bytes, &TAIL).ok_or(fault::POSITION_OUTSIDE)?;
        debug_assert_eq!(at + TAIL.len(), position + self.size, "it is as long as was measured");
        debug_assert_ne!(first_word, 0, "it would publish nothing");
        debug_assert!(first_word as usize <= BODY_MAX, "it is a length, and complete");
        debug_assert!(slots.found.iter().all(|(_, header)| (position..=last).contains(header)));
        Ok(Laid { first_word, end: at, last, marks: slots.found })
    }
}

/// Finds the excerpts of a batch that belong into the index. It counts, as a division for each
/// excerpt would cost more than all the rest.
pub struct SlotCounter {
    sequence: i64,
    spacing: i64,
    to_next: i64,
    /// The sequence and header position of each.
    pub found: Vec<(i64, usize)>,
}

impl SlotCounter {
    /// Begins with this sequence; so many excerpts come.
    pub fn new(sequence: i64, spacing: i64, count: usize) -> Result<Self, Fault> {
        i64::try_from(count)
            .ok()
            .and_then(|count| sequence.checked_add(count))
            .ok_or(Fault::Overflow("expected sequences of at most 64 bits"))?;
        // the distance from the last multiple is at least 0, for negative sequences as well
        let behind = sequence.rem_euclid(spacing);
        let to_next = if behind == 0 { 0 } else { spacing - behind };
        Ok(SlotCounter { sequence, spacing, to_next, found: Vec::new() })
    }

    /// Passes the excerpt with this header.
    #[inline]
    pub fn pass(&mut self, position: usize) -> Result<(), Fault> {
        if self.to_next == 0 {
            push(&mut self.found, (self.sequence, position))?;
            self.to_next = self.spacing;
        }
        self.to_next -= 1;
        self.sequence += 1;
        Ok(())
    }
}

/// The upper bound of the bytes that so many excerpts take, with so many bytes of payload, every gap
/// taken for 3 bytes.
pub fn size_bound(count: usize, payload_bytes: usize) -> usize {
    let laid = count.saturating_mul(LAID_BYTES_MAX);
    payload_bytes.saturating_add(laid).saturating_add(TAIL.len())
}

fn padded(length: usize) -> usize {
    (length + 3) & !3 // it has at most 30 bits, so this cannot overflow
}

/// The upper bound of the bytes that a part of a batch takes.
pub fn laid_size(lengths: Longs, start: i64, count: i64) -> Result<i128, Fault> {
    let (total, _) = measure_lengths(lengths, start, count)?;
    Ok(total + i128::from(count) * LAID_BYTES_MAX as i128 + TAIL.len() as i128)
}

/// The sum and the greatest of some lengths; the greatest is 0 where there are none.
pub fn measure_lengths(lengths: Longs, start: i64, count: i64) -> Result<(i128, i64), Fault> {
    let start = fault::offset(start, fault::PART_OUTSIDE)?;
    let count = fault::offset(count, fault::PART_OUTSIDE)?;
    let stop = start.checked_add(count).ok_or(fault::PART_OUTSIDE)?;
    if stop > lengths.len() {
        return Err(fault::PART_OUTSIDE);
    }
    let (mut total, mut longest) = (0, None);
    for nth in start..stop {
        let length = lengths.get(nth).ok_or(fault::PART_OUTSIDE)?;
        total += i128::from(length);
        longest = longest.max(Some(length));
    }
    Ok((total, longest.unwrap_or(0)))
}
