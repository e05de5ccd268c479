//! The aligned words of a buffer that processes share, for Python.

use std::sync::atomic::{fence, Ordering};

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;

use crate::mem::View;

/// The aligned words of a buffer that processes share. Positions are byte offsets in the buffer.
///
/// Loads acquire; all else is sequentially consistent. A position that is outside or between two
/// words is a mistake of the caller, and so is a store where none is allowed: both are an
/// AssertionError.
#[pyclass(name = "AtomicWords", module = "cqrepl._native")]
pub struct PyAtomicWords {
    view: Option<View>,
}

/// The lower 64 bits of a number.
struct Long(i64);

impl FromPyObject<'_, '_> for Long {
    type Error = PyErr;

    fn extract(number: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(signed) = number.extract::<i64>() {
            return Ok(Long(signed));
        }
        let lower = number.bitand(u64::MAX)?;
        Ok(Long(lower.extract::<u64>()?.cast_signed()))
    }
}

impl PyAtomicWords {
    fn view(&self) -> PyResult<&View> {
        self.view.as_ref().ok_or_else(|| PyAssertionError::new_err("expected words in use"))
    }
}

fn there<T>(word: Option<T>) -> PyResult<T> {
    word.ok_or_else(|| PyAssertionError::new_err("expected the position of a word to be used so"))
}

#[pymethods]
impl PyAtomicWords {
    #[new]
    fn new(buffer: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(PyAtomicWords { view: Some(View::of(buffer)?) })
    }

    /// Keeps later reads behind the loads before.
    #[staticmethod]
    fn fence() {
        fence(Ordering::Acquire);
    }

    /// Gives the buffer back; no access is possible afterwards.
    fn release(&mut self) {
        self.view = None;
    }

    fn load_4(&self, position: usize) -> PyResult<u32> {
        there(self.view()?.cells().load_4(position))
    }

    fn load_8(&self, position: usize) -> PyResult<i64> {
        there(self.view()?.cells().load_8(position))
    }

    fn store_4(&self, position: usize, value: u32) -> PyResult<()> {
        there(self.view()?.cells().cell_4(position).map(|cell| cell.store(value, Ordering::SeqCst)))
    }

    fn store_8(&self, position: usize, value: Long) -> PyResult<()> {
        let cells = self.view()?.cells();
        there(cells.cell_8(position).map(|cell| cell.store(value.0, Ordering::SeqCst)))
    }

    fn exchange_4(&self, position: usize, expected: u32, value: u32) -> PyResult<bool> {
        let cells = self.view()?.cells();
        there(cells.cell_4(position).map(|cell| {
            cell.compare_exchange(expected, value, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        }))
    }

    fn exchange_8(&self, position: usize, expected: Long, value: Long) -> PyResult<bool> {
        let cells = self.view()?.cells();
        there(cells.cell_8(position).map(|cell| {
            cell.compare_exchange(expected.0, value.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        }))
    }
}
