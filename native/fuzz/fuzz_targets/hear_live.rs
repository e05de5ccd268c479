//! The pump of a source takes exactly the acknowledgements that it says it took, hands over whole
//! documents, and leaves the rest as it came. No mark is higher than what was sent, and none rises
//! for a lane that is mute. That holds for any stream, wherever it is cut.

#![no_main]

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use cqrepl_kernel::live::acks::{self, Body};
use cqrepl_kernel::live::board::{Bell, Board, Row, APPENDED, LEVELS, NOTHING};
use cqrepl_kernel::live::control::Control;
use cqrepl_kernel::live::lane_moves::{LaneMoves, SourceLaneMove};
use cqrepl_kernel::live::others::document_end;
use cqrepl_kernel::live::pauser::{Pauser, Pausing};
use cqrepl_kernel::live::pump::{run, Lanes, Room};
use cqrepl_kernel::live::recorded::Recorded;
use cqrepl_kernel::live::send_budget::SendBudget;
use cqrepl_kernel::live::source_lane::{LanePlace, Sent, SourceLane};
use cqrepl_kernel::mem::Source;
use cqrepl_kernel_fuzz::files::INDEX_FIRST;
use cqrepl_kernel_fuzz::{Number, Store};
use libfuzzer_sys::fuzz_target;

const CIDS: [&[u8]; 2] =
    [b"\x07\x00\x00\x40\xc3cid\x05\x00\x00", b"\x06\x00\x00\x40\xc3cid\x06\x00"];
const LANES: usize = CIDS.len();
const HEARTBEAT: &[u8] = b"\x0a\x00\x00\x00\xc9heartbeat";
const FREE: i64 = i64::MAX;

/// What a lane begins with, and what it is to have at the end if it sends nothing meanwhile.
struct Begun {
    store: Box<[u8]>,
    is_full: bool,
    is_logged: bool,
    is_muted: bool,
    can_prove: bool,
    lengths: VecDeque<i64>,
    index_held: i64,
    marks: [i64; LEVELS],
    acks: Vec<[i64; 2]>,
    settled: i64,
    index_claimed: i64,
}

impl Begun {
    fn of(input: &mut Unstructured) -> Result<Self> {
        let sent = input.int_in_range(0..=40_u8)?;
        let held = INDEX_FIRST - 1 + i64::from(input.int_in_range(0..=sent)?);
        Ok(Begun {
            store: Store::arbitrary(input)?.0,
            is_full: bool::arbitrary(input)?,
            is_logged: bool::arbitrary(input)?,
            is_muted: input.ratio(1, 4_u8)?,
            can_prove: bool::arbitrary(input)?,
            lengths: (0..i64::from(sent)).collect(),
            index_held: held,
            marks: [NOTHING; LEVELS],
            acks: Vec::new(),
            settled: 0,
            index_claimed: NOTHING,
        })
    }

    fn index_sent(&self) -> i64 {
        INDEX_FIRST + self.lengths.len() as i64 - 1
    }

    fn sent(&self, input: &mut Unstructured) -> Result<Sent> {
        Ok(Sent {
            place: LanePlace {
                position: 0,
                index: self.index_sent() + 1,
                sequence: self.lengths.len() as i64,
                certain_end: self.store.len() as i64,
                stretch_bytes: 0,
                position_last: 0,
                room_excerpts: if self.is_full { 0 } else { FREE },
                room_bytes: FREE,
                held: self.index_sent() - self.index_held,
            },
            lengths: self.lengths.clone(),
            settled: (0, 0),
            acks: Vec::new(),
            index_sent: self.index_sent(),
            index_held: self.index_held,
            index_claimed: NOTHING,
            target: INDEX_FIRST + Number::arbitrary(input)?.0 % 64,
            is_muted: self.is_muted,
        })
    }

