//! A pen on files and numbers that mean harm: nothing outside of the files is touched, and a
//! refusal changes nothing. What a pen does otherwise is compared with the reference by
//! `tests/property`.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // a test that panics has failed

use cqrepl_kernel::append::pen::{Pen, PenPlace};
use cqrepl_kernel::append::terms::{Refusal, Terms};
use cqrepl_kernel::batch::documents::{Limits, Walk, WalkStop};
use cqrepl_kernel::batch::layout::MeasuredBatch;
use cqrepl_kernel::batch::runs::MeasuredRuns;
use cqrepl_kernel::mem::{Cells, Source};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

const GUARD: usize = 64;
const NOISE: u8 = 0xEE;
const ROUNDS: usize = 30_000;
const PROCESS: i64 = 4242;
// These are positions in the table store.
const LOCK: usize = 0;
const APPEND_LOCK: usize = 16;
const CHANGES: usize = 24;
// These are positions in the store file.
const PAGE: usize = 24;
const FIRST: usize = 80;

/// Bytes from an address that longs can have, with guards on both sides.
struct Bytes {
    all: Vec<u8>,
    start: usize,
    length: usize,
}

impl Bytes {
    fn new(length: usize) -> Self {
        let all = vec![NOISE; GUARD + length + GUARD + 8];
        let start = GUARD + all[GUARD..].as_ptr().align_offset(8);
        let mut bytes = Bytes { all, start, length };
        bytes.inner().fill(0);
        bytes
    }

    fn inner(&mut self) -> &mut [u8] {
        &mut self.all[self.start..self.start + self.length]
    }

