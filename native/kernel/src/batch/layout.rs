//! The batch of new excerpts that is laid into a store file.

use crate::batch::apart::Apart;
use crate::batch::documents::{BODY_MAX, HEADER_BYTES};
use crate::mem::fault::{self, push, Fault};
use crate::mem::{Longs, Source, Target};

const EMPTY_STORED: [u8; 1] = [0x8F];
const TAIL: [u8; 8] = [0; 8];
/// A header, at least one byte of body, up to 3 bytes of gap.
const LAID_BYTES_MAX: usize = HEADER_BYTES + EMPTY_STORED.len() + 3;

/// What was laid, to be published and put into the index.
#[derive(Debug, PartialEq, Eq)]
pub struct Laid {
    /// The word that publishes the batch.
    pub first_word: u32,
    /// Position behind the batch: of the next header.
    pub end: usize,
    /// Position of the last header.
    pub last: usize,
    /// Sequence and header position of those that belong into the index.
    pub marks: Vec<(i64, usize)>,
}

/// A part of a batch, compared with its data: `size` bytes when laid, the tail included.
pub struct MeasuredBatch<'a> {
    data: Source<'a>,
    offsets: Longs<'a>,
    lengths: Longs<'a>,
    start: usize,
    stop: usize,
    /// Bytes from the first header to behind the tail.
    pub size: usize,
    /// Sum of the lengths of the payloads.
    pub bytes: usize,
    /// Greatest of the lengths of the payloads.
    pub longest: usize,
}

impl<'a> MeasuredBatch<'a> {
    /// The excerpts `start` to `start + count`.
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
        let (size, bytes, longest) = (TAIL.len(), 0, 0);
        let mut batch = MeasuredBatch { data, offsets, lengths, start, stop, size, bytes, longest };
        for nth in start..stop {
            let (_, length) = batch.excerpt(nth)?;
            let laid = HEADER_BYTES + padded(length.max(EMPTY_STORED.len()));
            batch.size = batch.size.checked_add(laid).ok_or(fault::POSITION_OUTSIDE)?;
            batch.bytes += length; // less than what was just added without an overflow
            batch.longest = batch.longest.max(length);
        }
        debug_assert!(batch.size.is_multiple_of(HEADER_BYTES));
        debug_assert!(batch.size <= batch.size_bound());
        debug_assert!(batch.longest <= batch.bytes);
        Ok(batch)
    }

    /// How many excerpts there are.
    pub fn count(&self) -> usize {
        self.stop - self.start
    }

    /// Upper bound of `size`, which takes every gap for 3 bytes: what `laid_size` says.
    pub fn size_bound(&self) -> usize {
        let laid = self.count().saturating_mul(LAID_BYTES_MAX);
        self.bytes.saturating_add(laid).saturating_add(TAIL.len())
    }

    /// Where in the data an excerpt lies. Compared each time, as the arrays may change.
    fn excerpt(&self, nth: usize) -> Result<(usize, usize), Fault> {
        let (offset, length) = self
            .offsets
            .get(nth)
            .zip(self.lengths.get(nth))
            .and_then(|(offset, length)| {
                usize::try_from(offset).ok().zip(usize::try_from(length).ok())
            })
            .ok_or(fault::EXCERPT_OUTSIDE)?;
        if !self.data.has(offset, length) {
            return Err(fault::EXCERPT_OUTSIDE);
        }
        if length > BODY_MAX {
            return Err(fault::TOO_LONG);
        }
        Ok((offset, length))
    }

    /// Lays the batch from the header at `position` on; leaves the first header word as it is.
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
        if !store.overlaps(self.data) {
            let slots = SlotCounter::new(sequence, spacing, self.stop - self.start)?;
            return self.write(&mut store, position, slots, usize::MAX, &mut Apart::default());
        }
        // what is laid must not become what is read
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

    /// Lays the batch into `image`, of its size, as it is to stand at `position`; payloads of so many
    /// bytes apart, which is empty. All but the first header word is written.
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

    /// What is apart is not in `store`, and all behind it stands so much earlier there.
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
            let (offset, length) = self.excerpt(nth)?;
            slots.pass(at)?;
            let body = at + HEADER_BYTES;
            let stored = length.max(EMPTY_STORED.len());
            let word = stored as u32; // at most 30 bits
            let next = body + padded(stored);
            let here = at - apart.bytes;
            let payload = here + HEADER_BYTES;
            let put = if length >= apart_min.max(1) {
                let data = self.data.part(offset, length).ok_or(fault::EXCERPT_OUTSIDE)?;
                apart.put(payload, data)?;
                store.put(payload, &[0; HEADER_BYTES])
            } else {
                // the gap first, with the body's last bytes over it
                let gap = store.put(next - apart.bytes - HEADER_BYTES, &[0; HEADER_BYTES]);
                gap.and(if length == 0 {
                    store.put(payload, &EMPTY_STORED)
                } else {
                    store.copy(payload, self.data, offset, length)
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

/// Which of a batch belong into the index; counts, as a division each would cost more than the rest.
struct SlotCounter {
    sequence: i64,
    spacing: i64,
    to_next: i64,
    found: Vec<(i64, usize)>,
}

impl SlotCounter {
    fn new(sequence: i64, spacing: i64, count: usize) -> Result<Self, Fault> {
        i64::try_from(count)
            .ok()
            .and_then(|count| sequence.checked_add(count))
            .ok_or(Fault::Overflow("expected sequences of at most 64 bits"))?;
        // how far behind the last multiple it stands, at least 0 for negative ones too
        let behind = sequence.rem_euclid(spacing);
        let to_next = if behind == 0 { 0 } else { spacing - behind };
        Ok(SlotCounter { sequence, spacing, to_next, found: Vec::new() })
    }

    fn pass(&mut self, position: usize) -> Result<(), Fault> {
        if self.to_next == 0 {
            push(&mut self.found, (self.sequence, position))?;
            self.to_next = self.spacing;
        }
        self.to_next -= 1;
        self.sequence += 1;
        Ok(())
    }
}

fn padded(length: usize) -> usize {
    (length + 3) & !3 // of at most 30 bits
}

/// Upper bound of the bytes that a batch takes.
pub fn laid_size(lengths: Longs, start: i64, count: i64) -> Result<i128, Fault> {
    let (total, _) = measure_lengths(lengths, start, count)?;
    Ok(total + i128::from(count) * LAID_BYTES_MAX as i128 + TAIL.len() as i128)
}

/// Sum and greatest of some lengths; the greatest is 0 where there are none.
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
