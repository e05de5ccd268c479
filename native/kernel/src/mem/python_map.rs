//! The class `FileMap`: a mapped file that can grow, as a buffer of Python. This module has unsafe code,
//! as it gives out addresses by Python's own functions.
//!
//! Each view of the buffer holds the object, and so the map. A view keeps the length that the map had
//! when it was taken: the bytes behind belong to later views, and those before stay where they are.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::mem::file_map::FileMap;

/// The map, and how many views there are of it.
struct Viewed {
    map: Option<FileMap>,
    views: usize,
}

/// An open file, or the beginning of it, mapped into memory. No descriptor of it is kept.
#[pyclass(frozen, name = "FileMap", module = "cqrepl._native")]
pub struct PyFileMap(Mutex<Viewed>);

impl PyFileMap {
    fn viewed(&self) -> MutexGuard<'_, Viewed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unmapped() -> PyErr {
    PyValueError::new_err("expected a map that is not closed")
}

#[pymethods]
impl PyFileMap {
    #[new]
    fn new(descriptor: i32, length: usize, reserved: usize, is_writable: bool) -> io::Result<Self> {
        let map = FileMap::new(descriptor, length, reserved, is_writable)?;
        Ok(PyFileMap(Mutex::new(Viewed { map: Some(map), views: 0 })))
    }

    /// Maps what the file has grown by; false where there is no room for it, or the system refuses.
    fn extend(&self, descriptor: i32, length: usize) -> PyResult<bool> {
        let mut viewed = self.viewed();
        let map = viewed.map.as_mut().ok_or_else(unmapped)?;
        Ok(map.extend(descriptor, length))
    }

    /// Has the system read nothing ahead behind a position of what is mapped.
    fn comes_singly(&self, position: usize) -> PyResult<()> {
        let viewed = self.viewed();
        viewed.map.as_ref().ok_or_else(unmapped)?.comes_singly(position);
        Ok(())
    }

    /// All bytes that are mapped now.
    fn view<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    /// Unmaps the file, of which no view is held any more. Other threads run meanwhile: that takes
    /// the system longer the more of it was touched.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut viewed = self.viewed();
        if viewed.views > 0 {
            return Err(PyBufferError::new_err("expected a map of which no view is held"));
        }
        let map = viewed.map.take();
        drop(viewed);
        py.detach(move || drop(map));
        Ok(())
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let mut viewed = slf.get().viewed();
        let map = viewed.map.as_ref().ok_or_else(unmapped)?;
        let length = ffi::Py_ssize_t::try_from(map.len()).map_err(|_| unmapped())?;
        let is_read_only = c_int::from(!map.is_writable());
        let start = map.start().cast();
        // SAFETY: Python gives a place for the view, which from then on holds this object: that the
        // bytes are mapped for as long as one does is what `close` and the map see to
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, is_read_only, flags)
        };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        viewed.views += 1;
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.viewed().views -= 1;
    }
}
