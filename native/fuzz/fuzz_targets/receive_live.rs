//! The pump of a sink has stored exactly the frames that it says it took, leaves the rest as it
//! came, and acknowledges no more. That holds for any stream, wherever it is cut.

#![no_main]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use cqrepl_kernel::append::pen::PenPlace;
use cqrepl_kernel::batch::frames::{Frames, Framing, Scan};
use cqrepl_kernel::batch::runs::{self, RunHead, HEAD_BYTES};
use cqrepl_kernel::live::control::Control;
use cqrepl_kernel::live::lane_moves::{LaneMoves, SinkLaneMove};
use cqrepl_kernel::live::others::document_end;
use cqrepl_kernel::live::pauser::{Pauser, Pausing};
use cqrepl_kernel::live::pump::{run, Lanes, Rest, Room};
use cqrepl_kernel::live::sink_lane::{SinkLane, Stored};
use cqrepl_kernel::mem::{Longs, Source, Target};
use cqrepl_kernel_fuzz::files::{stored, Files, FIRST, INDEX_FIRST};
use cqrepl_kernel_fuzz::{Batch, Number, Store};
use libfuzzer_sys::fuzz_target;

const NS_ITEM: [u8; 9] = [0xA7, 1, 2, 3, 4, 5, 6, 7, 8];
const CIDS: [&[u8]; 2] =
    [b"\x07\x00\x00\x40\xc3cid\x05\x00\x00", b"\x06\x00\x00\x40\xc3cid\x06\x00"];
const LANES: usize = CIDS.len();
const DOCUMENTS: usize = 4096;

/// Puts frames of a lane behind a stream, and answers with the index behind the last of them.
fn put_frames(stream: &mut Vec<u8>, lane: usize, index: i64, batch: &Batch) -> i64 {
    let frames = Frames {
        data: Source::from(&*batch.data),
        offsets: Longs::from(&*batch.offsets),
        lengths: Longs::from(&*batch.lengths),
        cid_document: CIDS[lane],
        ns_item: &NS_ITEM,
    };
    let mut room = vec![0; 16 << 10];
    let Ok(mut framing) = Framing::new(frames, 0, index, Target::from(&mut *room), 0) else {
        return index;
    };
    while let Ok(true) = framing.step(64, usize::MAX) {}
    let (count, end) = (framing.count, framing.filled);
    stream.extend_from_slice(&room[..end]);
    index.wrapping_add(count as i64)
}

/// Puts a run of a lane behind a stream: excerpts as they are stored, or any documents. The answer is
/// the index behind the last of them.
fn put_run(stream: &mut Vec<u8>, lane: usize, index: i64, input: &mut Unstructured) -> Result<i64> {
    let (mut run, mut count) = (Vec::new(), 0_usize);
    if input.ratio(1, 4_u8)? {
        (run, count) = (Store::arbitrary(input)?.0.into(), 3);
    } else {
        let batch = Batch::arbitrary(input)?;
        for payload in (0..batch.lengths.len()).filter_map(|nth| batch.payload(nth)) {
            let payload = stored(payload);
            run.resize(run.len().next_multiple_of(4), 0);
            run.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            run.extend_from_slice(payload);
            count += 1;
        }
    }
    let mut head = [0; HEAD_BYTES];
    let said = RunHead { index, count, ns: 9, size: run.len() };
    said.put(&mut Target::from(&mut head[..]), 0).expect("it is short");
    stream.extend_from_slice(CIDS[lane]);
    stream.extend_from_slice(&head);
    stream.extend_from_slice(&run);
    Ok(index.wrapping_add(count as i64))
}

