//! The functions of `cqrepl/kernel/plain.py`.
//!
//! Buffers are held while a function runs, so no thread can move or free them meanwhile. A batch of
//! more than a little is handled with the GIL released. To give the GIL up and to take it again
//! costs as much as a few excerpts, and may mean to wait for the thread that has taken it.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};

use crate::append::clock;
use crate::batch::chain::Chain;
use crate::batch::documents::{Limits, Walk};
use crate::batch::joined::Joined;
use crate::batch::layout::{self, MeasuredBatch};
use crate::batch::{columns, frames, runs};
use crate::mem::fault::{self, Fault};
use crate::mem::{self, Payloads, View, ViewOfLongs};

/// So many excerpts, or bytes, are handled before the GIL is released.
const HELD_EXCERPTS: usize = 64;
pub const HELD_BYTES: usize = 32 << 10;

pub type Array<'py> = Bound<'py, PyAny>;
pub type Found<'py> = (u64, u8, Array<'py>, Array<'py>);
pub type Scanned<'py> = (usize, i64, i64, Array<'py>, Array<'py>);
pub type LaidNumbers = (u32, usize, usize, Vec<(i64, usize)>);

/// The `array('q')` of these numbers.
pub fn array<'py>(py: Python<'py>, numbers: &[i64]) -> PyResult<Array<'py>> {
    static ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let bytes = PyBytes::new(py, mem::number_bytes(numbers));
    ARRAY.import(py, "array", "array")?.call1(("q", bytes))
}

#[pyfunction]
#[pyo3(signature = (store, position, end, count_max, bytes_max, payload_max, alignment=4))]
#[allow(clippy::too_many_arguments)] // the arguments are those of the reference
pub fn find_excerpts<'py>(
    store: &Bound<'py, PyAny>,
    position: i64,
    end: i64,
    count_max: i64,
    bytes_max: i64,
    payload_max: i64,
    alignment: i64,
) -> PyResult<Found<'py>> {
    let py = store.py();
    let view = View::of(store)?;
    let limits = Limits { count: count_max, bytes: bytes_max, payload: payload_max };
    let mut walk = Walk::new(view.source(), position, end, limits)?.aligned(alignment)?;
    let stop = match walk.step(HELD_EXCERPTS)? {
        Some(stop) => stop,
        None => py.detach(|| loop {
            if let Some(stop) = walk.step(usize::MAX)? {
                return Ok::<_, Fault>(stop);
            }
        })?,
    };
    let (offsets, lengths) = (array(py, &walk.offsets)?, array(py, &walk.lengths)?);
    Ok((walk.position, stop as u8, offsets, lengths))
}

#[pyfunction]
#[allow(clippy::too_many_arguments)] // the arguments are those of the reference
pub fn frame_excerpts(
    data: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    lengths: &Bound<'_, PyAny>,
    start: i64,
    index: i64,
    cid_document: &Bound<'_, PyBytes>,
    ns_item: &Bound<'_, PyBytes>,
    out: &Bound<'_, PyAny>,
    filled: i64,
) -> PyResult<(usize, usize)> {
    let (data, mut out_view) = (View::of(data)?, View::of(out)?);
    let (offsets, lengths) = (ViewOfLongs::of(offsets)?, ViewOfLongs::of(lengths)?);
    let frames = frames::Frames {
        data: data.source(),
        offsets: offsets.longs(),
        lengths: lengths.longs(),
        cid_document: cid_document.as_bytes(),
        ns_item: ns_item.as_bytes(),
    };
    let mut framing = frames::Framing::new(frames, start, index, out_view.target()?, filled)?;
    if framing.step(HELD_EXCERPTS, HELD_BYTES)? {
        out.py().detach(|| {
            while framing.step(usize::MAX, usize::MAX)? {}
            Ok::<_, Fault>(())
        })?;
    }
    Ok((framing.count, framing.filled))
}

