//! Views of Python's buffers, which are held while they are looked at. This module has unsafe code,
//! as it calls Python's own functions.

#![allow(unsafe_code)]

use std::marker::PhantomData;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::mem::fault::{push, Fault, EXCERPT_OUTSIDE};
use crate::mem::views::{Cells, Longs, Source, Target};

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Value(text) => PyValueError::new_err(text),
            Fault::Overflow(text) => PyOverflowError::new_err(text),
            Fault::Memory => PyMemoryError::new_err(()),
        }
    }
}

/// A Python buffer of bytes. While it is held, its owner can neither move nor free the bytes.
pub struct View(PyUntypedBuffer);

fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if buffer.is_c_contiguous() {
        Ok(buffer)
    } else {
        Err(PyBufferError::new_err("expected a contiguous buffer"))
    }
}

/// A payload as callers give it.
pub enum Payload<'a, 'py> {
    /// A `bytes` object, which is the usual case and never changes.
    Bytes(&'a Bound<'py, PyBytes>),
    /// The buffer of an object of another type.
    View(View),
}

impl<'a, 'py> Payload<'a, 'py> {
    /// The bytes of an object; `None` if it has none, or has them in several pieces.
    pub fn of(object: &'a Bound<'py, PyAny>) -> Option<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Some(Payload::Bytes(bytes));
        }
        View::of(object).ok().map(Payload::View)
    }

    /// The bytes of the payload, to be read.
    pub fn source(&self) -> Source<'_> {
        match self {
            Payload::Bytes(bytes) => Source::from(bytes.as_bytes()),
            Payload::View(view) => view.source(),
        }
    }
}

/// Payloads that a caller gave one by one. They stay where they are, and are held as long as this
/// lives.
pub struct Payloads<'py> {
    /// The bytes of each item, whose true life is that of the fields below.
    sources: Vec<Source<'static>>,
    _views: Vec<View>,
    _items: Bound<'py, PyTuple>,
}

impl<'py> Payloads<'py> {
    /// The items of a sequence; `None` if an item has no bytes, or has them in several pieces.
    pub fn of(sequence: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let py = sequence.py();
        // the tuple is ours: code that a buffer of Python runs cannot take an item out of it
        // SAFETY: the call answers a new tuple, or null with an exception set, and this line looks
        let items = unsafe {
            let items = ffi::PySequence_Tuple(sequence.as_ptr());
            Bound::from_owned_ptr_or_err(py, items)?.cast_into_unchecked::<PyTuple>()
        };
        let (mut sources, mut views) = (Vec::new(), Vec::new());
        sources.try_reserve_exact(items.len()).map_err(Fault::from)?;
        for item in items.iter_borrowed() {
            if let Some(source) = source_of_bytes(&item) {
                push(&mut sources, source)?;
            } else if let Ok(view) = View::of(&item) {
                let View(buffer) = &view;
                let (start, length) = (buffer.buf_ptr().cast(), buffer.len_bytes());
                push(&mut sources, Source { start, length, life: PhantomData })?;
                push(&mut views, view)?;
            } else {
                return Ok(None);
            }
        }
        Ok(Some(Payloads { sources, _views: views, _items: items }))
    }

    /// The bytes of each payload, to be read.
    pub fn sources(&self) -> &[Source<'_>] {
        &self.sources
    }
}

/// The bytes of a `bytes` object, which never move; `None` for another object. They live as long
/// as the object, which the caller sees to.
#[inline]
fn source_of_bytes(object: &Bound<'_, PyAny>) -> Option<Source<'static>> {
    let (mut start, mut length) = (std::ptr::null_mut(), 0);
    // SAFETY: the object is there. The first call only compares its type, which the second one
    // spares most objects; the last is for objects of that type alone, and then does not fail
    unsafe {
        let at = object.as_ptr();
        if ffi::PyBytes_CheckExact(at) == 0 && ffi::PyBytes_Check(at) == 0 {
            return None;
        }
        if ffi::PyBytes_AsStringAndSize(at, &raw mut start, &raw mut length) != 0 {
            ffi::PyErr_Clear();
            return None;
        }
    }
    let length = usize::try_from(length).ok()?;
    Some(Source { start: start.cast_const().cast(), length, life: PhantomData })
}

impl View {
    /// The buffer of any object that has one.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        contiguous(object).map(View)
    }

    /// The bytes of the buffer, to be read.
    pub fn source(&self) -> Source<'_> {
        Source { start: self.0.buf_ptr().cast(), length: self.0.len_bytes(), life: PhantomData }
    }

    /// The bytes of the buffer, to be written.
    pub fn target(&mut self) -> PyResult<Target<'_>> {
        if self.0.readonly() {
            return Err(PyTypeError::new_err("expected a buffer that may be written"));
        }
        Ok(Target { start: self.0.buf_ptr().cast(), length: self.0.len_bytes(), life: PhantomData })
    }

    /// The bytes of the buffer, as words that processes agree through.
    pub fn cells(&self) -> Cells<'_> {
        Cells {
            start: self.0.buf_ptr().cast(),
            length: self.0.len_bytes(),
            is_writable: !self.0.readonly(),
            life: PhantomData,
        }
    }
}

/// A Python buffer of 64-bit numbers, `array('q')`.
pub struct ViewOfLongs(PyUntypedBuffer);

impl ViewOfLongs {
    /// The buffer of any object that has one with such items.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(object)?;
        let is_long = buffer.format() == c"q" && buffer.item_size() == size_of::<i64>();
        // an empty array may have any address, as nothing of it is read
        let is_aligned = buffer.len_bytes() == 0 || buffer.buf_ptr().cast::<i64>().is_aligned();
        if is_long && is_aligned {
            Ok(ViewOfLongs(buffer))
        } else {
            Err(PyBufferError::new_err("expected an array of 64-bit integers"))
        }
    }

    /// The numbers of the array, to be read.
    pub fn longs(&self) -> Longs<'_> {
        Longs {
            start: self.0.buf_ptr().cast(),
            length: self.0.len_bytes() / size_of::<i64>(),
            life: PhantomData,
        }
    }
}

/// A new `bytes` object of that length. `fill` stores its bytes, and answers how many it has
/// stored.
///
/// The way that pyo3 offers stores zeros first, which takes a fifth of the time of a batch.
pub fn new_bytes<'py>(
    py: Python<'py>,
    length: usize,
    fill: impl FnOnce(Target<'_>) -> Result<usize, Fault>,
) -> PyResult<Bound<'py, PyBytes>> {
    let size = ffi::Py_ssize_t::try_from(length).map_err(|_| Fault::Memory)?;
    // SAFETY: no initial bytes are given, so the call only allocates. It answers null with an
    // exception set when there is no memory, and the next line looks for that
    let object = unsafe {
        let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
        Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked::<PyBytes>()
    };
    let target = Target {
        // SAFETY: the object is a `bytes`
        start: unsafe { ffi::PyBytes_AsString(object.as_ptr()) }.cast(),
        length,
        life: PhantomData,
    };
    // no other code has seen the object, so it may still change; on an error it is freed
    if fill(target)? != length {
        return Err(EXCERPT_OUTSIDE.into()); // bytes that were never stored must not get out
    }
    Ok(object)
}

/// The numbers as the bytes that they are in memory.
pub fn number_bytes(numbers: &[i64]) -> &[u8] {
    // SAFETY: a number is 8 bytes without holes, and bytes may have any address
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}
