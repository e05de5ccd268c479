//! What is laid is found again, and nothing around it changes; what cannot be laid changes nothing.

#![no_main]

use cqrepl_kernel::batch::apart::Apart;
use cqrepl_kernel::batch::documents::{Limits, Walk};
use cqrepl_kernel::batch::layout::{laid_size, measure_lengths, MeasuredBatch};
use cqrepl_kernel::mem::{Longs, Source, Target};
use cqrepl_kernel_fuzz::{Batch, Number, Room};
use libfuzzer_sys::fuzz_target;

const FREE: Limits = Limits { count: i64::MAX, bytes: i64::MAX, payload: i64::MAX };

fuzz_target!(|input: (Batch, Room, [Number; 5], u8)| {
    let (batch, Room(mut store), numbers, apart_min) = input;
    let apart_min = usize::from(apart_min);
    let [start, count, position, sequence, spacing] = numbers.map(|number| number.0);
    let (offsets, lengths) = (Longs::from(&*batch.offsets), Longs::from(&*batch.lengths));
    let bound = laid_size(lengths, start, count);
    let _ = measure_lengths(lengths, start, count);
    let Ok(measured) =
        MeasuredBatch::new(Source::from(&*batch.data), offsets, lengths, start, count)
    else {
        return;
    };
    assert!(bound.expect("a part of the batch") >= measured.size as i128);
    let before = store.clone();
    let Ok(laid) = measured.lay(Target::from(&mut *store), position, sequence, spacing) else {
        assert_eq!(store, before);
        return;
    };
    let part = start as usize..start as usize + count as usize;
    let each: Vec<Source> =
        part.map(|nth| Source::from(batch.payload(nth).expect("within the data"))).collect();
    let mut copied = before.clone();
    let measured_each = MeasuredBatch::of_each(&each).expect("there are payloads");
    let laid_each = measured_each
        .lay(Target::from(&mut *copied), position, sequence, spacing)
        .expect("as before");
    assert_eq!((&laid_each, &copied), (&laid, &store));
    let (mut image, mut apart) = (vec![0; measured.size], Apart::default());
    let again = measured
        .lay_image(&mut image, position as usize, sequence, spacing, apart_min, &mut apart)
        .expect("as before");
    assert_eq!(again, laid);
    let in_image = &image[..measured.size - apart.bytes];
    let (first, behind) = (position as usize, position as usize + measured.size);
    assert_eq!(store[..first + 4], before[..first + 4]); // it is not published
    assert_eq!(store[behind..], before[behind..]);
    assert_eq!(apart.joined(in_image, 4).expect("memory"), store[first + 4..behind]);
    store[first..first + 4].copy_from_slice(&laid.first_word.to_le_bytes());
    let end = store.len() as i64;
    let mut walk = Walk::new(Source::from(&*store), position, end, FREE).expect("within");
    assert!(walk.step(usize::MAX).expect("there is memory").is_some());
    assert_eq!((walk.position, walk.lengths.len() as i64), (laid.end as u64, count));
    for (nth, (&offset, &length)) in walk.offsets.iter().zip(&walk.lengths).enumerate() {
        let (offset, length) = (offset as usize, length as usize);
        let payload = batch.payload(start as usize + nth).expect("within the data");
        let expected = if payload.is_empty() { &[0x8F] } else { payload };
        assert_eq!(&store[offset..offset + length], expected);
    }
    assert_eq!(Some(laid.last as i64), walk.offsets.last().map(|offset| offset - 4));
    for &(marked, at) in &laid.marks {
        assert_eq!(marked.rem_euclid(spacing), 0);
        let nth = usize::try_from(marked - sequence).expect("one of the run");
        assert_eq!(walk.offsets[nth], at as i64 + 4);
    }
});
