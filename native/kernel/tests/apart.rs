//! What is sent or written in parts is the same as in one piece, wherever a call stopped.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // a test that panics has failed

use cqrepl_kernel::batch::apart::Apart;
use cqrepl_kernel::batch::frames::{Frames, Framing};
use cqrepl_kernel::batch::layout::MeasuredBatch;
use cqrepl_kernel::mem::{Longs, Source, Target};

const LENGTHS: [i64; 9] = [3, 40, 0, 41, 41, 5, 100, 39, 2000];
const APART_MINS: [usize; 4] = [0, 40, 2000, usize::MAX];

fn batch() -> (Vec<u8>, Vec<i64>) {
    let size = LENGTHS.iter().sum::<i64>();
    let data = (0..size).map(|nth| nth as u8).collect();
    let offsets = LENGTHS.iter().scan(0, |at, length| {
        *at += length;
        Some(*at - length)
    });
    (data, offsets.collect())
}

fn framed(apart_min: usize, room: usize) -> (Vec<u8>, usize, Vec<usize>) {
    let (data, offsets) = batch();
    let frames = Frames {
        data: Source::from(&*data),
        offsets: Longs::from(&*offsets),
        lengths: Longs::from(&LENGTHS[..]),
        cid_document: b"cid",
        ns_item: b"ns",
    };
    let mut out = vec![0; room];
    let mut framing = Framing::new(frames, 0, 5, Target::from(&mut *out), 0)
        .expect("nine indexes")
        .leaving(apart_min, Apart::default());
    while framing.step(4, usize::MAX).expect("it lies within the data") {}
    let (filled, count, apart) =
        (framing.filled, framing.count, std::mem::take(&mut framing.apart));
    let all = apart.joined(&out[..filled], 0).expect("there is memory");
    assert_eq!(all.len(), filled + apart.bytes);
    for skipped in 0..=all.len() {
        assert_eq!(apart.joined(&out[..filled], skipped).expect("memory"), all[skipped..]);
        let parts = apart.parts(&out[..filled], skipped);
        assert!(parts.iter().all(|part| !part.is_empty()));
        let sent: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        assert_eq!(sent, all[skipped..]);
    }
    let ends = apart.parts(&out[..filled], 0).iter().map(|part| part.len()).collect();
    (all, count, ends)
}

#[test]
fn frames_are_the_same_with_payloads_apart() {
    for room in [0, 50, 300, 600, 4000] {
        let (whole, count, _) = framed(usize::MAX, room);
        for apart_min in APART_MINS {
            let (all, framed_now, parts) = framed(apart_min, room);
            assert_eq!((&all, framed_now), (&whole, count), "{apart_min} within {room}");
            assert!(parts.len() <= 1 || apart_min < usize::MAX);
        }
    }
}

#[test]
fn runs_are_the_same_with_payloads_apart() {
    let (data, offsets) = batch();
    let measure = |data| {
        MeasuredBatch::new(data, (&*offsets).into(), LENGTHS[..].into(), 0, 9).expect("within")
    };
    let measured = measure(Source::from(&*data));
    let mut store = vec![7; 8 + measured.size];
    let laid = measured.lay(Target::from(&mut *store), 8, 6, 4).expect("there is room");
    for apart_min in APART_MINS {
        let (mut image, mut apart) = (vec![9; measured.size], Apart::default());
        let again =
            measured.lay_image(&mut image, 8, 6, 4, apart_min, &mut apart).expect("there is room");
        assert_eq!(again, laid);
        let in_image = measured.size - apart.bytes;
        let all = apart.joined(&image[..in_image], 4).expect("memory");
        assert_eq!(all, store[12..], "{apart_min}");
    }
}

#[test]
fn no_more_parts_than_the_system_takes() {
    let data = [1; 4];
    let mut apart = Apart::default();
    for at in 0..2000 {
        apart.put(at, Source::from(&data[..])).expect("memory");
    }
    let buffer = vec![2; 2000];
    let parts = apart.parts(&buffer, 3);
    assert_eq!(parts.len(), 1024);
    assert_eq!(parts[0].len(), 1);
    assert_eq!(apart.joined(&buffer, 0).expect("memory").len(), 10_000);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "cuts are in order")]
fn a_payload_before_the_last_one_is_a_mistake_of_ours() {
    let data = [1; 4];
    let mut apart = Apart::default();
    apart.put(5, Source::from(&data[..])).expect("memory");
    let _ = apart.put(4, Source::from(&data[..]));
}
