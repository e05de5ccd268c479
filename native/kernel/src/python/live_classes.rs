//! The live pump for Python: it runs in a thread without the GIL for a slice of time.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::live::board::{Row, NOTHING};
use crate::live::control::{locked, Control, PumpError};
use crate::live::found_runs::{File, FoundRuns};
use crate::live::lane_moves::{
    LaneMoves, SinkLaneMove, SinkLaneState, SourceLaneMove, SourceLaneState,
};
use crate::live::pauser::{self, Pauser, Pausing};
use crate::live::pump::{self, Lanes, Room};
use crate::live::recorded::{Recorded, SequenceWord, Slots};
use crate::live::send_budget::SendBudget;
use crate::live::sink_lane::{SinkLane, Stored};
use crate::live::source_lane::{LanePlace, Sent, SourceLane};
use crate::live::stored_bell::StoredBell;
use crate::mem::fault::Fault;
use crate::mem::{self, View};
use crate::python::board_classes::PyBoardRow;
use crate::python::functions::array;
use crate::python::pen_class::PyPen;
use crate::python::word_looks::PyWordLooks;

const BUFFER_BYTES: usize = 256 << 10;
/// And so many more where runs come: of four, one is not all there yet.
const RUN_ROOM_BYTES: usize = 64 << 10;

/// Position, first sequence, count and spacing of the slots of a page.
type PySlots = (usize, i64, i64, i64);
/// Where it is recorded what writers have written: `cqrepl.queue.read.tailer.Stand`.
type PyRecorded = (usize, Option<(usize, u32)>, Option<PySlots>, Option<usize>);

impl From<PumpError> for PyErr {
    fn from(error: PumpError) -> Self {
        match error {
            PumpError::Io(error) => error.into(),
            PumpError::Fault(fault) => fault.into(),
        }
    }
}

/// What a live pump and the event loop share. Any thread may use it.
#[pyclass(frozen, name = "LiveControl", module = "cqrepl._native")]
pub struct PyLiveControl(Control);

#[pymethods]
impl PyLiveControl {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(PyLiveControl(Control::new()?))
    }

    /// Asks the pump to come back.
    fn interrupt(&self) {
        self.0.interrupt();
    }

    /// Takes the wish back, before the pump runs again.
    fn reset(&self) {
        self.0.reset();
    }

    /// Gives whole documents for the peer, which the pump sends between two others.
    fn send(&self, data: &[u8]) {
        self.0.send(data);
    }

    /// A descriptor that can be read when a pump has something for the event loop.
    #[getter]
    fn bell(&self) -> i32 {
        self.0.bell()
    }

    /// Takes whole documents that a pump has received and handed over, and silences the bell.
    fn take_handed<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.take_handed())
    }

    /// Gives the pump that runs next so many tokens, for bytes of excerpts; more come so many a
    /// second, unless its time does not go on.
    fn put_tokens(&self, bytes_per_s: i64, tokens: i64, goes_on: bool) -> PyResult<()> {
        if bytes_per_s < 1 {
            return Err(PyValueError::new_err("expected at least one byte a second"));
        }
        self.0.put_tokens(bytes_per_s, tokens, goes_on);
        Ok(())
    }

    /// Takes the tokens that a pump has left; None without a limit.
    fn take_tokens(&self) -> Option<i64> {
        self.0.take_tokens()
    }

    /// Takes the bytes that were to be sent and that no pump has taken.
    fn take<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut bytes = Vec::new();
        self.0.take_outgoing(&mut bytes);
        PyBytes::new(py, &bytes)
    }
}

/// What the lanes of one connection may have sent that is not acknowledged.
#[pyclass(frozen, name = "SendBudget", module = "cqrepl._native")]
pub struct PySendBudget(Arc<SendBudget>);

#[pymethods]
impl PySendBudget {
    #[new]
    fn new(free: i64) -> Self {
        PySendBudget(Arc::new(SendBudget::new(free)))
    }

