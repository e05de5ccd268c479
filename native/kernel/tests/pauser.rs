//! When a balanced pauser stays awake for the next excerpt.

use std::time::{Duration, Instant};

use cqrepl_kernel::live::pauser::Gaps;

/// Gaps of so many microseconds, one after the other; the last excerpt was found at the second.
fn found(micros: &[u64]) -> (Gaps, Instant) {
    let mut gaps = Gaps::default();
    let mut now = Instant::now();
    gaps.found(now);
    for gap in micros {
        now += Duration::from_micros(*gap);
        gaps.found(now);
    }
    (gaps, now)
}

fn is_due(gaps: &Gaps, last: Instant, micros: u64) -> bool {
    gaps.is_due(last + Duration::from_micros(micros))
}

#[test]
fn nothing_is_due_before_a_gap_is_known() {
    let (gaps, last) = found(&[]);
    assert!(!is_due(&gaps, last, 100));
}

#[test]
fn what_comes_regularly_is_due_around_its_time() {
    let (gaps, last) = found(&[500; 8]);
    let due: Vec<bool> =
        [0, 249, 250, 500, 749, 750, 5000].iter().map(|at| is_due(&gaps, last, *at)).collect();
    assert_eq!(due, [false, false, true, true, true, false, false]);
}

#[test]
fn what_comes_seldom_is_not_waited_for() {
    let (gaps, last) = found(&[100_000; 8]);
    assert!(!(0..200_000).step_by(50).any(|at| is_due(&gaps, last, at)));
}

#[test]
fn one_odd_gap_is_soon_forgotten() {
    let (gaps, last) = found(&[500, 500, 500, 1_000_000, 500, 500, 500, 500, 500, 500]);
    assert!(is_due(&gaps, last, 500));
}