#[pyfunction]
pub fn scan_frames<'py>(
    data: &Bound<'py, PyAny>,
    start: i64,
    cid_document: &Bound<'py, PyBytes>,
    payload_max: i64,
) -> PyResult<Option<Scanned<'py>>> {
    let py = data.py();
    let view = View::of(data)?;
    let mut scan = frames::Scan::new(view.source(), start, cid_document.as_bytes(), payload_max)?;
    if scan.step(HELD_EXCERPTS)? {
        py.detach(|| {
            while scan.step(usize::MAX)? {}
            Ok::<_, Fault>(())
        })?;
    }
    if scan.offsets.is_empty() {
        return Ok(None);
    }
    let (offsets, lengths) = (array(py, &scan.offsets)?, array(py, &scan.lengths)?);
    Ok(Some((scan.end, scan.index_first, scan.ns_last, offsets, lengths)))
}

#[pyfunction]
pub fn run_length(
    data: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    lengths: &Bound<'_, PyAny>,
    start: i64,
    count_max: i64,
    bytes_max: i64,
) -> PyResult<i64> {
    let data = View::of(data)?;
    let (offsets, lengths) = (ViewOfLongs::of(offsets)?, ViewOfLongs::of(lengths)?);
    let (offsets, lengths) = (offsets.longs(), lengths.longs());
    Ok(runs::run_length(data.source(), offsets, lengths, start, count_max, bytes_max)?)
}

#[pyfunction]
pub fn split_run<'py>(
    data: &Bound<'py, PyAny>,
    start: i64,
    end: i64,
    count: i64,
    payload_max: i64,
) -> PyResult<(u8, Array<'py>, Array<'py>)> {
    let py = data.py();
    let view = View::of(data)?;
    Ok(match runs::split(view.source(), start, end, count, payload_max)? {
        Ok((offsets, lengths)) => (0, array(py, &offsets)?, array(py, &lengths)?),
        Err(refused) => (refused as u8, array(py, &[])?, array(py, &[])?),
    })
}

#[pyfunction]
pub fn gather_payloads<'py>(
    data: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyBytes>, Array<'py>)> {
    let py = data.py();
    let data = View::of(data)?;
    let (offsets, lengths) = (ViewOfLongs::of(offsets)?, ViewOfLongs::of(lengths)?);
    let (source, offsets, lengths) = (data.source(), offsets.longs(), lengths.longs());
    let ends = columns::ends(source, offsets, lengths)?;
    let size = ends.last().copied().unwrap_or(0);
    let size = usize::try_from(size).map_err(|_| Fault::Memory)?;
    let bytes = mem::new_bytes(py, size, |out| {
        if size > HELD_BYTES {
            py.detach(move || columns::gather(source, offsets, lengths, out))
        } else {
            columns::gather(source, offsets, lengths, out)
        }
    })?;
    Ok((bytes, array(py, &ends)?))
}

#[pyfunction]
pub fn join_payloads<'py>(
    payloads: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyBytes>, Array<'py>, Array<'py>)> {
    let py = payloads.py();
    let payloads = Payloads::of(payloads)?
        .ok_or_else(|| PyTypeError::new_err("expected payloads that are bytes in one piece"))?;
    let joined = Joined::of(payloads.sources())?;
    let data = PyBytes::new(py, &joined.data);
    Ok((data, array(py, &joined.offsets)?, array(py, &joined.lengths)?))
}

#[pyfunction]
pub fn number_from(py: Python<'_>, first: i64, count: i64) -> PyResult<Array<'_>> {
    array(py, &columns::numbers(first, count)?)
}

#[pyfunction]
pub fn wide_gaps<'py>(
    offsets: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
    start: i64,
    stop: i64,
    gap_max: i64,
) -> PyResult<Array<'py>> {
    let py = offsets.py();
    let (offsets, lengths) = (ViewOfLongs::of(offsets)?, ViewOfLongs::of(lengths)?);
    array(py, &columns::wide_gaps(offsets.longs(), lengths.longs(), start, stop, gap_max)?)
}

