//! The payloads of a batch side by side.

use crate::batch::documents::{AHEAD, SHORT};
use crate::mem::fault::{self, push, Fault};
use crate::mem::{Longs, Source, Target};

/// Where each payload starts when they stand side by side, and then where the last one ends.
///
/// Every payload has been compared with the data when this is done.
pub fn ends(data: Source, offsets: Longs, lengths: Longs) -> Result<Vec<i64>, Fault> {
    if offsets.len() != lengths.len() {
        return Err(fault::PART_OUTSIDE);
    }
    let mut ends = Vec::new();
    ends.try_reserve_exact(lengths.len().saturating_add(1))?;
    let mut end: i64 = 0;
    push(&mut ends, end)?;
    for nth in 0..lengths.len() {
        let (_, length) = excerpt(data, offsets, lengths, nth)?;
        end = end
            .checked_add(length as i64)
            .ok_or(Fault::Overflow("expected payloads of at most 64 bits of length"))?;
        push(&mut ends, end)?;
    }
    Ok(ends)
}

/// Copies the payloads side by side; the answer is the number of bytes. A payload that does not fit
/// is a fault.
pub fn gather(
    data: Source,
    offsets: Longs,
    lengths: Longs,
    mut out: Target,
) -> Result<usize, Fault> {
    let mut filled = 0;
    for nth in 0..lengths.len() {
        // the offset and the length are compared again, as the arrays may have changed
        let (offset, length) = excerpt(data, offsets, lengths, nth)?;
        if length < SHORT {
            data.expect(offset + AHEAD);
        }
        out.copy(filled, data, offset, length).ok_or(fault::EXCERPT_OUTSIDE)?;
        filled += length;
    }
    Ok(filled)
}

/// Offset and length of an excerpt, compared with the data.
pub fn excerpt(
    data: Source,
    offsets: Longs,
    lengths: Longs,
    nth: usize,
) -> Result<(usize, usize), Fault> {
    offsets
        .get(nth)
        .zip(lengths.get(nth))
        .and_then(|(offset, length)| usize::try_from(offset).ok().zip(usize::try_from(length).ok()))
        .filter(|&(offset, length)| data.has(offset, length))
        .ok_or(fault::EXCERPT_OUTSIDE)
}

/// `count` numbers from `first` on; no numbers if the count is below 1.
pub fn numbers(first: i64, count: i64) -> Result<Vec<i64>, Fault> {
    let count = count.max(0);
    if first.checked_add((count - 1).max(0)).is_none() {
        return Err(Fault::Overflow("expected numbers of at most 64 bits"));
    }
    let mut numbers = Vec::new();
    numbers.try_reserve_exact(usize::try_from(count).map_err(|_| Fault::Memory)?)?;
    numbers.extend((0..count).map(|nth| first + nth));
    Ok(numbers)
}

/// Which gaps before, between and behind payloads have more bytes than `gap_max`: gap `nth` ends
/// where payload `nth` starts, the last one at `stop`; the first one begins at `start`.
pub fn wide_gaps(
    offsets: Longs,
    lengths: Longs,
    start: i64,
    stop: i64,
    gap_max: i64,
) -> Result<Vec<i64>, Fault> {
    if offsets.len() != lengths.len() {
        return Err(fault::PART_OUTSIDE);
    }
    let mut wide = Vec::new();
    let mut end = i128::from(start); // sums of two numbers of 64 bits fit
    for nth in 0..=offsets.len() {
        let begin = offsets.get(nth).unwrap_or(stop);
        if i128::from(begin) - end > i128::from(gap_max) {
            push(&mut wide, nth as i64)?;
        }
        end = i128::from(begin) + i128::from(lengths.get(nth).unwrap_or(0));
    }
    Ok(wide)
}
