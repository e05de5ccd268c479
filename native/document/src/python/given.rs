//! What Python gives: the bytes of documents, and the failure of a call of Python's.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::items::Unusual;

/// A document that is not read: it is unusual, or Python has raised.
#[derive(Debug)]
pub enum Stop {
    Unusual,
    Raised(PyErr),
}

impl From<Unusual> for Stop {
    fn from(_: Unusual) -> Self {
        Stop::Unusual
    }
}

impl From<PyErr> for Stop {
    fn from(error: PyErr) -> Self {
        Stop::Raised(error)
    }
}

/// Calls `work` with the bytes of a document. Those of a mapped file are copied first: another
/// process may change them.
pub fn with_bytes<T>(data: &Bound<'_, PyAny>, work: impl FnOnce(&[u8]) -> T) -> PyResult<T> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(work(bytes.as_bytes()));
    }
    let copy = PyBuffer::<u8>::get(data)?.to_vec(data.py())?;
    Ok(work(&copy))
}

/// The result, or `NotImplemented` for what the plain codec has to read.
pub fn answered<'py>(
    py: Python<'py>,
    result: Result<Bound<'py, PyAny>, Stop>,
) -> PyResult<Bound<'py, PyAny>> {
    match result {
        Ok(value) => Ok(value),
        Err(Stop::Unusual) => Ok(py.NotImplemented().into_bound(py)),
        Err(Stop::Raised(error)) => Err(error),
    }
}
