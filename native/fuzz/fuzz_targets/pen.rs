//! A pen appends all or nothing, to the files that it was made for and to nothing else. It may meet
//! any bytes in the files, and be given any numbers.

#![no_main]

use std::sync::atomic::Ordering;

use arbitrary::{Arbitrary, Unstructured};
use cqrepl_kernel::append::pen::PenPlace;
use cqrepl_kernel::append::terms::{Refusal, Terms};
use cqrepl_kernel::batch::layout::MeasuredBatch;
use cqrepl_kernel::mem::{Longs, Source};
use cqrepl_kernel_fuzz::files::{stored, Files, FIRST};
use cqrepl_kernel_fuzz::{Batch, Number, Store};
use libfuzzer_sys::fuzz_target;

/// Puts other numbers over some of the good ones.
fn spoil(terms: &mut Terms, input: &mut Unstructured) -> arbitrary::Result<PenPlace> {
    let mut spoil = |numbers: &mut [&mut i64]| -> arbitrary::Result<()> {
        for number in numbers {
            if let Some(spoilt) = Option::<Number>::arbitrary(input)? {
                **number = spoilt.0;
            }
        }
        Ok(())
    };
    let Terms { lock, start, append_lock, changes, write_position, last_index, .. } = terms;
    let words = [lock, start, append_lock, changes, write_position, last_index];
    let Terms { page, page_size, payload_max, reserved, step, .. } = terms;
    for size in words.into_iter().chain([page, page_size, payload_max, reserved, step]) {
        let mut number = *size as i64;
        spoil(&mut [&mut number])?;
        *size = number as usize;
    }
    let Terms { sequence_end, index_count, index_spacing, page_first, changes_seen, .. } = terms;
    spoil(&mut [sequence_end, index_count, index_spacing, page_first, changes_seen])?;
    let (mut word, mut bits, mut place) = (8, 32, [0, FIRST as i64]);
    spoil(&mut [&mut terms.index_first, &mut word, &mut bits])?;
    terms.sequence_word = usize::try_from(word).ok();
    terms.sequence_bits = bits as u32;
    let [sequence, position] = &mut place;
    spoil(&mut [sequence, position])?;
    Ok(PenPlace { sequence: place[0].into(), position: place[1].into(), ..PenPlace::default() })
}

/// A place at which excerpts can be.
fn place_in(files: &Files, input: &mut Unstructured) -> arbitrary::Result<PenPlace> {
    let sequence = input.int_in_range(0..=40_i64)?;
    let position = if input.ratio(1, 2)? {
        FIRST as i64
    } else {
        input.int_in_range(FIRST as i64..=files.store.len() as i64)?
    };
    Ok(PenPlace { sequence: sequence.into(), position: position.into(), ..PenPlace::default() })
}

/// Appends a batch, and compares the files with what was in them before.
fn append(input: &mut Unstructured) -> arbitrary::Result<()> {
    let (Store(documents), batch) = (Store::arbitrary(input)?, Batch::arbitrary(input)?);
    let mut files = Files::new(&documents, input.int_in_range(0..=1024)?);
    let (mut terms, mut place) = (files.terms(), place_in(&files, input)?);
    let is_spoilt = input.ratio(1, 3)?;
    if is_spoilt {
        place = spoil(&mut terms, input)?;
    }
    let index = Option::<Number>::arbitrary(input)?.map(|index| {
        let sequence = place.sequence.load(Ordering::Relaxed);
        if index.0 < 128 {
            terms.index_first.wrapping_add(sequence)
        } else {
            index.0
        }
    });
    let (offsets, lengths) = (Longs::from(&*batch.offsets), Longs::from(&*batch.lengths));
    let count = batch.lengths.len() as i64;
    let Ok(measured) = MeasuredBatch::new(Source::from(&*batch.data), offsets, lengths, 0, count)
    else {
        return Ok(());
    };
    let before = files.store.clone();
    let outcome = match files.pen(&terms, &place) {
        Ok(pen) => pen.append_batch(&measured, index, input.arbitrary()?),
        Err(fault) => Err(fault),
    };
    if is_spoilt {
        return Ok(()); // the words of the pen may be anywhere in the files
    }
    assert!(files.are_free());
    let Ok((last, None)) = outcome else {
        assert_ne!(outcome.map(|(_, refusal)| refusal), Ok(Some(Refusal::LockLost)));
        assert_eq!(files.store[FIRST..], before[FIRST..]);
        return Ok(());
    };
    assert_eq!(last, terms.index_first + place.sequence.load(Ordering::Relaxed) - 1);
    assert!(index.is_none_or(|index| index + count - 1 == last));
    let end = place.position.load(Ordering::Relaxed) as usize;
    let first = end - measured.size + 8; // the zeros behind the batch are part of its size
    assert_eq!(files.store[FIRST..first], before[FIRST..first]);
    assert_eq!(files.store[end + 8..], before[end + 8..]);
    let found = files.excerpts(first as i64);
    assert_eq!(found.len() as i64, count);
    for (nth, payload) in found.into_iter().enumerate() {
        assert_eq!(payload, stored(batch.payload(nth).expect("within the data")));
    }
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = append(&mut Unstructured::new(input)); // an error: the input is too short
});
