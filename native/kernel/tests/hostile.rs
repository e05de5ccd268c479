//! Bytes and numbers that mean harm: nothing may panic, and nothing outside of a buffer may be
//! touched.
//!
//! `tests/property/test_kernels_agree.py` compares the results with those of the reference. Here
//! the crate is built with overflow checks and without Python, so that tools can look into it:
//! `cargo test --no-default-features`, `cargo +nightly miri test --no-default-features`.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // a test that panics has failed

use cqrepl_kernel::batch::columns;
use cqrepl_kernel::batch::documents::{Limits, Walk, WalkStop};
use cqrepl_kernel::batch::frames::{Frames, Framing, Scan};
use cqrepl_kernel::batch::layout::{laid_size, MeasuredBatch};
use cqrepl_kernel::mem::fault::Fault;
use cqrepl_kernel::mem::{Cells, Longs, Source, Target};
use std::sync::atomic::Ordering;

const GUARD: usize = 64;
const NOISE: u8 = 0xEE;
const ROUNDS: usize = if cfg!(miri) { 60 } else { 30_000 };
const FREE: Limits = Limits { count: i64::MAX, bytes: i64::MAX, payload: i64::MAX };

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A small number, or one around which sums overflow.
    fn number(&mut self) -> i64 {
        match self.below(8) {
            0 => i64::MAX - self.below(9) as i64,
            1 => i64::MIN + self.below(9) as i64,
            2 => self.next() as i64,
            _ => self.below(90) as i64 - 5,
        }
    }

    fn numbers(&mut self) -> Vec<i64> {
        (0..self.below(6)).map(|_| self.number()).collect()
    }

    /// Bytes with headers of all kinds in between.
    fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..self.below(16) {
            let word = match self.below(6) {
                0 => self.next() as u32,
                1 => 0xC000_0000,
                2 => 0x4000_0000 | self.below(12) as u32,
                _ => self.below(12) as u32,
            };
            bytes.extend_from_slice(&word.to_le_bytes());
            bytes.resize(bytes.len() + self.below(9) as usize, NOISE);
        }
        bytes
    }
}

/// Lets a function write into the middle of a buffer, and looks at what stands around it.
fn guarded<T>(room: usize, write: impl FnOnce(Target) -> T) -> T {
    let mut buffer = vec![NOISE; GUARD + room + GUARD];
    let result = write(Target::from(&mut buffer[GUARD..GUARD + room]));
    let (before, rest) = buffer.split_at(GUARD);
    assert!(before.iter().chain(&rest[room..]).all(|&byte| byte == NOISE));
    result
}

#[test]
#[cfg_attr(miri, ignore)] // miri has no such system call
fn populating_changes_nothing_and_stays_inside() {
    let mut numbers = Numbers(31);
    for _ in 0..ROUNDS / 10 {
        let room = numbers.below(20_000) as usize;
        let (start, end) = (numbers.below(25_000) as usize, numbers.below(25_000) as usize);
        let done = guarded(room, |target| {
            let before = Target::len(&target);
            let done = target.populate(start, end).map(|done| done.is_ok());
            assert_eq!(target.len(), before);
            done
        });
        assert_eq!(done, (start <= end && end <= room).then_some(true));
    }
    for (start, end) in [(usize::MAX, usize::MAX), (0, usize::MAX), (usize::MAX, 0), (1, 0)] {
        assert!(guarded(10, |target| target.populate(start, end)).is_none());
    }
}

fn lies_within(data: &[u8], offset: i64, length: i64) -> bool {
    offset >= 0
        && length >= 0
        && offset.checked_add(length).is_some_and(|end| end <= data.len() as i64)
}

#[test]
fn walks_stay_within_the_store() {
    let mut numbers = Numbers(1);
    for _ in 0..ROUNDS {
        let store = numbers.bytes();
        let limits =
            Limits { count: numbers.number(), bytes: numbers.number(), payload: numbers.number() };
        for (position, end, limits) in
            [(0, store.len() as i64, FREE), (numbers.number(), numbers.number(), limits)]
        {
            let Ok(mut walk) = Walk::new(Source::from(store.as_slice()), position, end, limits)
            else {
                assert!(position < 0 || end > store.len() as i64);
                continue;
            };
            while walk.step(2).expect("there is memory").is_none() {}
            for (&offset, &length) in walk.offsets.iter().zip(&walk.lengths) {
                assert!(lies_within(&store[..end as usize], offset, length));
            }
        }
    }
}

