//! Frames are written within the buffer only, and a scan finds those of the usual shape again.

#![no_main]

use cqrepl_kernel::batch::apart::Apart;
use cqrepl_kernel::batch::frames::{Frames, Framing, Scan};
use cqrepl_kernel::mem::{Longs, Source, Target};
use cqrepl_kernel_fuzz::{Batch, Number, Room, NOISE};
use libfuzzer_sys::fuzz_target;

const NS_ITEM: [u8; 9] = [0xA7, 1, 2, 3, 4, 5, 6, 7, 8];

type Words<'a> = (&'a [u8], Option<&'a [u8]>);

fuzz_target!(|input: (Batch, Room, Words, [Number; 5], u8)| {
    let (batch, Room(mut out), (cid_document, ns_item), numbers, apart_min) = input;
    let apart_min = usize::from(apart_min);
    let [start, index, filled, step, bytes] = numbers.map(|number| number.0);
    let frames = || Frames {
        data: Source::from(&*batch.data),
        offsets: Longs::from(&*batch.offsets),
        lengths: Longs::from(&*batch.lengths),
        cid_document,
        ns_item: ns_item.unwrap_or(&NS_ITEM),
    };
    let mut beside = out.clone();
    let again = Framing::new(frames(), start, index, Target::from(&mut *beside), filled);
    let Ok(mut framing) = Framing::new(frames(), start, index, Target::from(&mut *out), filled)
    else {
        return;
    };
    let (step, bytes) = (step.clamp(1, 64) as usize, bytes.clamp(1, 1 << 20) as usize);
    let is_whole = loop {
        match framing.step(step, bytes) {
            Ok(true) => {}
            done => break done.is_ok(),
        }
    };
    let (count, end) = (framing.count, framing.filled);
    let first = filled as usize;
    assert!(end <= out.len() || count == 0);
    assert!(out[..first.min(out.len())].iter().all(|&byte| byte == NOISE));
    let mut again = again.expect("as before").leaving(apart_min, Apart::default());
    while let Ok(true) = again.step(step, bytes) {}
    assert_eq!(again.count, count);
    if is_whole && count > 0 {
        let (again_end, apart) = (again.filled, std::mem::take(&mut again.apart));
        assert_eq!(apart.joined(&beside[..again_end], first).expect("memory"), out[first..end]);
    }
    if !is_whole || ns_item.is_some() || count == 0 {
        return;
    }
    let mut scan =
        Scan::new(out[..end].into(), filled, cid_document, i64::MAX).expect("a position");
    while scan.step(step).expect("there is memory") {}
    assert_eq!((scan.offsets.len(), scan.end, scan.index_first), (count, end, index));
    for (nth, (&offset, &length)) in scan.offsets.iter().zip(&scan.lengths).enumerate() {
        let (offset, length) = (offset as usize, length as usize);
        assert_eq!(Some(&out[offset..offset + length]), batch.payload(start as usize + nth));
    }
});
