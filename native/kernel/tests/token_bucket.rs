//! How many bytes a connection with a limit may send, and when.

#![allow(clippy::expect_used)] // a test that panics has failed

use std::time::{Duration, Instant};

use cqrepl_kernel::live::token_bucket::TokenBucket;

const RATE: i64 = 80_000; // 8,000 are kept, 4,000 of them for live queues; steps of 1,000

fn after(start: Instant, millis: u64) -> Instant {
    start + Duration::from_millis(millis)
}

#[test]
fn tokens_come_evenly_and_a_tenth_of_a_second_is_kept() {
    let start = Instant::now();
    let mut bucket = TokenBucket::new(RATE, 0, Some(start));
    let mut tokens = Vec::new();
    for millis in [1, 1, 50, 99, 5_000] {
        bucket.fill(after(start, millis));
        tokens.push(bucket.tokens());
    }
    assert_eq!(tokens, [80, 80, 4_000, 7_920, 8_000]);
}

#[test]
fn no_token_is_lost_between_many_looks() {
    let start = Instant::now();
    let mut bucket = TokenBucket::new(7, 0, Some(start));
    for nth in 1..=1_000_000 {
        bucket.fill(start + Duration::from_micros(nth));
        if bucket.room(false) > 0 {
            bucket.spend(1);
        }
    }
    assert_eq!(bucket.tokens(), 0, "seven came, and seven went");
}

#[test]
fn what_is_live_may_have_what_catching_up_leaves() {
    let mut bucket = TokenBucket::new(RATE, 8_000, Some(Instant::now()));
    assert_eq!(bucket.room(true), 4_000);
    bucket.spend(4_000);
    assert_eq!((bucket.room(true), bucket.room(false)), (0, 4_000));
    bucket.spend(3_999);
    assert_eq!((bucket.room(true), bucket.room(false)), (0, 1));
}

#[test]
fn where_too_few_were_left_nothing_goes_until_a_step_has_come() {
    let start = Instant::now();
    let mut bucket = TokenBucket::new(RATE, 0, Some(start));
    let mut rooms = Vec::new();
    for millis in [12, 13, 62, 63] {
        bucket.fill(after(start, millis));
        rooms.push((bucket.room(false), bucket.room(true)));
    }
    assert_eq!(rooms, [(0, 0), (1_040, 0), (4_960, 0), (5_040, 1_040)]);
}

#[test]
fn a_long_excerpt_goes_whole_and_is_owed() {
    let start = Instant::now();
    let mut bucket = TokenBucket::new(RATE, 8_000, Some(start));
    assert!(bucket.opens_at(false).is_none());
    bucket.spend(88_000);
    assert_eq!((bucket.tokens(), bucket.room(false)), (-80_000, 0));
    let opens_at = bucket.opens_at(false).expect("it owes");
    let wait = opens_at - start;
    assert!(wait >= Duration::from_micros(1_012_500) && wait < Duration::from_micros(1_012_501));
    bucket.fill(opens_at - Duration::from_micros(1));
    assert_eq!(bucket.room(false), 0);
    bucket.fill(opens_at);
    assert_eq!(bucket.room(false), 1_000);
}

#[test]
fn what_has_much_is_waited_for_until_there_is_more_than_the_reserve() {
    let start = Instant::now();
    let mut bucket = TokenBucket::new(RATE, 2_000, Some(start));
    assert!(bucket.opens_at(false).is_none(), "what is live may go out");
    let opens_at = bucket.opens_at(true).expect("what has much may not");
    let wait = opens_at - start; // for 5,000 tokens
    assert!(wait >= Duration::from_micros(37_500) && wait < Duration::from_micros(37_501));
    bucket.fill(opens_at - Duration::from_micros(1));
    assert_eq!(bucket.room(true), 0);
    bucket.fill(opens_at);
    assert_eq!((bucket.room(true), bucket.opens_at(true)), (1_000, None));
}

#[test]
fn in_a_step_no_time_goes_on() {
    let mut bucket = TokenBucket::new(RATE, 500, None);
    bucket.fill(Instant::now() + Duration::from_secs(9));
    assert_eq!((bucket.tokens(), bucket.opens_at(true)), (500, None));
}

#[test]
fn the_slowest_and_the_fastest_limit_have_room_for_something() {
    let start = Instant::now();
    for rate in [1, 2, 9, 11, i64::MAX] {
        let mut bucket = TokenBucket::new(rate, 0, Some(start));
        bucket.fill(after(start, 3_600_000));
        assert!(bucket.room(false) > 0, "{rate}");
        assert!(bucket.room(true) > 0, "{rate}");
    }
}