    /// How many excerpts may be sent.
    #[getter]
    fn free(&self) -> i64 {
        self.0.free()
    }

    /// So many are free now; for the time when no pump runs.
    fn set(&self, free: i64) {
        self.0.set(free);
    }
}

/// The runs that the lanes of a source have found last, which go to other sinks without another walk.
#[pyclass(frozen, name = "FoundRuns", module = "cqrepl._native")]
pub struct PyFoundRuns(Arc<FoundRuns>);

#[pymethods]
impl PyFoundRuns {
    #[new]
    fn new() -> Self {
        PyFoundRuns(Arc::default())
    }

    /// For one queue that is open, until it is closed.
    fn of_queue(&self) -> PyQueueRuns {
        let number = Arc::new(self.0.next_queue());
        PyQueueRuns { found: Arc::clone(&self.0), number }
    }
}

/// Those of one queue, for all lanes of it.
#[pyclass(frozen, from_py_object, name = "QueueRuns", module = "cqrepl._native")]
#[derive(Clone)]
pub struct PyQueueRuns {
    found: Arc<FoundRuns>,
    /// Each lane holds it, so that it is known whether there is more than one.
    number: Arc<u64>,
}

impl PyQueueRuns {
    /// What a lane has of them; nothing while it is the only one of its queue, which would keep all
    /// that it finds in vain.
    fn shared(&self, file: u64) -> Option<(&FoundRuns, File)> {
        let lanes = Arc::strong_count(&self.number) - 1; // beside the queue's own
        (lanes > 1).then(|| (&*self.found, (*self.number, file)))
    }
}

/// Acknowledgements, what they settle, and lengths.
type PySent<'py> = (Bound<'py, PyAny>, (i64, i64), Bound<'py, PyAny>);

/// One queue of a source, for one slice of time after the other.
#[pyclass(frozen, name = "SourceLane", module = "cqrepl._native")]
pub struct PySourceLane {
    /// `None` while a pump has it, and once it was let go.
    store: Mutex<Option<View>>,
    cid_document: Vec<u8>,
    payload_max: i64,
    has_runs: bool,
    recorded: Recorded,
    /// Those of its queue, and the number of its file.
    runs: Option<(PyQueueRuns, u64)>,
    sent: Mutex<Sent>,
    is_logged: bool,
    row: Row,
    can_prove: bool,
    budget: Option<Arc<SendBudget>>,
    has_much: AtomicBool,
    moves: LaneMoves<SourceLaneState>,
    room_low: Mutex<(i64, i64)>,
}