#[pyfunction]
pub fn laid_size(lengths: &Bound<'_, PyAny>, start: i64, count: i64) -> PyResult<i128> {
    Ok(layout::laid_size(ViewOfLongs::of(lengths)?.longs(), start, count)?)
}

#[pyfunction]
pub fn measure_lengths(
    lengths: &Bound<'_, PyAny>,
    start: i64,
    count: i64,
) -> PyResult<(i128, i64)> {
    Ok(layout::measure_lengths(ViewOfLongs::of(lengths)?.longs(), start, count)?)
}

#[pyfunction]
pub fn extend_chain<'py>(
    data: &Bound<'py, PyAny>,
    offsets: &Bound<'py, PyAny>,
    lengths: &Bound<'py, PyAny>,
    sequence: i64,
    chain: &Bound<'py, PyBytes>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = data.py();
    let data = View::of(data)?;
    let (offsets, lengths) = (ViewOfLongs::of(offsets)?, ViewOfLongs::of(lengths)?);
    let (source, offsets, lengths) = (data.source(), offsets.longs(), lengths.longs());
    if offsets.len() != lengths.len() {
        return Err(fault::PART_OUTSIDE.into());
    }
    let value =
        chain.as_bytes().try_into().map_err(|_| Fault::Value("expected a chain of 16 bytes"))?;
    let mut chain = Chain::new(value, sequence)?;
    if lengths.len() > HELD_EXCERPTS {
        let growing = &mut chain;
        py.detach(move || growing.extend(source, offsets, lengths))?;
    } else {
        chain.extend(source, offsets, lengths)?;
    }
    Ok(PyBytes::new(py, &chain.value))
}

#[pyfunction]
#[pyo3(signature = (
    data, offsets, lengths, start, count, store, position, sequence, index_spacing
))]
#[allow(clippy::too_many_arguments)] // the arguments are those of the reference
pub fn lay_excerpts(
    data: &Bound<'_, PyAny>,
    offsets: &Bound<'_, PyAny>,
    lengths: &Bound<'_, PyAny>,
    start: i64,
    count: i64,
    store: &Bound<'_, PyAny>,
    position: i64,
    sequence: i64,
    index_spacing: i64,
) -> PyResult<LaidNumbers> {
    let py = data.py();
    let (data, mut store) = (View::of(data)?, View::of(store)?);
    let (offsets, lengths) = (ViewOfLongs::of(offsets)?, ViewOfLongs::of(lengths)?);
    let batch = MeasuredBatch::new(data.source(), offsets.longs(), lengths.longs(), start, count)?;
    let target = store.target()?;
    let laid = if batch.size > HELD_BYTES {
        py.detach(move || batch.lay(target, position, sequence, index_spacing))?
    } else {
        batch.lay(target, position, sequence, index_spacing)?
    };
    Ok((laid.first_word, laid.end, laid.last, laid.marks))
}

/// Lets the kernel take this time for now: nanoseconds of the monotonic clock, milliseconds since
/// 1970. `None` gives the time back to the machine.
#[pyfunction]
pub fn give_time(time: Option<(i64, i64)>) {
    clock::give(time);
}

/// Has the process say which mapped file was cut under it, before it ends; see `cqrepl/kernel/memory.py`.
#[pyfunction]
pub fn name_cut_files(speaker: &str, code_cut: i32, code_full: i32) -> PyResult<()> {
    Ok(mem::name_cut_files(speaker, code_cut, code_full)?)
}

/// Brings the pages of these bytes into memory; see `cqrepl/kernel/batch.py`.
#[pyfunction]
pub fn populate_pages(buffer: &Bound<'_, PyAny>, start: i64, end: i64) -> PyResult<()> {
    let mut view = View::of(buffer)?;
    let start = fault::offset(start, fault::POSITION_OUTSIDE)?;
    let end = fault::offset(end, fault::POSITION_OUTSIDE)?;
    let target = view.target()?;
    let done = buffer.py().detach(move || target.populate(start, end));
    Ok(done.ok_or(fault::POSITION_OUTSIDE)??)
}