#[test]
fn runs_are_laid_within_the_store_or_not_at_all() {
    let mut numbers = Numbers(2);
    for _ in 0..ROUNDS {
        let (data, offsets, lengths) = (numbers.bytes(), numbers.numbers(), numbers.numbers());
        let (data, offsets, lengths) =
            (Source::from(&*data), Longs::from(&*offsets), Longs::from(&*lengths));
        let (start, count) = (numbers.number(), numbers.number());
        let _ = laid_size(lengths, start, count);
        let _ = columns::ends(data, offsets, lengths);
        guarded(numbers.below(90) as usize, |out| {
            let _ = columns::gather(data, offsets, lengths, out);
        });
        let Ok(measured) = MeasuredBatch::new(data, offsets, lengths, start, count) else {
            continue;
        };
        guarded(numbers.below(200) as usize, |store| {
            let _ = measured.lay(store, numbers.number(), numbers.number(), numbers.number());
        });
    }
}

#[test]
fn frames_are_written_within_the_buffer() {
    let mut numbers = Numbers(3);
    for _ in 0..ROUNDS {
        let (data, offsets, lengths) = (numbers.bytes(), numbers.numbers(), numbers.numbers());
        let (cid_document, ns_item) = (numbers.bytes(), numbers.bytes());
        let frames = Frames {
            data: Source::from(&*data),
            offsets: Longs::from(&*offsets),
            lengths: Longs::from(&*lengths),
            cid_document: &cid_document,
            ns_item: &ns_item,
        };
        let (start, index, filled) = (numbers.number(), numbers.number(), numbers.number());
        guarded(numbers.below(300) as usize, |out| {
            if let Ok(mut framing) = Framing::new(frames, start, index, out, filled) {
                while let Ok(true) = framing.step(2, 100) {}
            }
        });
    }
}

/// A frame as the network brings it, with an index that may lead astray.
fn frame(numbers: &mut Numbers) -> Vec<u8> {
    let payload = vec![7; numbers.below(5) as usize];
    let (offsets, lengths) = ([0], [payload.len() as i64]);
    let ns_item = [0xA7, 1, 2, 3, 4, 5, 6, 7, 8];
    let mut out = vec![0; 60];
    let frames = Frames {
        data: Source::from(&*payload),
        offsets: Longs::from(&offsets[..]),
        lengths: Longs::from(&lengths[..]),
        cid_document: b"cid",
        ns_item: &ns_item,
    };
    let mut framing =
        Framing::new(frames, 0, numbers.number(), Target::from(&mut *out), 0).expect("one index");
    framing.step(1, usize::MAX).expect("it fits");
    let filled = framing.filled;
    out.truncate(filled);
    out
}

#[test]
fn scans_stay_within_the_data() {
    let mut numbers = Numbers(4);
    let mut found = 0;
    for _ in 0..ROUNDS {
        let mut data: Vec<u8> = (0..3).flat_map(|_| frame(&mut numbers)).collect();
        for _ in 0..numbers.below(3) {
            let at = numbers.below(data.len() as u64) as usize;
            data[at] = numbers.next() as u8;
        }
        data.truncate(data.len() - numbers.below(9) as usize);
        let start = if numbers.below(2) == 0 { 0 } else { numbers.number() };
        if let Ok(mut scan) = Scan::new(data.as_slice().into(), start, b"cid", numbers.number()) {
            while scan.step(2).expect("there is memory") {}
            found += scan.offsets.len();
            for (&offset, &length) in scan.offsets.iter().zip(&scan.lengths) {
                assert!(lies_within(&data, offset, length));
            }
        }
    }
    assert!(found > 0);
}