#[pymethods]
impl PySourceLane {
    #[new]
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (
        store, place, cid_document, payload_max, recorded, room, is_logged, row, index_sent,
        target, index_held, has_runs = false, has_much = false, budget = None,
        held = 0, runs = None, can_prove = true
    ))]
    fn new(
        store: &Bound<'_, PyAny>,
        place: (i64, i64, i64, i64),
        cid_document: Vec<u8>,
        payload_max: i64,
        recorded: PyRecorded,
        room: (i64, i64),
        is_logged: bool,
        row: &PyBoardRow,
        index_sent: i64,
        target: i64,
        index_held: i64,
        has_runs: bool,
        has_much: bool,
        budget: Option<&PySendBudget>,
        held: i64,
        runs: Option<(PyQueueRuns, u64)>,
        can_prove: bool,
    ) -> PyResult<Self> {
        let (position, index, sequence, certain_end) = place;
        let (room_excerpts, room_bytes) = room;
        let (write_position, sequence_word, slots, pages) = recorded;
        let sequence_word = sequence_word.map(|(position, bits)| SequenceWord { position, bits });
        let slots = slots.map(|(position, sequence, count, spacing)| Slots {
            position,
            sequence,
            count,
            spacing,
        });
        if position < 0 || sequence < 0 || slots.is_some_and(|slots| slots.spacing <= 0) {
            return Err(PyValueError::new_err("expected a place in a store file"));
        }
        let place = LanePlace {
            position,
            index,
            sequence,
            certain_end,
            stretch_bytes: 0,
            position_last: 0,
            room_excerpts,
            room_bytes,
            held,
        };
        let recorded = Recorded { write_position, sequence: sequence_word, slots, pages };
        let (lengths, settled, acks, is_muted) = (VecDeque::new(), (0, 0), Vec::new(), false);
        let index_claimed = NOTHING;
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
        Ok(PySourceLane {
            store: Mutex::new(Some(View::of(store)?)),
            cid_document,
            payload_max,
            has_runs,
            recorded,
            runs,
            sent: Mutex::new(sent),
            is_logged,
            row: row.0.clone(),
            can_prove,
            budget: budget.map(|budget| Arc::clone(&budget.0)),
            has_much: AtomicBool::new(has_much),
            moves: LaneMoves::new(),
            room_low: Mutex::new(half(room)),
        })
    }

    /// Has the pump that runs next go on from where the last one stopped. The arguments are those of
    /// the constructor; what was sent and acknowledged was taken before.
    fn go_on(
        &self,
        room: (i64, i64),
        index_sent: i64,
        target: i64,
        index_held: i64,
        held: i64,
        has_much: bool,
    ) {
        let mut sent = locked(&self.sent);
        debug_assert!(sent.lengths.is_empty() && sent.acks.is_empty() && sent.settled == (0, 0));
        let (room_excerpts, room_bytes) = room;
        sent.place = LanePlace { room_excerpts, room_bytes, held, ..sent.place };
        (sent.index_sent, sent.index_held, sent.target) = (index_sent, index_held, target);
        *locked(&self.room_low) = half(room);
        self.has_much.store(has_much, Ordering::Relaxed);
    }

    /// Lets go of the mapped file. The caller guards the record locks of the file, as that may close
    /// a descriptor of it. Nothing while a pump has the lane.
    fn let_go(&self) {
        if locked(&self.store).take().is_some() {
            self.moves.make(SourceLaneMove::LetGo);
        }
    }

    /// The place of its state among those of `cqrepl.protocol.states.SourceLaneState`.
    #[getter]
    fn state(&self) -> u8 {
        self.moves.nth()
    }

    /// The moves that it has made since the last call, as a bit for each pair of a state and a move:
    /// the place of the state, times the number of moves, and the place of the move.
    fn take_moves(&self) -> u64 {
        self.moves.take()
    }

    /// The position of the next header.
    #[getter]
    fn position(&self) -> i64 {
        locked(&self.sent).place.position
    }

    /// The position of the header of the last excerpt sent; 0 when none was.
    #[getter]
    fn position_last(&self) -> i64 {
        locked(&self.sent).place.position_last
    }

    /// The greatest index that the peer has acknowledged and was not sent, where it cannot prove what
    /// it holds; -1 when there was none.
    #[getter]
    fn index_claimed(&self) -> i64 {
        locked(&self.sent).index_claimed
    }

    /// True when it had more than could be sent when it was looked at last.
    #[getter]
    fn has_much(&self) -> bool {
        self.has_much.load(Ordering::Relaxed)
    }

    /// Lets so many excerpts and payload bytes more be sent.
    fn add_room(&self, excerpts: i64, payload_bytes: i64) {
        let place = &mut locked(&self.sent).place;
        place.room_excerpts = place.room_excerpts.saturating_add(excerpts);
        place.room_bytes = place.room_bytes.saturating_add(payload_bytes);
        place.held = place.held.saturating_sub(excerpts);
        if let Some(budget) = &self.budget {
            budget.give(excerpts);
        }
    }

    /// From now on no acknowledgement raises a mark.
    fn mute(&self) {
        locked(&self.sent).is_muted = true;
    }

    /// What was sent and acknowledged since the last call.
    ///
    /// First the acknowledgements, as an `array('q')` with three numbers for each: the index, the
    /// nano time, and when it came. Then how many excerpts were sent that these acknowledge, and the
    /// sum of their lengths; and the lengths of those sent behind them, as an `array('q')`. In a lane
    /// that is logged all excerpts are among the latter.
    fn take_sent<'py>(&self, py: Python<'py>) -> PyResult<PySent<'py>> {
        let mut sent = locked(&self.sent);
        let (acks, settled) = (take(&mut sent.acks), take(&mut sent.settled));
        let lengths = take(&mut sent.lengths);
        drop(sent); // what is made of them may take a moment
        let lengths = Vec::from(lengths);
        Ok((array(py, acks.as_flattened())?, settled, array(py, &lengths)?))
    }
}