/// A stream that a peer might send, mostly as it should be.
fn stream_of(input: &mut Unstructured) -> Result<Vec<u8>> {
    let (mut stream, mut next) = (Vec::new(), [INDEX_FIRST; LANES]);
    for _ in 0..input.int_in_range(0..=8_u8)? {
        let lane = input.int_in_range(0..=LANES - 1)?;
        match input.int_in_range(0..=9_u8)? {
            0 => stream.extend_from_slice(Arbitrary::arbitrary(input)?),
            1 => stream.extend_from_slice(CIDS[lane]),
            2 => next[lane] = next[lane].wrapping_add(Number::arbitrary(input)?.0),
            3 | 4 => next[lane] = put_run(&mut stream, lane, next[lane], input)?,
            _ => {
                next[lane] =
                    put_frames(&mut stream, lane, next[lane], &Arbitrary::arbitrary(input)?)
            }
        }
    }
    for (at, byte) in <Vec<(u16, u8)>>::arbitrary(input)?.into_iter().take(2) {
        if let Some(there) = stream.get_mut(usize::from(at)) {
            *there = byte;
        }
    }
    let cut = input.int_in_range(0..=stream.len().min(40))?;
    stream.truncate(stream.len() - cut);
    Ok(stream)
}

/// The payloads and the last nano time of each lane, in the frames that were taken. All else that
/// was taken was handed over.
fn taken_of<'t>(taken: &'t [u8], mut handed: &[u8]) -> [(Vec<&'t [u8]>, i64); LANES] {
    let (mut found, mut at) = ([const { (Vec::new(), 0) }; LANES], 0);
    while at < taken.len() {
        let lane = CIDS.iter().position(|cid| taken[at..].starts_with(cid));
        let end = lane.and_then(|lane| take_frames(taken, at, lane, &mut found[lane]));
        at = end.unwrap_or_else(|| {
            let start = at + lane.map_or(0, |lane| CIDS[lane].len());
            let end = document_end(taken, start).expect("whole documents");
            handed = handed.strip_prefix(&taken[at..end]).expect("it was handed over");
            end
        });
    }
    assert!(handed.is_empty());
    found
}

/// Takes the frames or the run of a lane at `at`; where they end, if there are any.
fn take_frames<'t>(
    taken: &'t [u8],
    at: usize,
    lane: usize,
    found: &mut (Vec<&'t [u8]>, i64),
) -> Option<usize> {
    if let Some(head) = RunHead::read(taken.into(), at + CIDS[lane].len()) {
        let start = at + CIDS[lane].len() + HEAD_BYTES;
        let end = start + head.size;
        let (from, to, count) = (start as i64, end as i64, head.count as i64);
        let split = runs::split(taken.into(), from, to, count, i64::MAX);
        let (offsets, lengths) = split.expect("there is memory").expect("it was stored");
        let places = offsets.iter().zip(&lengths);
        found.0.extend(places.map(|(&at, &length)| &taken[at as usize..][..length as usize]));
        found.1 = head.ns;
        return Some(end);
    }
    let mut scan = Scan::new(taken.into(), at as i64, CIDS[lane], i64::MAX).expect("a position");
    while scan.step(1).expect("there is memory") {}
    for (&offset, &length) in scan.offsets.iter().zip(&scan.lengths) {
        found.0.push(&taken[offset as usize..][..length as usize]);
        found.1 = scan.ns_last;
    }
    (!scan.offsets.is_empty()).then_some(scan.end)
}

fn acknowledgement(lane: usize, count: usize, ns: i64) -> Vec<u8> {
    let index = INDEX_FIRST + count as i64 - 1;
    let head = [CIDS[lane], b"\x19\0\0\0\xC3idx\xAF"].concat();
    [&head[..], &index.to_le_bytes(), b"\xC2ns\xA7", &ns.to_le_bytes()].concat()
}

/// What is known when a pump has come back.
struct Outcome {
    rest: Rest,
    handed: Vec<u8>,
    unread: Vec<u8>,
    sent: Vec<u8>,
    noted: [Stored; LANES],
}

/// Has a pump take a stream in. A part of the stream was received before, the rest is in the
/// socket.
fn pump(
    files: &mut [Files; LANES],
    stream: &[u8],
    is_acknowledged: bool,
    input: &mut Unstructured,
) -> Result<Option<Outcome>> {
    let received = input.int_in_range(0..=stream.len())?;
    let room = Room { received: input.int_in_range(1..=8192_usize)?, frames: 0 };
    let slice = Duration::from_secs(u64::from(input.ratio(9, 10_u8)?));
    let payload_max = Number::arbitrary(input)?.0;
    let control = Control::new().expect("descriptors");
    if input.ratio(1, 20_u8)? {
        control.interrupt();
    }
    let (mut ours, mut peer) = UnixStream::pair().expect("descriptors");
    peer.write_all(&stream[received..]).expect("room in the socket");
    peer.shutdown(Shutdown::Write).expect("it is open");
    let noted: [Mutex<Stored>; LANES] = Default::default();
    let terms = [files[0].terms(), files[1].terms()];
    let places: [PenPlace; LANES] = std::array::from_fn(|_| PenPlace {
        position: (FIRST as i64).into(),
        ..PenPlace::default()
    });
    let moves = [LaneMoves::new(), LaneMoves::new()];
    let mut lanes = Vec::new();
    for (nth, files) in files.iter_mut().enumerate() {
        lanes.push(SinkLane {
            cid_document: CIDS[nth],
            pen: files.pen(&terms[nth], &places[nth]).expect("usual numbers"),
            payload_max,
            has_runs: true,
            is_acknowledged,
            is_logged: nth == 0,
            stored: &noted[nth],
            due: None,
            moves: &moves[nth],
        });
        moves[nth].make(SinkLaneMove::Lend);
    }
    let lanes = Lanes { sources: &[], sinks: &mut lanes, waited: &[] };
    let (pauser, before) = (Pauser::new(Pausing::Balanced, true), &stream[..received]);
    let Ok(rest) = run(ours.as_fd(), &control, lanes, pauser, slice, before, room) else {
        return Ok(None); // the fault is a payload of less than no bytes
    };
    for lane in &moves {
        lane.make(SinkLaneMove::ComeBack); // nothing is left to acknowledge
    }
    let (mut unread, mut sent) = (Vec::new(), Vec::new());
    ours.read_to_end(&mut unread).expect("it has an end");
    drop(ours);
    peer.read_to_end(&mut sent).expect("it has an end");
    let noted = noted.map(|stored| stored.into_inner().expect("no thread has panicked"));
    let handed = control.take_handed();
    Ok(Some(Outcome { rest, handed, unread, sent, noted }))
}

fn receive_stream(input: &mut Unstructured) -> Result<()> {
    let (stream, is_acknowledged) = (stream_of(input)?, bool::arbitrary(input)?);
    let mut files = [Files::new(&[], DOCUMENTS), Files::new(&[], DOCUMENTS)];
    let Some(outcome) = pump(&mut files, &stream, is_acknowledged, input)? else {
        return Ok(());
    };
    let left = [&outcome.rest.received[..], &outcome.unread].concat();
    assert!(stream.ends_with(&left));
    let said = [&outcome.sent[..], &outcome.rest.unsent].concat();
    let taken = taken_of(&stream[..stream.len() - left.len()], &outcome.handed);
    for (lane, (payloads, ns)) in taken.iter().enumerate() {
        let found = files[lane].excerpts(FIRST as i64);
        assert!(files[lane].are_free());
        assert!(found.iter().copied().eq(payloads.iter().map(|payload| stored(payload))));
        let bytes: usize = payloads.iter().map(|payload| payload.len()).sum();
        let Stored { excerpts, bytes: noted, entries, .. } = &outcome.noted[lane];
        assert_eq!((*excerpts, *noted), (payloads.len() as i64, bytes as i64));
        let numbers: Vec<i64> = entries
            .chunks(8)
            .map(|number| i64::from_le_bytes(number.try_into().unwrap()))
            .collect();
        let logged: i64 = numbers.chunks(5).map(|entry| entry[3]).sum();
        assert_eq!(logged, if lane == 0 { *excerpts } else { 0 });
        let due = acknowledgement(lane, payloads.len(), *ns);
        let is_said = said.windows(due.len()).any(|part| part == due);
        assert_eq!(is_said, is_acknowledged && !payloads.is_empty());
    }
    assert!(is_acknowledged || said.is_empty());
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = receive_stream(&mut Unstructured::new(input)); // an error: the input is too short
});