    fn put(&mut self, at: usize, value: i64) {
        self.inner()[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn long(&mut self, at: usize) -> i64 {
        i64::from_le_bytes(self.inner()[at..at + 8].try_into().expect("8 bytes"))
    }

    fn are_guards_whole(&self) -> bool {
        let outside = self.all[..self.start].iter().chain(&self.all[self.start + self.length..]);
        outside.into_iter().all(|&byte| byte == NOISE)
    }
}

/// A table store and a store file of 4 slots, one for every second excerpt.
struct Queue {
    table: Bytes,
    store: Bytes,
    turn: Bytes,
    file: File, // it is longer than the store
}

type Outcome = Result<(usize, Option<Refusal>), cqrepl_kernel::mem::fault::Fault>;

impl Queue {
    fn new() -> Self {
        let (table, store, turn) = (Bytes::new(32), Bytes::new(512), Bytes::new(4));
        let file = File::open(std::env::current_exe().expect("a path")).expect("it runs");
        let mut queue = Queue { table, store, turn, file };
        queue.table.put(LOCK, i64::MIN);
        queue.table.put(APPEND_LOCK, i64::MIN);
        queue
    }

    fn terms(&self) -> Terms {
        Terms {
            lock: LOCK,
            start: 8,
            append_lock: APPEND_LOCK,
            changes: CHANGES,
            changes_seen: 0,
            process: PROCESS,
            process_start: 77,
            descriptor: self.file.as_raw_fd(),
            write_position: 0,
            sequence_word: Some(8),
            last_index: 16,
            sequence_bits: 32,
            index_first: 5 << 32,
            sequence_end: 1 << 32,
            index_count: 4,
            index_spacing: 2,
            page: PAGE,
            page_first: 0,
            pages: None,
            page_size: 64,
            payload_max: 100,
            reserved: 512,
            step: 0,
            cycle_end_ms: 1000,
        }
    }

    /// Appends the same as the runs that it is in a store file, the first one of so many excerpts
    /// and all others in the second.
    fn append_runs(
        &mut self,
        terms: &Terms,
        place: &PenPlace,
        payloads: &[&[u8]],
        split: usize,
        index: i64,
    ) -> Outcome {
        let (first, second) = payloads.split_at(split);
        let (first_bytes, second_bytes) = (run_of(first), run_of(second));
        let pen = Pen::new(
            Cells::from(self.store.inner()),
            Cells::from(self.table.inner()),
            Cells::from(self.turn.inner()),
            terms,
            place,
        );
        let pen = pen.expect("usual numbers");
        let measured = |bytes: &'static [u8], count: usize, index: i64| {
            let (sequence, spacing) = pen.slots_from(index);
            let runs = MeasuredRuns::new(bytes.into(), count, 1000, sequence, spacing);
            runs.expect("there is memory").expect("a run")
        };
        let mut runs = measured(first_bytes.leak(), first.len(), index);
        if !second.is_empty() {
            let second = measured(second_bytes.leak(), second.len(), index + first.len() as i64);
            runs.join(second).expect("there is memory");
        }
        let (image, apart) = runs.image().expect("there is memory");
        let mut laid = vec![0; runs.size()];
        runs.lay((&mut *laid).into(), 0).expect("there is room");
        assert_eq!(apart.joined(&image, 0).expect("there is memory"), laid);
        pen.append_runs(&runs, index)
    }

    fn append(
        &mut self,
        terms: &Terms,
        place: &PenPlace,
        payloads: &[&[u8]],
        index: i64,
    ) -> Outcome {
        let data = payloads.concat();
        let lengths: Vec<i64> = payloads.iter().map(|payload| payload.len() as i64).collect();
        let offsets: Vec<i64> = lengths
            .iter()
            .scan(0, |end, length| {
                *end += length;
                Some(*end - length)
            })
            .collect();
        let pen = Pen::new(
            Cells::from(self.store.inner()),
            Cells::from(self.table.inner()),
            Cells::from(self.turn.inner()),
            terms,
            place,
        )?;
        pen.append(Source::from(&*data), &offsets, &lengths, 0, payloads.len(), index)
    }

    fn image(&mut self) -> [Vec<u8>; 3] {
        [&mut self.table, &mut self.store, &mut self.turn].map(|bytes| bytes.inner().to_vec())
    }
}

fn place(sequence: i64, position: usize) -> PenPlace {
    PenPlace {
        sequence: sequence.into(),
        position: (position as i64).into(),
        ..PenPlace::default()
    }
}

#[test]
fn what_is_appended_is_published_recorded_and_indexed() {
    let mut queue = Queue::new();
    let (terms, place) = (queue.terms(), place(0, FIRST));
    let done = queue.append(&terms, &place, &[b"abc", b"", b"12345"], 5 << 32);
    assert_eq!(done, Ok((3, None)));
    let last = FIRST + 8 + 8;
    let mut laid = Vec::new();
    for (word, body) in [(3_u32, &b"abc\0"[..]), (1, b"\x8f\0\0\0"), (5, b"12345\0\0\0")] {
        laid.extend_from_slice(&word.to_le_bytes());
        laid.extend_from_slice(body);
    }
    assert_eq!(&queue.store.inner()[FIRST..FIRST + 28], &*laid);
    assert_eq!(
        [0, 8, 16].map(|at| queue.store.long(at)),
        [last as i64, ((last as i64) << 32) + 2, 4]
    );
    let slots = [1, 2, 3, 4].map(|nth| queue.store.long(PAGE + 8 * nth));
    assert_eq!(slots, [2, FIRST as i64, last as i64, 0]);
    assert_eq!((queue.table.long(LOCK), queue.table.long(8)), (i64::MIN, 0));
    assert_eq!(queue.turn.inner(), [0; 4]);
    assert_eq!(place.sequence.load(Ordering::Relaxed), 3);
    assert_eq!(place.position.load(Ordering::Relaxed), (FIRST + 28) as i64);
}

fn run_of(payloads: &[&[u8]]) -> Vec<u8> {
    let mut run = Vec::new();
    for payload in payloads {
        run.resize(run.len().next_multiple_of(4), 0);
        run.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        run.extend_from_slice(payload);
    }
    run
}

#[test]
fn runs_are_stored_as_their_excerpts_are() {
    for split in 1..4 {
        assert_stored_alike(split);
    }
}

/// Runs of so many excerpts, and of the others, are stored as a batch of all is.
fn assert_stored_alike(split: usize) {
    let batches: [&[&[u8]]; 4] = [
        &[b"a", b"bc", b"def"],
        &[b"ghij", b"k"],
        &[b"l", b"l", b"l", b"l"],
        &[b"mnopq", b"r", b"s"],
    ];
    let (mut one, mut other) = (Queue::new(), Queue::new());
    // bytes of a writer that died
    one.store.inner()[FIRST + 20..FIRST + 90].fill(0x11);
    other.store.inner()[FIRST + 20..FIRST + 90].fill(0x11);
    for queue in [&mut one, &mut other] {
        queue.store.inner()[FIRST + 90..].fill(0);
    }
    let terms = one.terms();
    let other_terms = other.terms();
    let (here, there) = (place(0, FIRST), place(0, FIRST));
    let mut index = terms.index_first;
    for payloads in batches {
        let expected = one.append(&terms, &here, payloads, index);
        let split = split.min(payloads.len());
        assert_eq!(other.append_runs(&other_terms, &there, payloads, split, index), expected);
        assert_eq!(one.store.inner(), other.store.inner());
        assert_eq!(one.table.inner(), other.table.inner());
        let (ours, theirs) = (&here, &there);
        let both = |place: &PenPlace| {
            let order = Ordering::Relaxed;
            (place.sequence.load(order), place.position.load(order))
        };
        assert_eq!(both(ours), both(theirs));
        index += expected.map_or(0, |(count, _)| count as i64);
    }
    assert!(index > terms.index_first + 6);
    assert_eq!(
        other.append_runs(&other_terms, &there, &[b"x", b"y"], 1, index + 1).map(|it| it.0),
        Ok(0)
    );
    assert!(one.store.are_guards_whole() && other.store.are_guards_whole());
}

/// Where the array of the page of pages is, and the first excerpt, in a queue whose pens add pages.
const PAGES: usize = FIRST;
const FIRST_BEHIND: usize = PAGES + 48;

#[test]
fn index_pages_are_added_behind_the_excerpts_that_begin_them() {
    for split in [1, 5, 8, 9, 11] {
        for before in [0, 1, 3] {
            let (mut one, mut other) = (Queue::new(), Queue::new());
            for queue in [&mut one, &mut other] {
                queue.store = Bytes::new(1024);
                queue.store.inner()[FIRST_BEHIND + 30..FIRST_BEHIND + 300].fill(0x11);
            }
            let terms = Terms { reserved: 1024, pages: Some(PAGES), page_size: 80, ..one.terms() };
            let (here, there) = (place(0, FIRST_BEHIND), place(0, FIRST_BEHIND));
            for nth in 0..before {
                for (queue, place) in [(&mut one, &here), (&mut other, &there)] {
                    let done = queue.append(&terms, place, &[b"xyz"], (5 << 32) + nth);
                    assert_eq!(done, Ok((1, None)));
                }
            }
            let payloads: [&[u8]; 12] =
                [b"a", b"bc", b"def", b"ghij", b"k", b"l", b"m", b"nop", b"q", b"r", b"s", b"t"];
            let index = (5 << 32) + before;
            assert_eq!(one.append(&terms, &here, &payloads, index), Ok((12, None)));
            let done = other.append_runs(&terms, &there, &payloads, split, index);
            assert_eq!(done, Ok((12, None)));
            assert_eq!(one.image(), other.image());
            assert_added(&mut one, &here, before);
            let next = index + 12;
            assert_eq!(one.append(&terms, &here, &[b"u"], next), Ok((1, None)), "it goes on");
        }
    }
}

/// The second index page stands behind the ninth excerpt, and both pages name each second excerpt.
fn assert_added(queue: &mut Queue, place: &PenPlace, before: i64) {
    let limits = Limits { count: i64::MAX, bytes: i64::MAX, payload: i64::MAX };
    let data = queue.store.inner().to_vec();
    let mut walk =
        Walk::new(Source::from(&*data), FIRST_BEHIND as i64, 1024, limits).expect("there");
    assert_eq!(walk.step(usize::MAX), Ok(Some(WalkStop::NotReady)));
    assert_eq!(walk.offsets.len() as i64, before + 12);
    assert_eq!(walk.position, place.position.load(Ordering::Relaxed) as u64);
    let page = queue.store.long(PAGES + 16 + 8) as usize;
    let ninth = walk.offsets[8] as usize + walk.lengths[8] as usize;
    assert_eq!(page, ninth.next_multiple_of(4));
    assert_eq!(&data[page + 4..page + 11], b"\xB9\x05index");
    let array = page + if page.is_multiple_of(8) { 16 } else { 12 };
    let headers: Vec<i64> = walk.offsets.iter().step_by(2).map(|body| body - 4).collect();
    let (first, second) = headers.split_at(4);
    let slots = |queue: &mut Queue, array: usize| {
        [0, 8, 16, 24, 32, 40].map(|at| queue.store.long(array + at))
    };
    assert_eq!(slots(queue, PAGE)[1..], [&[4], first].concat());
    let mut named = [0; 4];
    named[..second.len().min(4)].copy_from_slice(&second[..second.len().min(4)]);
    let used = second.len().min(4) as i64;
    assert_eq!(slots(queue, array)[..], [&[4, used][..], &named].concat());
    assert_eq!(queue.store.long(0), walk.offsets[walk.offsets.len() - 1] - 4);
    let sequence = queue.store.long(8) & 0xFFFF_FFFF;
    assert_eq!(sequence, before + 11);
    let indexed = (before + 11) / 2 * 2;
    assert_eq!(queue.store.long(16), indexed + 2);
}

#[test]
fn two_index_pages_at_once_are_refused() {
    let mut queue = Queue::new();
    queue.store = Bytes::new(1024);
    let terms = Terms { reserved: 1024, pages: Some(PAGES), page_size: 80, ..queue.terms() };
    let (place, before) = (place(0, FIRST_BEHIND), queue.image());
    let payloads = [&b"a"[..]; 16];
    let done = queue.append(&terms, &place, &payloads, 5 << 32);
    assert_eq!(done, Ok((0, Some(Refusal::Page))));
    assert_eq!(queue.image(), before);
}

#[test]
fn space_is_allocated_in_steps_that_double() {
    let path = std::env::temp_dir().join(format!("cqrepl-pen-{}", std::process::id()));
    let made = File::options().read(true).write(true).create_new(true).open(&path);
    let mut queue = Queue::new();
    queue.file = made.expect("a new file");
    queue.file.set_len(512).expect("space");
    let step = 16;
    let terms = Terms { reserved: FIRST, step, index_spacing: 1 << 10, ..queue.terms() };
    let place = place(0, FIRST);
    let mut seen = vec![FIRST];
    for nth in 0..12 {
        assert_eq!(queue.append(&terms, &place, &[b"abc"], (5 << 32) + nth), Ok((1, None)));
        let (end, reserved) = (&place.position, place.reserved.load(Ordering::Relaxed) as usize);
        assert!(reserved >= end.load(Ordering::Relaxed) as usize + terms.page_size + 8);
        if reserved != seen[seen.len() - 1] {
            seen.push(reserved);
        }
    }
    let steps: Vec<usize> = seen.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(steps.len() == 3 && steps[2] > 2 * step, "{steps:?}");
    assert_eq!(queue.file.metadata().expect("it is open").len(), 512);
    std::fs::remove_file(&path).expect("it is there");
    let what_is_lost = queue.append(&terms, &place, &[b"x"], (5 << 32) + 12);
    assert_eq!(what_is_lost, Ok((0, Some(Refusal::Cut))), "no name leads to the file");
    let (terms, place) = (Terms { descriptor: -1, ..terms }, PenPlace::default());
    place.position.store(FIRST as i64, Ordering::Relaxed);
    assert_eq!(queue.append(&terms, &place, &[b"x"], 5 << 32), Ok((0, Some(Refusal::Cut))));
}

#[test]
fn what_is_refused_changes_nothing() {
    type Change = fn(&mut Queue, &mut Terms);
    let cases: [(Refusal, Change); 12] = [
        (Refusal::Contended, |queue, _| queue.turn.inner()[0] = 2),
        (Refusal::Contended, |queue, _| queue.table.put(LOCK, 1)),
        (Refusal::AppendLocked, |queue, _| queue.table.put(APPEND_LOCK, 1)),
        (Refusal::Changed, |queue, _| queue.table.put(CHANGES, 1)),
        (Refusal::Changed, |queue, _| queue.store.inner()[FIRST + 3] = 0xC0),
        (Refusal::Changed, |queue, _| queue.store.inner()[FIRST + 3] = 0x80),
        (Refusal::Cut, |_, terms| terms.descriptor = -1),
        (Refusal::Index, |_, terms| terms.index_first += 1),
        (Refusal::TooLong, |_, terms| terms.payload_max = 2),
        (Refusal::Full, |_, terms| terms.sequence_end = 1),
        (Refusal::Page, |_, terms| terms.page_first = 8),
        (Refusal::Space, |_, terms| terms.reserved = 150),
    ];
    for (refusal, change) in cases {
        let mut queue = Queue::new();
        let (mut terms, place) = (queue.terms(), place(0, FIRST));
        change(&mut queue, &mut terms);
        let before = queue.image();
        let outcome = queue.append(&terms, &place, &[b"abc", b"d"], 5 << 32);
        assert_eq!(outcome, Ok((0, Some(refusal))));
        assert_eq!(queue.image(), before);
        assert_eq!(place.sequence.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn excerpts_of_other_writers_are_passed_with_any_spacing() {
    for index_spacing in [1, 2, 3, i64::MAX] {
        let mut queue = Queue::new();
        let ours = place(0, FIRST);
        let terms = Terms { index_spacing, ..queue.terms() };
        for nth in 1..=3 {
            let others = place(nth - 1, FIRST + 8 * (nth as usize - 1));
            let outcome = queue.append(&terms, &others, &[b"abc"], (5 << 32) + nth - 1);
            assert_eq!(outcome, Ok((1, None)));
        }
        assert_eq!(queue.append(&terms, &ours, &[b"abc"], (5 << 32) + 3), Ok((1, None)));
        assert_eq!(ours.sequence.load(Ordering::Relaxed), 4);
    }
}

#[test]
fn our_own_append_lock_is_none() {
    let mut queue = Queue::new();
    queue.table.put(APPEND_LOCK, (9 << 32) + PROCESS);
    let (terms, place) = (queue.terms(), place(0, FIRST));
    assert_eq!(queue.append(&terms, &place, &[b"abc"], 5 << 32), Ok((1, None)));
}

#[test]
fn threads_with_a_pen_each_lose_nothing() {
    const THREADS: u8 = 4;
    const EACH: u8 = 100;
    let mut queue = Queue::new();
    queue.store = Bytes::new(1 << 14);
    let terms = Terms { reserved: 1 << 14, index_spacing: 1 << 10, ..queue.terms() };
    let cells = (
        Cells::from(queue.store.inner()),
        Cells::from(queue.table.inner()),
        Cells::from(queue.turn.inner()),
    );
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let (terms, place) = (terms, place(0, FIRST));
                let pen = Pen::new(cells.0, cells.1, cells.2, &terms, &place).expect("usual");
                for nth in 0..EACH {
                    let (payload, lengths) = ([thread, nth, 1], [2, 1]);
                    loop {
                        let measured = MeasuredBatch::new(
                            Source::from(&payload[..]),
                            [0, 2][..].into(),
                            lengths[..].into(),
                            0,
                            2,
                        );
                        match pen
                            .append_batch(&measured.expect("within"), None, false)
                            .expect("no fault")
                        {
                            (_, None) => break,
                            (_, refusal) => assert_eq!(refusal, Some(Refusal::Contended)),
                        }
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    let limits = Limits { count: i64::MAX, bytes: i64::MAX, payload: i64::MAX };
    let mut walk = Walk::new(cells.0.source(), FIRST as i64, 1 << 14, limits).expect("within");
    assert_eq!(walk.step(usize::MAX), Ok(Some(WalkStop::NotReady)));
    let (offsets, store) = (std::mem::take(&mut walk.offsets), queue.store.inner());
    let mut next = [0; THREADS as usize];
    for pair in offsets.chunks(2) {
        let (first, second) = (pair[0] as usize, pair[1] as usize);
        let thread = store[first] as usize;
        assert_eq!((store[first + 1], store[second]), (next[thread], 1));
        next[thread] += 1;
    }
    assert_eq!(next, [EACH; THREADS as usize]);
    assert_eq!(queue.table.long(LOCK), i64::MIN);
}

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// The number itself most of the time, else a small one or one around which sums overflow.
    fn spoilt(&mut self, number: i64) -> i64 {
        match self.below(40) {
            0 => i64::MAX - self.below(9) as i64,
            1 => i64::MIN + self.below(9) as i64,
            2 => self.below(600) as i64,
            3 => self.below(70) as i64 * 8,
            _ => number,
        }
    }

    fn offset(&mut self, number: usize) -> usize {
        self.spoilt(number as i64) as usize
    }
}

#[test]
fn no_numbers_lead_outside() {
    let mut numbers = Numbers(5);
    let (mut done, mut refused, mut faults) = (0, 0, 0);
    for _ in 0..ROUNDS {
        let mut queue = Queue::new();
        for _ in 0..numbers.below(3) {
            let (at, byte) = (numbers.below(512) as usize, numbers.below(256) as u8);
            queue.store.inner()[at] = byte;
        }
        let usual = queue.terms();
        let terms = Terms {
            lock: numbers.offset(usual.lock),
            start: numbers.offset(usual.start),
            append_lock: numbers.offset(usual.append_lock),
            changes: numbers.offset(usual.changes),
            write_position: numbers.offset(usual.write_position),
            sequence_word: (numbers.below(9) > 0).then(|| numbers.offset(8)),
            last_index: numbers.offset(usual.last_index),
            sequence_bits: numbers.spoilt(32) as u32,
            index_first: numbers.spoilt(usual.index_first),
            sequence_end: numbers.spoilt(usual.sequence_end),
            index_count: numbers.spoilt(usual.index_count),
            index_spacing: numbers.spoilt(usual.index_spacing),
            page: numbers.offset(usual.page),
            page_first: numbers.spoilt(usual.page_first),
            page_size: numbers.offset(usual.page_size),
            payload_max: numbers.offset(usual.payload_max),
            reserved: numbers.offset(usual.reserved),
            step: numbers.offset(usual.step),
            ..usual
        };
        let place = PenPlace {
            sequence: numbers.spoilt(0).into(),
            position: numbers.spoilt(FIRST as i64).into(),
            populated: numbers.spoilt(0).into(),
            ..PenPlace::default()
        };
        let next = terms.index_first.wrapping_add(place.sequence.load(Ordering::Relaxed));
        let index = numbers.spoilt(next);
        match queue.append(&terms, &place, &[b"abcde", b"", b"f"], index) {
            Ok((count, None | Some(Refusal::LockLost))) => {
                assert_eq!(count, 3);
                done += 1;
            }
            Ok((count, Some(_))) => {
                assert_eq!(count, 0);
                refused += 1;
            }
            Err(_) => faults += 1,
        }
        for bytes in [&queue.table, &queue.store, &queue.turn] {
            assert!(bytes.are_guards_whole());
        }
    }
    assert!(done > 1000 && refused > 1000 && faults > 1000, "{done} {refused} {faults}");
}