#[test]
fn what_is_laid_is_found() {
    let data = b"abcdefghij";
    let (offsets, lengths) = ([0, 3, 3, 9], [3, 0, 5, 1]);
    let (source, offsets, lengths) =
        (Source::from(&data[..]), Longs::from(&offsets[..]), Longs::from(&lengths[..]));
    let measured =
        MeasuredBatch::new(source, offsets, lengths, 0, 4).expect("it lies within the data");
    let mut store = vec![NOISE; 8 + measured.size + 8];
    let laid = measured.lay(Target::from(&mut *store), 8, 6, 4).expect("there is room");
    assert_eq!((laid.end, laid.last, &*laid.marks), (8 + measured.size - 8, 36, &[(8, 24)][..]));
    assert_eq!(&store[8..12], [NOISE; 4]); // it is not published
    store[8..12].copy_from_slice(&laid.first_word.to_le_bytes());
    let end = store.len() as i64;
    let mut walk = Walk::new(Source::from(&*store), 8, end, FREE).expect("within");
    assert_eq!(walk.step(usize::MAX), Ok(Some(WalkStop::NotReady)));
    assert_eq!((walk.position, &*walk.lengths), (laid.end as u64, &[3, 1, 5, 1][..]));
    let mut together = [0; 9];
    assert_eq!(columns::gather(source, offsets, lengths, Target::from(&mut together[..])), Ok(9));
    assert_eq!(&together, b"abcdefghj");
    assert_eq!(columns::ends(source, offsets, lengths), Ok(vec![0, 3, 3, 8, 9]));
    let short = columns::gather(source, offsets, lengths, Target::from(&mut together[..8]));
    assert!(matches!(short, Err(Fault::Value(_))));
}

#[test]
fn payloads_that_lie_apart_are_laid_as_those_side_by_side() {
    let data = b"abcdefghij";
    let (offsets, lengths) = ([0, 3, 3, 9], [3, 0, 5, 1]);
    let each: Vec<Source> = [&data[..3], &[], &data[3..8], &data[9..]].map(Source::from).into();
    let apart = MeasuredBatch::of_each(&each).expect("there are payloads");
    let (offsets, lengths) = (Longs::from(&offsets[..]), Longs::from(&lengths[..]));
    let within =
        MeasuredBatch::new(Source::from(&data[..]), offsets, lengths, 0, 4).expect("within");
    assert_eq!((apart.size, apart.bytes, apart.longest), (within.size, 9, 5));
    let [one, other] = [&apart, &within].map(|measured| {
        let mut store = vec![NOISE; 8 + measured.size + 8];
        let laid = measured.lay(Target::from(&mut *store), 8, 6, 4).expect("there is room");
        (laid, store)
    });
    assert_eq!(one, other);
    assert!(matches!(MeasuredBatch::of_each(&[]), Err(Fault::Value(_))));
}

#[test]
fn a_payload_may_be_where_the_batch_is_laid() {
    let mut store = *b"0123456789abcdef0123456789abcdef";
    let there = Cells::from(&mut store[..]);
    let part = |from, count| there.source().part(from, count).expect("within");
    // each would stand where the other one is read
    let each = [part(20, 4), part(4, 8)];
    let measured = MeasuredBatch::of_each(&each).expect("there are payloads");
    let target = there.target().expect("it may be written");
    measured.lay(target, 0, 1, 100).expect("there is room");
    assert_eq!(&store, b"01234567\x08\0\0\x00456789ab\0\0\0\0\0\0\0\0cdef");
}

#[test]
fn words_are_aligned_and_within() {
    let mut bytes = [0_u8; 24];
    let shift = bytes.as_ptr().align_offset(8);
    let cells = Cells::from(&mut bytes[shift..shift + 16]);
    let cell = cells.cell_8(8).expect("a word");
    cell.store(-2, Ordering::SeqCst);
    assert_eq!(cells.load_8(8), Some(-2));
    assert_eq!(cells.load_4(8).map(|low| low | 1), Some(u32::MAX));
    for offset in [1, 2, 3, 14, 16, usize::MAX - 3, usize::MAX] {
        assert_eq!(cells.load_4(offset), None);
        assert!(cells.cell_4(offset).is_none());
    }
    for offset in [4, 9, 12, 16, usize::MAX - 7] {
        assert_eq!(cells.load_8(offset), None);
        assert!(cells.cell_8(offset).is_none());
    }
}
