//! Threads that raise marks and threads that wait for them, at the same time: none sleeps on.

#![allow(clippy::expect_used)] // a test that panics has failed

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cqrepl_kernel::live::board::{Bell, Board, Waited, Wanted};

const LEVEL: usize = 0;
const INDEXES: i64 = if cfg!(miri) { 20 } else { 20_000 };
const LONG: Duration = Duration::from_secs(60);

fn board() -> Arc<Board> {
    Arc::new(Board::new(Arc::new(Bell::new().expect("a descriptor"))))
}

fn wanted(index: i64, hosts_min: usize) -> Wanted {
    Wanted { level: LEVEL, index, hosts_min, hosts: None }
}

fn wait(board: &Board, wanted: Wanted) -> Waited {
    let seat = board.enter(wanted, Some(LONG));
    while !seat.sleep() {}
    board.leave(&seat)
}

#[test]
fn no_mark_is_missed() {
    let board = board();
    let raisers: Vec<_> = [1, 2]
        .into_iter()
        .map(|host| {
            let row = board.row(host);
            thread::spawn(move || (0..INDEXES).for_each(|index| row.raise_to(LEVEL, index)))
        })
        .collect();
    let waiters: Vec<_> = [1, 2]
        .into_iter()
        .map(|hosts| {
            let board = Arc::clone(&board);
            thread::spawn(move || {
                (0..INDEXES).all(|index| wait(&board, wanted(index, hosts)) == Waited::Reached)
            })
        })
        .collect();
    assert!(waiters.into_iter().all(|waiter| waiter.join().expect("no panic")));
    raisers.into_iter().for_each(|raiser| raiser.join().expect("no panic"));
    assert_eq!(board.marks(LEVEL), [(1, INDEXES - 1), (2, INDEXES - 1)]);
}

#[test]
fn each_answer_wakes_the_next_question() {
    let (board, answers) = (board(), board());
    let (asked, answered) = (board.row(1), answers.row(1));
    let echo = thread::spawn(move || {
        for index in 0..INDEXES {
            assert_eq!(wait(&board, wanted(index, 1)), Waited::Reached);
            answered.raise_to(LEVEL, index);
        }
    });
    for index in 0..INDEXES {
        asked.raise_to(LEVEL, index);
        assert_eq!(wait(&answers, wanted(index, 1)), Waited::Reached);
    }
    echo.join().expect("no panic");
}

#[test]
fn the_end_wakes_what_comes_to_wait() {
    for _ in 0..INDEXES / 100 {
        let board = board();
        let waits = Arc::clone(&board);
        let waiter = thread::spawn(move || wait(&waits, wanted(1, 1)));
        board.end();
        assert_eq!(waiter.join().expect("no panic"), Waited::Ended);
    }
}
