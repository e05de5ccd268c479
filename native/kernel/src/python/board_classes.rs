//! The classes `Bell`, `Board` and `BoardRow`: how far each host is, and threads that wait for that.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::exceptions::{PyAssertionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::live::board::{Bell, Board, HostSet, Row, Wanted, LEVELS};
use crate::live::control::locked;
use crate::live::safe_word::{SafeWord, SharedWord};
use crate::mem::View;

/// Hosts have ids below this; 0 stands for all peers that have none.
const HOSTS: i64 = 128;

fn level_of(level: usize) -> PyResult<usize> {
    let is_level = level < LEVELS;
    is_level.then_some(level).ok_or_else(|| PyValueError::new_err("expected a level from 0 to 2"))
}

/// Wakes an event loop.
#[pyclass(frozen, name = "Bell", module = "cqrepl._native")]
pub struct PyBell(Arc<Bell>);

#[pymethods]
impl PyBell {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(PyBell(Arc::new(Bell::new()?)))
    }

    /// A board that rings this bell.
    fn board(&self) -> PyBoard {
        let board = Arc::new(Board::new(Arc::clone(&self.0)));
        PyBoard { board, named: Mutex::default() }
    }

    /// The descriptor, which can be read once it has rung. It is open as long as this lives.
    fn fileno(&self) -> i32 {
        self.0.number()
    }

    /// Has it ring.
    fn ring(&self) {
        self.0.ring();
    }

    /// Takes back that it has rung.
    fn clear(&self) {
        self.0.clear();
    }
}

/// A word of a buffer that processes share.
struct BufferWord {
    buffer: View,
    position: usize,
}

impl SharedWord for BufferWord {
    fn raise_to(&self, index: i64) {
        if let Some(word) = self.buffer.cells().cell_8(self.position) {
            word.fetch_max(index, Ordering::SeqCst);
        }
    }
}

/// The marks of one queue.
#[pyclass(frozen, name = "Board", module = "cqrepl._native")]
pub struct PyBoard {
    board: Arc<Board>,
    /// The last tuple of hosts that came, and what is in it. Most waits come with the same one, and
    /// to look at each of 127 ids takes several times as long as the rest of a wait.
    named: Mutex<Option<(Py<PyTuple>, HostSet)>>,
}

impl PyBoard {
    fn wanted(
        &self,
        index: i64,
        count: usize,
        level: usize,
        hosts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Wanted> {
        let hosts = hosts.map(|hosts| self.hosts_of(hosts)).transpose()?;
        Ok(Wanted { level: level_of(level)?, index, hosts_min: count, hosts })
    }

    /// What is in a sequence of ids. Only a tuple stays what it was.
    fn hosts_of(&self, hosts: &Bound<'_, PyAny>) -> PyResult<HostSet> {
        let set = |hosts: &Bound<'_, PyAny>| Ok(HostSet::of(hosts.extract::<Vec<i64>>()?));
        let Ok(tuple) = hosts.cast_exact::<PyTuple>() else {
            return set(hosts);
        };
        if let Some((last, found)) = &*locked(&self.named) {
            if last.is(tuple) {
                return Ok(*found);
            }
        }
        let found = set(hosts)?;
        let before = locked(&self.named).replace((tuple.clone().unbind(), found));
        drop(before); // once the lock is free
        Ok(found)
    }
}

#[pymethods]
impl PyBoard {
    /// The marks of a host, which may be new.
    fn row(&self, host: i64) -> PyResult<PyBoardRow> {
        if !(0..HOSTS).contains(&host) {
            return Err(PyValueError::new_err("expected a host from 0 to 127"));
        }
        Ok(PyBoardRow(self.board.row(host)))
    }

    /// The hosts that have a mark at this level, and their marks.
    fn marks(&self, level: usize) -> PyResult<Vec<(i64, i64)>> {
        Ok(self.board.marks(level_of(level)?))
    }

    /// True when so many of these hosts have this index.
    fn has(
        &self,
        index: i64,
        count: usize,
        level: usize,
        hosts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        Ok(self.board.has(&self.wanted(index, count, level, hosts)?))
    }

    /// Sleeps until they have it; the answer is how it stands then.
    fn wait(
        &self,
        py: Python<'_>,
        index: i64,
        count: usize,
        level: usize,
        hosts: Option<&Bound<'_, PyAny>>,
        seconds: Option<f64>,
    ) -> PyResult<u8> {
        let wanted = self.wanted(index, count, level, hosts)?;
        if seconds.is_some_and(|seconds| seconds.is_nan() || seconds < 0.0) {
            return Err(PyValueError::new_err("expected 0 seconds or more"));
        }
        let longest = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let seat = self.board.enter(wanted, longest);
        while !py.detach(|| seat.sleep()) {
            if let Err(error) = py.check_signals() {
                self.board.leave(&seat);
                return Err(error);
            }
        }
        Ok(self.board.leave(&seat) as u8)
    }

    /// Has the bell ring once, when they have it or the board has ended. The answer is for
    /// `unwatch`.
    fn watch(
        &self,
        index: i64,
        count: usize,
        level: usize,
        hosts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        Ok(self.board.watch(self.wanted(index, count, level, hosts)?))
    }

    /// Ends a watch.
    fn unwatch(&self, watch: u64) {
        self.board.forget(watch);
    }

    /// From now on raises the word at a position of a buffer with the marks, to the index that so
    /// many of these hosts have at a level.
    fn keep_safe(
        &self,
        buffer: &Bound<'_, PyAny>,
        position: usize,
        count: usize,
        level: usize,
        hosts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let Wanted { level, hosts_min, hosts, .. } = self.wanted(0, count, level, hosts)?;
        let buffer = View::of(buffer)?;
        if buffer.cells().cell_8(position).is_none() {
            return Err(PyAssertionError::new_err("expected the position of a word to be raised"));
        }
        let word = Box::new(BufferWord { buffer, position });
        let before = self.board.keep_safe(Some(SafeWord { level, hosts_min, hosts, word }));
        drop(before); // once the lock is free
        Ok(())
    }

    /// Raises no word any more, and gives its buffer back.
    fn keep_none_safe(&self) {
        drop(self.board.keep_safe(None));
    }

    /// Ends all waits, and those to come.
    fn end(&self) {
        self.board.end();
    }

    /// Lets threads wait again.
    fn go_on(&self) {
        self.board.go_on();
    }
}

/// The marks of one host on one board.
#[pyclass(frozen, name = "BoardRow", module = "cqrepl._native")]
pub struct PyBoardRow(pub Row);

#[pymethods]
impl PyBoardRow {
    /// The same host, whose word counts from an index on, and for nothing before it.
    fn claiming(&self, first: i64) -> PyBoardRow {
        PyBoardRow(self.0.claiming(first))
    }

    /// Raises a mark, or the claim; one that is higher stays.
    fn raise_to(&self, level: usize, index: i64) -> PyResult<()> {
        self.0.raise_to(level_of(level)?, index);
        Ok(())
    }

    /// Lowers a mark, and with what is appended the claim; one that is lower stays.
    fn lower_to(&self, level: usize, index: i64) -> PyResult<()> {
        self.0.lower_to(level_of(level)?, index);
        Ok(())
    }

    /// The mark; -1 for nothing.
    fn mark(&self, level: usize) -> PyResult<i64> {
        Ok(self.0.mark(level_of(level)?))
    }
}