/// The half of the room that a lane has: with less of it, acknowledgements are wanted.
fn half((excerpts, bytes): (i64, i64)) -> (i64, i64) {
    (excerpts / 2, bytes / 2)
}

/// The mapped files of lanes, for as long as a pump runs on them.
struct Lent<'l> {
    lanes: Vec<&'l PySourceLane>,
    stores: Vec<View>,
}

impl<'l> Lent<'l> {
    fn of(sources: &'l [Py<PySourceLane>]) -> Result<Self, Fault> {
        let mut lent = Lent { lanes: Vec::new(), stores: Vec::new() };
        for lane in sources.iter().map(Py::get) {
            let store = locked(&lane.store).take();
            lent.stores.push(store.ok_or(Fault::Value("expected a lane that no other pump has"))?);
            lent.lanes.push(lane);
            let is_behind = lane.has_much.load(Ordering::Relaxed);
            let made = if is_behind { SourceLaneMove::LendBehind } else { SourceLaneMove::Lend };
            lane.moves.make(made);
        }
        Ok(lent)
    }

    fn lanes(&self) -> Vec<SourceLane<'_>> {
        let both = self.lanes.iter().zip(&self.stores);
        both.map(|(lane, store)| lane.lane(store)).collect()
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        for (lane, store) in self.lanes.iter().zip(self.stores.drain(..)) {
            lane.moves.make(SourceLaneMove::ComeBack);
            *locked(&lane.store) = Some(store);
        }
    }
}

impl PySourceLane {
    fn lane<'a>(&'a self, store: &'a View) -> SourceLane<'a> {
        SourceLane {
            store: store.source(),
            cid_document: &self.cid_document,
            payload_max: self.payload_max,
            has_runs: self.has_runs,
            recorded: self.recorded,
            found: self.runs.as_ref().and_then(|(runs, file)| runs.shared(*file)),
            sent: &self.sent,
            is_logged: self.is_logged,
            row: &self.row,
            can_prove: self.can_prove,
            budget: self.budget.as_deref(),
            has_much: &self.has_much,
            moves: &self.moves,
            room_low: *locked(&self.room_low),
        }
    }
}

/// Wakes a thread that waits for what live pumps store.
#[pyclass(frozen, name = "StoredBell", module = "cqrepl._native")]
pub struct PyStoredBell(Arc<StoredBell>);

#[pymethods]
impl PyStoredBell {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(PyStoredBell(Arc::new(StoredBell::new()?)))
    }

    /// Waits until it rings: the numbers of what was stored since the last call, each with its last
    /// index. There may be none.
    fn wait(&self, py: Python<'_>) -> Vec<(u64, i64)> {
        py.detach(|| self.0.wait())
    }

    /// Has it ring, with nothing to tell.
    fn ring(&self) {
        self.0.ring();
    }
}

impl PyStoredBell {
    fn bell(&self) -> Arc<StoredBell> {
        Arc::clone(&self.0)
    }
}