    /// Takes an acknowledgement as the lane is to.
    fn take(&mut self, level: usize, index: i64, ns: i64) {
        if level != APPENDED {
            assert!(
                !self.is_full || index <= self.index_held,
                "it is for the event loop to refuse"
            );
            self.raise(level, index);
            return;
        }
        if index > self.index_sent() {
            if !self.can_prove {
                self.index_claimed = self.index_claimed.max(index);
            } else {
                let is_held = index <= self.index_held;
                assert!(!self.is_full || is_held, "it is for the event loop to refuse");
            }
            return;
        }
        if self.acks.last().is_some_and(|last| index <= last[0]) {
            return;
        }
        if !self.is_logged {
            self.acks.clear();
        }
        self.acks.push([index, ns]);
        self.index_held = self.index_held.max(index);
        self.raise(APPENDED, index);
        if !self.is_logged {
            self.settled = self.settled.max(index + 1 - INDEX_FIRST);
        }
    }

    fn raise(&mut self, level: usize, index: i64) {
        if !self.is_muted {
            self.marks[level] = self.marks[level].max(index);
        }
    }

    /// Holds what the lane has at the end against this, which all that was taken has gone through.
    fn check(&self, sent: &Sent, row: &Row) {
        let marks: [i64; LEVELS] = std::array::from_fn(|level| row.mark(level));
        let (settled, settled_bytes) = sent.settled;
        let count = settled + sent.lengths.len() as i64;
        assert_eq!(INDEX_FIRST + count, sent.place.index);
        assert_eq!(sent.index_sent, sent.place.index - 1);
        assert!(sent.index_held <= sent.index_sent);
        assert!(marks.iter().all(|&mark| mark <= sent.index_held));
        assert!(sent.index_claimed == NOTHING || !self.can_prove);
        if self.is_muted {
            assert_eq!(marks, [NOTHING; LEVELS]);
        }
        if self.is_logged {
            assert_eq!(settled, 0);
        }
        if !self.is_full {
            return; // what it has sent meanwhile may have been acknowledged, too
        }
        let acks: Vec<[i64; 2]> = sent.acks.iter().map(|&[index, ns, _]| [index, ns]).collect();
        assert_eq!(acks, self.acks);
        assert_eq!(sent.index_claimed, self.index_claimed);
        assert_eq!(sent.index_sent, self.index_sent());
        assert_eq!((marks, sent.index_held), (self.marks, self.index_held));
        let first = usize::try_from(settled).expect("a count");
        assert!(sent.lengths.iter().eq(self.lengths.iter().skip(first)));
        assert_eq!(settled_bytes, self.lengths.iter().take(first).sum());
        assert_eq!(settled, self.settled);
    }
}

