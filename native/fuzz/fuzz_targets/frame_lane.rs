//! What the pump of a source frames is what a walk finds, in order and no more than there is room
//! for. It stops before all that is wrong. So does a second one that has what the first has found.

#![no_main]

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use cqrepl_kernel::batch::apart::Apart;
use cqrepl_kernel::batch::documents::{Limits, Walk};
use cqrepl_kernel::batch::frames::Scan;
use cqrepl_kernel::batch::runs::{self, RunHead, HEAD_BYTES};
use cqrepl_kernel::live::board::{Bell, Board};
use cqrepl_kernel::live::found_runs::{File, FoundRuns};
use cqrepl_kernel::live::lane_moves::LaneMoves;
use cqrepl_kernel::live::recorded::{Recorded, SequenceWord, Slots};
use cqrepl_kernel::live::source_lane::{LanePlace, Look, Sent, SourceLane};
use cqrepl_kernel::mem::{Source, Target};
use cqrepl_kernel_fuzz::{Number, Store};
use libfuzzer_sys::fuzz_target;

const CID: &[u8] = b"\x07\x00\x00\x40\xc3cid\x05\x00\x00";
const FREE: i64 = i64::MAX;
const FILE: File = (1, 2);

type Input = (
    Store,
    [Number; 4],
    (Number, Option<(Number, u8)>),
    Option<[Number; 5]>,
    [Option<u8>; 3],
    u16,
    bool,
);

/// What a source has sent.
#[derive(Default)]
struct Scanned {
    index_first: i64,
    offsets: Vec<i64>,
    lengths: Vec<i64>,
    runs: usize,
}

/// Frames and runs with indexes that follow, and nothing else.
fn scanned(stream: &[u8]) -> Scanned {
    let (data, mut found, mut at) = (Source::from(stream), Scanned::default(), 0);
    while at < stream.len() {
        let (index, offsets, lengths, end);
        if let Some(head) = RunHead::read(data, at + CID.len()) {
            assert!(stream[at..].starts_with(CID));
            let start = at + CID.len() + HEAD_BYTES;
            end = start + head.size;
            let split = runs::split(data, start as i64, end as i64, head.count as i64, FREE);
            (offsets, lengths) = split.expect("there is memory").expect("a whole run");
            index = head.index;
            found.runs += 1;
        } else {
            let mut scan = Scan::new(data, at as i64, CID, FREE).expect("a position");
            scan.step(1).expect("there is memory");
            (index, offsets, lengths, end) =
                (scan.index_first, scan.offsets, scan.lengths, scan.end);
        }
        assert!(end > at, "a frame or a run");
        if at == 0 {
            found.index_first = index;
        }
        assert_eq!(index, found.index_first + found.lengths.len() as i64);
        found.offsets.extend(offsets);
        found.lengths.extend(lengths);
        at = end;
    }
    found
}

fuzz_target!(|input: Input| {
    let (
        Store(store),
        [position, index, sequence, certain_end],
        written,
        slots,
        limits,
        room,
        has_runs,
    ) = input;
    let limit = |nth: usize| limits[nth].map_or(FREE, i64::from);
    if position.0 < 0 || sequence.0 < 0 {
        return; // `SourceLane` in Python refuses such a place
    }
    let pages = slots.map(|[.., pages]| pages.0 as usize);
    let slots = slots.map(|[at, first, count, spacing, _]| Slots {
        position: at.0 as usize,
        sequence: first.0,
        count: count.0,
        spacing: spacing.0.max(1),
    });
    let (write_position, word) = written;
    let recorded = Recorded {
        write_position: write_position.0 as usize,
        sequence: word
            .map(|(at, bits)| SequenceWord { position: at.0 as usize, bits: u32::from(bits) }),
        slots,
        pages,
    };
    let place = LanePlace {
        position: position.0,
        index: index.0 >> 1,
        sequence: sequence.0,
        certain_end: certain_end.0,
        stretch_bytes: 0,
        position_last: 0,
        room_excerpts: limit(0),
        room_bytes: limit(1),
        held: 0,
    };
    // what the second lane sends the first one has found, as far as it fits into less room
    let found = FoundRuns::default();
    for room in [usize::from(room), usize::from(room / 3)] {
        let (lengths, acks, is_muted) = (VecDeque::new(), Vec::new(), false);
        let (settled, target) = ((0, 0), FREE);
        let (index_sent, index_held, index_claimed) = (-1, -1, -1);
        let sent = Sent {
            place,
            lengths,
            settled,
            acks,
            index_sent,
            index_held,
            index_claimed,
            target,
            is_muted,
        };
        let sent = Mutex::new(sent);
        let bell = Bell::new().expect("a descriptor");
        let row = Arc::new(Board::new(Arc::new(bell))).row(1);
        let lane = SourceLane {
            store: Source::from(&*store),
            cid_document: CID,
            payload_max: limit(2),
            has_runs,
            recorded,
            found: Some((&found, FILE)),
            sent: &sent,
            is_logged: false,
            row: &row,
            can_prove: true,
            budget: None,
            has_much: &AtomicBool::new(false),
            moves: &LaneMoves::new(),
            room_low: (0, 0),
        };
        let (mut stream, mut out, mut apart) =
            (Vec::new(), vec![0; room], Apart::default());
        for _ in 0..100 {
            match lane.frame(Target::from(&mut *out), 0, &mut apart) {
                Ok(Look::Framed(end)) => {
                    stream.extend(apart.joined(&out[..end], 0).expect("there is memory"));
                    apart.clear();
                }
                Ok(Look::Longer(size)) => out.resize(size.min(1 << 20), 0),
                Ok(Look::Nothing | Look::Unusual) | Err(_) => break,
            }
        }
        let scan = scanned(&stream);
        assert!(has_runs || scan.runs == 0);
        let now = sent.into_inner().expect("no thread has panicked");
        assert_eq!(now.lengths, scan.lengths);
        let count = scan.lengths.len();
        if count == 0 {
            continue;
        }
        assert_eq!((scan.index_first, now.place.index), (place.index, place.index + count as i64));
        assert!(count as i64 <= place.room_excerpts);
        let limits = Limits { count: count as i64, bytes: FREE, payload: limit(2) };
        let end = store.len() as i64;
        let mut walk = Walk::new(Source::from(&*store), place.position, end, limits).expect("within");
        while walk.step(64).expect("there is memory").is_none() {}
        assert_eq!(
            (&walk.lengths, walk.offsets.last()),
            (&scan.lengths, Some(&(now.place.position_last + 4)))
        );
        for ((&from, &at), &length) in walk.offsets.iter().zip(&scan.offsets).zip(&scan.lengths) {
            let (from, at, length) = (from as usize, at as usize, length as usize);
            assert_eq!(store[from..from + length], stream[at..at + length]);
        }
    }
});