/// One queue of a sink, for one slice of time after the other.
#[pyclass(frozen, name = "SinkLane", module = "cqrepl._native")]
pub struct PySinkLane {
    /// `None` between two pumps: it keeps the store file open.
    pen: Mutex<Option<Py<PyPen>>>,
    cid_document: Vec<u8>,
    payload_max: i64,
    has_runs: bool,
    is_acknowledged: bool,
    is_logged: AtomicBool,
    stored: Mutex<Stored>,
    moves: LaneMoves<SinkLaneState>,
}

#[pymethods]
impl PySinkLane {
    #[new]
    #[pyo3(signature = (
        pen, cid_document, payload_max, is_acknowledged, is_logged, acknowledged, has_runs = false
    ))]
    fn new(
        pen: Py<PyPen>,
        cid_document: Vec<u8>,
        payload_max: i64,
        is_acknowledged: bool,
        is_logged: bool,
        acknowledged: i64,
        has_runs: bool,
    ) -> Self {
        let stored = Mutex::new(Stored::after(acknowledged));
        PySinkLane {
            pen: Mutex::new(Some(pen)),
            cid_document,
            payload_max,
            has_runs,
            is_acknowledged,
            is_logged: AtomicBool::new(is_logged),
            stored,
            moves: LaneMoves::new(),
        }
    }

    /// The place of its state among those of `cqrepl.protocol.states.SinkLaneState`.
    #[getter]
    fn state(&self) -> u8 {
        self.moves.nth()
    }

    /// The moves that it has made since the last call, as `SourceLane.take_moves`.
    fn take_moves(&self) -> u64 {
        self.moves.take()
    }

    /// Has the pump that runs next go on. The arguments are those of the constructor; what was stored
    /// was taken before, and what was told is told by the event loop.
    fn go_on(&self, pen: Py<PyPen>, is_logged: bool, acknowledged: i64) {
        *locked(&self.pen) = Some(pen);
        self.is_logged.store(is_logged, Ordering::Relaxed);
        let mut stored = locked(&self.stored);
        debug_assert!(stored.excerpts == 0 && stored.entries.is_empty());
        *stored = Stored::after(acknowledged);
    }

    /// Lets go of the pen, and with it of the store file, until a pump goes on. Nothing is changed for
    /// one that has it.
    fn let_go(&self) {
        *locked(&self.pen) = None;
    }

    /// How many excerpts and bytes were stored since the last call, and their entries for a log.
    fn take_stored<'py>(&self, py: Python<'py>) -> (i64, i64, Bound<'py, PyBytes>) {
        let mut stored = locked(&self.stored);
        let (excerpts, bytes) = (take(&mut stored.excerpts), take(&mut stored.bytes));
        (excerpts, bytes, PyBytes::new(py, &take(&mut stored.entries)))
    }

    /// From now on this bell is told, under this number, as soon as anything is stored.
    fn await_stored(&self, bell: PyRef<'_, PyStoredBell>, number: u64) {
        locked(&self.stored).awaited = Some((bell.bell(), number));
    }

    /// Everything up to this index has reached a level, which the source is to be told once it was
    /// acknowledged. The pump has to be woken.
    fn say_level(&self, level: usize, index: i64) {
        if let Some(reached) = locked(&self.stored).reached.get_mut(level) {
            *reached = index.max(*reached);
        }
    }

    /// Up to which index was acknowledged, and what was said of each further level.
    #[getter]
    fn told(&self) -> (i64, i64, i64) {
        let stored = locked(&self.stored);
        let [_, synced, applied] = stored.said;
        (stored.acknowledged, synced, applied)
    }
}

impl PySinkLane {
    fn lane<'l>(&'l self, pen: &'l Py<PyPen>) -> Result<SinkLane<'l>, Fault> {
        Ok(SinkLane {
            cid_document: &self.cid_document,
            pen: pen.get().pen()?,
            payload_max: self.payload_max,
            has_runs: self.has_runs,
            is_acknowledged: self.is_acknowledged,
            is_logged: self.is_logged.load(Ordering::Relaxed),
            stored: &self.stored,
            due: None,
            moves: &self.moves,
        })
    }
}

