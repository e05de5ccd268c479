//! A run is looked at within its bytes alone, and what is stored of it, and of one behind it, is what
//! a walk finds again.

#![no_main]

use cqrepl_kernel::batch::documents::{Limits, Walk};
use cqrepl_kernel::batch::runs::{self, MeasuredRuns, RunHead, HEAD_BYTES};
use cqrepl_kernel::mem::{Source, Target};
use cqrepl_kernel_fuzz::{Number, Room, Store};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Store, Room, [Number; 5], u8, Option<Box<[u8]>>)| {
    let (Store(data), Room(mut room), numbers, count, noise) = input;
    let [start, end, payload_max, index, sequence] = numbers.map(|number| number.0);
    let data = noise.unwrap_or(data);
    let source = Source::from(&*data);
    let _ = runs::split(source, start, end, i64::from(count), payload_max);
    let _ = RunHead::read(source, usize::try_from(start).unwrap_or(0));
    let _ = RunHead::stands_at(source, usize::try_from(start).unwrap_or(usize::MAX));
    let count = usize::from(count);
    let whole = runs::split(source, 0, data.len() as i64, count as i64, payload_max);
    let whole = whole.expect("there is memory");
    let Ok(Ok(mut run)) = MeasuredRuns::new(source, count, payload_max, sequence, 3) else {
        assert!(whole.is_err() || sequence.checked_add(count as i64).is_none());
        return;
    };
    let (offsets, mut lengths) = whole.expect("the same is refused");
    assert_eq!(run.longest as i64, lengths.iter().copied().max().unwrap_or(0));
    let taken =
        runs::run_length(source, (&*offsets).into(), (&*lengths).into(), 0, i64::MAX, i64::MAX);
    assert_eq!(taken, Ok(count as i64));
    let head = RunHead { index, count, ns: 1, size: data.len() };
    let mut document = vec![0; HEAD_BYTES];
    head.put(&mut Target::from(&mut *document), 0).expect("it is short");
    document.extend_from_slice(&data);
    let read = RunHead::read(Source::from(&*document), 0);
    let is_allowed =
        (2..=16_384).contains(&count) && index >= 0 && index.checked_add(count as i64).is_some();
    assert_eq!(read, is_allowed.then_some(head));
    if count == 0 || run.size() + 4 > room.len() {
        return;
    }
    let next = sequence.saturating_add(count as i64);
    if let Ok(Ok(second)) = MeasuredRuns::new(source, count, payload_max, next, 3) {
        if run.size() + second.size() + 4 <= room.len() {
            run.join(second).expect("there is memory");
            lengths.extend_from_within(..);
        }
    }
    let (image, apart) = run.image().expect("there is memory");
    assert_eq!(image.len() + apart.bytes, run.size());
    let laid = run.lay(Target::from(&mut *room), 4).expect("there is room");
    let written = apart.joined(&image, 4).expect("there is memory");
    assert_eq!(room.get(8..4 + run.size()), Some(&*written));
    room[4..8].copy_from_slice(&laid.first_word.to_le_bytes());
    let limits = Limits { count: i64::MAX, bytes: i64::MAX, payload: i64::MAX };
    let room = Source::from(&*room);
    let mut walk = Walk::new(room, 4, laid.end as i64 + 8, limits).expect("it is within");
    while walk.step(64).expect("there is memory").is_none() {}
    assert_eq!(walk.lengths, lengths);
    assert_eq!(walk.position, laid.end as u64);
});
