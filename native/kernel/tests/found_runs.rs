//! Runs that a lane has found go to other sinks without another walk, as far as they are still so.

#![allow(clippy::expect_used, clippy::indexing_slicing)] // a test that panics has failed

use cqrepl_kernel::live::found_runs::{File, FoundRun, FoundRuns};
use cqrepl_kernel::mem::Source;

const FILE: File = (1, 2);
const START: usize = 16;
const FREE: i64 = i64::MAX;

/// Excerpts of these lengths behind one another, and the run that they are.
fn found(index: i64, lengths: &[u32]) -> (Vec<u8>, FoundRun) {
    let (mut file, mut last, mut end) = (vec![0; START], 0, 0);
    for &length in lengths {
        file.resize(file.len().next_multiple_of(4), 0);
        last = file.len();
        file.extend(length.to_le_bytes());
        file.resize(file.len() + length as usize, 7);
        end = file.len();
    }
    let run = FoundRun {
        index,
        start: START,
        end,
        lengths: lengths.to_vec(),
        position: end as i64,
        position_last: last as i64,
        certain_end: 0,
        stretch_bytes: 0,
    };
    (file, run)
}

#[test]
fn the_rest_of_a_run_is_found_from_each_of_its_excerpts() {
    let lengths = [5, 8, 1, 3];
    let (file, run) = found(10, &lengths);
    let runs = FoundRuns::default();
    runs.keep(FILE, run);
    for (skipped, start) in [16, 28, 40, 48].into_iter().enumerate() {
        let rest = runs.from(FILE, 10 + skipped as i64).expect("it is kept");
        assert_eq!((rest.start, rest.size()), (start, file.len() - start));
        assert_eq!(rest.lengths(), &lengths[skipped..]);
        assert!(rest.stands_in(Source::from(&*file), 8));
    }
    assert!(runs.from(FILE, 9).is_none());
    assert!(runs.from(FILE, 14).is_none());
    assert!(runs.from((1, 3), 10).is_none());
}

#[test]
fn a_run_does_not_stand_in_a_file_that_has_other_headers() {
    let (file, run) = found(10, &[5, 8]);
    let runs = FoundRuns::default();
    runs.keep(FILE, run);
    let rest = runs.from(FILE, 10).expect("it is kept");
    assert!(!rest.stands_in(Source::from(&*file), 7), "an excerpt is longer than allowed");
    for (at, byte) in [(16, 6), (19, 0x80), (28, 9), (31, 0x40)] {
        let mut other = file.clone();
        other[at] = byte;
        assert!(!rest.stands_in(Source::from(&*other), FREE), "the byte at {at} is another one");
    }
    assert!(!rest.stands_in(Source::from(&file[..30]), FREE), "the file is mapped no further");
}

#[test]
fn only_so_many_are_kept_and_the_oldest_go_first() {
    let runs = FoundRuns::default();
    for index in 0..1100 {
        runs.keep(FILE, found(index, &[1]).1);
    }
    assert!(runs.from(FILE, 75).is_none());
    assert!(runs.from(FILE, 76).is_some());
    // all lengths together are bounded, too
    let long = vec![1; (512 << 10) - 10];
    runs.keep(FILE, found(5000, &long).1);
    assert!(runs.from(FILE, 1089).is_none());
    assert!(runs.from(FILE, 1090).is_some());
    runs.keep(FILE, found(5000, &[1]).1);
    assert!(runs.from(FILE, 5001).is_some(), "one that begins there is kept already");
}
