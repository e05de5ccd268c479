//! A scan of bytes from the network looks at nothing outside of them, and stops where it must.

#![no_main]

use cqrepl_kernel::batch::frames::{Frames, Framing, Scan};
use cqrepl_kernel::mem::{Longs, Source, Target};
use cqrepl_kernel_fuzz::{Batch, Number, Room};
use libfuzzer_sys::fuzz_target;

const NS_ITEM: [u8; 9] = [0xA7, 1, 2, 3, 4, 5, 6, 7, 8];
const CID: &[u8] = b"\x07\x00\x00\x40\xc3cid\x05\x00\x00";

/// The damage to good frames: bytes at positions, and how many bytes are cut off.
type Damage = (Vec<(u16, u8)>, u8);

/// Frames as a source writes them, with some damage.
fn frames(batch: &Batch, room: &mut [u8], index: i64, damage: Damage) -> Box<[u8]> {
    let frames = Frames {
        data: Source::from(&*batch.data),
        offsets: Longs::from(&*batch.offsets),
        lengths: Longs::from(&*batch.lengths),
        cid_document: CID,
        ns_item: &NS_ITEM,
    };
    let mut end = 0;
    if let Ok(mut framing) = Framing::new(frames, 0, index, Target::from(&mut *room), 0) {
        while let Ok(true) = framing.step(64, usize::MAX) {}
        end = framing.filled;
    }
    let (changes, cut) = damage;
    let mut data = room[..end.saturating_sub(usize::from(cut))].to_vec();
    for (at, byte) in changes {
        if let Some(there) = data.get_mut(usize::from(at)) {
            *there = byte;
        }
    }
    data.into()
}

fuzz_target!(|input: (Option<(Batch, Damage)>, Box<[u8]>, Room, &[u8], [Number; 3])| {
    let (good, noise, Room(mut room), cid_document, numbers) = input;
    let [start, payload_max, index] = numbers.map(|number| number.0);
    let (data, cid_document, start) = match good {
        Some((batch, damage)) => (frames(&batch, &mut room, index, damage), CID, 0),
        None => (noise, cid_document, start),
    };
    let scan = |step: usize| {
        let mut scan = Scan::new((&*data).into(), start, cid_document, payload_max).ok()?;
        while scan.step(step).expect("there is memory") {}
        Some((scan.end, scan.index_first, scan.ns_last, scan.offsets, scan.lengths))
    };
    let found = scan(usize::MAX);
    assert_eq!(found, scan(1));
    assert_eq!(found.is_none(), start < 0);
    let Some((end, _, _, offsets, lengths)) = found else { return };
    assert!(offsets.is_empty() || end <= data.len());
    for (&offset, &length) in offsets.iter().zip(&lengths) {
        assert!(0 <= length && length <= payload_max && 0 < offset);
        assert!(offset + length < end as i64);
    }
});