/// A stream that a sink might send, mostly as it should be.
fn stream_of(input: &mut Unstructured) -> Result<Vec<u8>> {
    let (mut stream, mut next) = (Vec::new(), [INDEX_FIRST - 1; LANES]);
    for _ in 0..input.int_in_range(0..=24_u8)? {
        let lane = input.int_in_range(0..=LANES - 1)?;
        match input.int_in_range(0..=11_u8)? {
            0 => stream.extend_from_slice(Arbitrary::arbitrary(input)?),
            1 => stream.extend_from_slice(CIDS[lane]),
            2 => next[lane] = next[lane].wrapping_add(Number::arbitrary(input)?.0),
            3 => stream.extend_from_slice(HEARTBEAT),
            4 | 5 => {
                let level = input.int_in_range(1..=LEVELS - 1)?;
                let index = next[lane].wrapping_sub(i64::from(input.int_in_range(0..=3_u8)?));
                acks::write(&mut stream, CIDS[lane], level, index, 0);
            }
            _ => {
                next[lane] = next[lane].wrapping_add(i64::from(input.int_in_range(0..=9_u8)?));
                acks::write(&mut stream, CIDS[lane], APPENDED, next[lane], i64::arbitrary(input)?);
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

/// Goes through what was taken: acknowledgements of the lanes; all else was handed over.
fn retake(taken: &[u8], mut handed: &[u8], lanes: &mut [Begun; LANES]) {
    let mut at = 0;
    while at < taken.len() {
        let lane = CIDS.iter().position(|cid| taken[at..].starts_with(cid));
        let start = at + lane.map_or(0, |lane| CIDS[lane].len());
        if let (Some(lane), Body::Acknowledgement(level, index, ns)) =
            (lane, acks::read(&taken[start..]))
        {
            lanes[lane].take(level, index, ns);
            at = start + acks::BYTES;
        } else {
            let end = document_end(taken, start).expect("whole documents");
            handed = handed.strip_prefix(&taken[at..end]).expect("it was handed over");
            at = end;
        }
    }
    assert!(handed.is_empty());
}

fn hear_stream(input: &mut Unstructured) -> Result<()> {
    let stream = stream_of(input)?;
    let mut begun = [Begun::of(input)?, Begun::of(input)?];
    let noted = [Mutex::new(begun[0].sent(input)?), Mutex::new(begun[1].sent(input)?)];
    let received = input.int_in_range(0..=stream.len())?;
    let room = Room {
        received: input.int_in_range(1..=8192_usize)?,
        frames: input.int_in_range(0..=4096_usize)?,
    };
    let slice = Duration::from_secs(u64::from(input.ratio(9, 10_u8)?));
    let pausing = if input.ratio(1, 4_u8)? { Pausing::Step } else { Pausing::Balanced };
    let control = Control::new().expect("descriptors");
    if input.ratio(1, 20_u8)? {
        control.interrupt();
    }
    let budget = SendBudget::new(FREE / 2);
    let has_budget = bool::arbitrary(input)?;
    let board = Arc::new(Board::new(Arc::new(Bell::new().expect("a descriptor"))));
    let rows = [board.row(1), board.row(2)];
    let (mut ours, mut peer) = UnixStream::pair().expect("descriptors");
    peer.write_all(&stream[received..]).expect("room in the socket");
    peer.shutdown(Shutdown::Write).expect("it is open");
    let has_much = [AtomicBool::new(false), AtomicBool::new(true)];
    let moves = [LaneMoves::new(), LaneMoves::new()];
    moves[0].make(SourceLaneMove::Lend);
    moves[1].make(SourceLaneMove::LendBehind);
    let lanes: Vec<SourceLane> = (0..LANES)
        .map(|nth| SourceLane {
            store: Source::from(&*begun[nth].store),
            cid_document: CIDS[nth],
            payload_max: FREE,
            has_runs: nth == 1,
            recorded: Recorded { write_position: 0, sequence: None, slots: None, pages: None },
            found: None,
            sent: &noted[nth],
            is_logged: begun[nth].is_logged,
            row: &rows[nth],
            can_prove: begun[nth].can_prove,
            budget: has_budget.then_some(&budget),
            has_much: &has_much[nth],
            moves: &moves[nth],
            room_low: (4, 4),
        })
        .collect();
    let lanes = Lanes { sources: &lanes, sinks: &mut [], waited: &[] };
    let (pauser, before) = (Pauser::new(pausing, false), &stream[..received]);
    let rest = run(ours.as_fd(), &control, lanes, pauser, slice, before, room)
        .expect("it is as callers have it");
    let (mut unread, mut said) = (Vec::new(), Vec::new());
    ours.read_to_end(&mut unread).expect("it has an end");
    drop(ours);
    peer.read_to_end(&mut said).expect("it has an end");
    let left = [&rest.received[..], &unread].concat();
    assert!(stream.ends_with(&left));
    let is_silent = begun.iter().all(|lane| lane.is_full);
    assert!(!is_silent || (said.is_empty() && rest.unsent.is_empty()));
    retake(&stream[..stream.len() - left.len()], &control.take_handed(), &mut begun);
    for (nth, sent) in noted.into_iter().enumerate() {
        moves[nth].make(SourceLaneMove::ComeBack);
        begun[nth].check(&sent.into_inner().expect("no thread has panicked"), &rows[nth]);
    }
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = hear_stream(&mut Unstructured::new(input)); // an error: the input is too short
});