/// The lanes of a sink that a pump has.
struct LentSinks<'l> {
    lanes: Vec<&'l PySinkLane>,
    pens: Vec<Py<PyPen>>,
    /// False until the pump is back, with nothing left to acknowledge.
    is_back: bool,
}

impl<'l> LentSinks<'l> {
    fn of(py: Python<'_>, sinks: &'l [Py<PySinkLane>]) -> Result<Self, Fault> {
        let mut lent = LentSinks { lanes: Vec::new(), pens: Vec::new(), is_back: false };
        for lane in sinks.iter().map(Py::get) {
            let pen = locked(&lane.pen).as_ref().map(|pen| pen.clone_ref(py));
            lent.pens.push(pen.ok_or(Fault::Value("expected a lane that has a pen"))?);
            lent.lanes.push(lane);
            lane.moves.make(SinkLaneMove::Lend);
        }
        Ok(lent)
    }

    fn lanes(&self) -> Result<Vec<SinkLane<'_>>, Fault> {
        self.lanes.iter().zip(&self.pens).map(|(lane, pen)| lane.lane(pen)).collect()
    }
}

impl Drop for LentSinks<'_> {
    fn drop(&mut self) {
        let made = if self.is_back { SinkLaneMove::ComeBack } else { SinkLaneMove::Lose };
        for lane in &self.lanes {
            lane.moves.make(made);
        }
    }
}

/// How many nanoseconds ago the peer was heard last, and what is left began to come.
type Ago = (Option<i64>, Option<i64>);
type Came<'py> = (u8, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Ago);

/// Sends what appears in the queues that go out, and stores what comes for those that come in. The
/// answer is why the pump came back, what was not sent, what was received and not taken, and when
/// the peer was heard. When one of the words changes that are `waited` for, a tailer has to look.
#[pyfunction]
#[pyo3(signature = (socket, control, sources, sinks, pausing, is_idle, slice_ms, received, waited=None))]
#[allow(clippy::too_many_arguments)]
pub fn run_live<'py>(
    py: Python<'py>,
    socket: i32,
    control: &PyLiveControl,
    sources: Vec<Py<PySourceLane>>,
    sinks: Vec<Py<PySinkLane>>,
    pausing: u8,
    is_idle: bool,
    slice_ms: u64,
    received: &[u8],
    waited: Option<Py<PyWordLooks>>,
) -> PyResult<Came<'py>> {
    let socket = mem::open_file(socket).ok_or(Fault::Value("expected an open socket"))?;
    let pausing =
        Pausing::of(pausing).ok_or(Fault::Value("expected a way to pause from 0 to 3"))?;
    let lent = Lent::of(&sources)?;
    let sources = lent.lanes();
    let mut lent_sinks = LentSinks::of(py, &sinks)?;
    let mut sinks = lent_sinks.lanes()?;
    let waited = waited.as_ref().map(|looks| looks.get().words()).unwrap_or_default();
    let for_runs = if sinks.iter().any(|lane| lane.has_runs) { RUN_ROOM_BYTES } else { 0 };
    let room = Room {
        received: BUFFER_BYTES + for_runs,
        frames: if sources.is_empty() { 0 } else { BUFFER_BYTES },
    };
    let slice = Duration::from_millis(slice_ms);
    let control = &control.0;
    let rest = py.detach(move || {
        pauser::sleep_to_the_microsecond();
        let pauser = Pauser::new(pausing, is_idle);
        let lanes = Lanes { sources: &sources, sinks: &mut sinks, waited: &waited };
        pump::run(socket, control, lanes, pauser, slice, received, room)
    })?;
    lent_sinks.is_back = true;
    let (unsent, left) = (PyBytes::new(py, &rest.unsent), PyBytes::new(py, &rest.received));
    Ok((rest.ended as u8, unsent, left, rest.heard.ago_ns()))
}
