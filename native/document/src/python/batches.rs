//! Batches of columns: rows go in, buffers come out.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::columns::{packed, Batch, Column, Values};
use crate::python::messages::{names_of, GivenMember};
use crate::shapes::{Default, Kind, Message, Shape};

fn unknown(kind: &str) -> PyErr {
    pyo3::exceptions::PyTypeError::new_err(format!("a kind of columns was expected, {kind} came"))
}

fn shape_of(given: &Bound<'_, PyTuple>) -> PyResult<Shape> {
    let (kind, is_nullable, detail): (String, bool, Bound<'_, PyAny>) = given.extract()?;
    let kind = match kind.as_str() {
        "integer" => {
            let (least, greatest, _, bytes) =
                detail.extract::<(i64, i64, Option<Py<PyAny>>, usize)>()?;
            Kind::Integer { least, greatest, bytes }
        }
        "float" => Kind::Float,
        "float32" => Kind::Float32,
        "decimal" => Kind::Decimal,
        "text" => Kind::Text,
        "boolean" => Kind::Boolean,
        "bytes" => Kind::Bytes,
        "enum" => {
            let mut names = Vec::new();
            for name in detail.cast_into::<PyDict>()?.keys() {
                names.push(name.extract::<String>()?.into_boxed_str());
            }
            Kind::Enum(names)
        }
        "open_enum" => Kind::OpenEnum,
        "date" => Kind::Date,
        "moment" => Kind::Moment,
        "uuid" => Kind::Uuid,
        "message" => Kind::Message(Box::new(message_of(&detail)?)),
        "list" => {
            let (item, _): (Bound<'_, PyTuple>, bool) = detail.extract()?;
            Kind::List(Box::new(shape_of(&item)?))
        }
        other => return Err(unknown(other)),
    };
    Ok(Shape { kind, is_nullable })
}

fn message_of(given: &Bound<'_, PyAny>) -> PyResult<Message> {
    let (type_name, _, members): (String, Py<PyAny>, Vec<Bound<'_, PyTuple>>) = given.extract()?;
    let (mut names, mut shapes, mut defaults) = (Vec::new(), Vec::new(), Vec::new());
    for member in members {
        let (name, shape, is_required, default, _) = member.extract::<GivenMember<'_>>()?;
        names.push(name);
        shapes.push(shape_of(&shape)?);
        defaults.push(if is_required { Default::Required } else { default_of(&default)? });
    }
    let type_name = type_name.into_boxed_str();
    Ok(Message { names: names_of(names)?, type_name, shapes, defaults })
}

/// A default, which Python gives as a kind and a value.
fn default_of(given: &Bound<'_, PyAny>) -> PyResult<Default> {
    let (kind, value): (String, Bound<'_, PyAny>) = given.extract()?;
    Ok(match kind.as_str() {
        "null" => Default::Null,
        "whole" => Default::Whole(value.extract()?),
        "float" => Default::Float(value.extract()?),
        "boolean" => Default::Boolean(value.extract()?),
        "text" => Default::Text(value.extract::<String>()?.into_boxed_str()),
        "bytes" => Default::Bytes(value.extract::<Vec<u8>>()?.into_boxed_slice()),
        "decimal" => Default::Decimal(value.extract()?),
        "none" => Default::NoItems,
        other => return Err(unknown(other)),
    })
}

/// Makes columns of the fields of one dataclass.
#[pyclass(name = "ColumnBatch", module = "wire._codec", frozen)]
pub struct PyColumnBatch {
    message: Message,
    event: Option<Vec<u8>>,
    is_wanted: Vec<bool>,
}

#[pymethods]
impl PyColumnBatch {
    /// Args:
    ///     message: as of `MessageReader`, with defaults as kinds and values.
    ///     event: the name of the method that the message is the argument of.
    ///     is_wanted: for each field, whether it is a column.
    #[new]
    fn new(
        message: &Bound<'_, PyAny>,
        event: Option<Vec<u8>>,
        is_wanted: Vec<bool>,
    ) -> PyResult<Self> {
        let message = message_of(message)?;
        if is_wanted.len() != message.shapes.len() {
            return Err(pyo3::exceptions::PyValueError::new_err("a flag for each field expected"));
        }
        Ok(PyColumnBatch { message, event, is_wanted })
    }

    /// The documents from `row` to before `end`, up to one that the plain codec has to read: how
    /// many they are, and for each column its buffers.
    ///
    /// Args:
    ///     payload: documents, one behind the other.
    ///     offsets: 64 bits for the start of each document, and for the end of the last.
    fn read<'py>(
        &self,
        py: Python<'py>,
        payload: &Bound<'py, PyBytes>,
        offsets: &Bound<'py, PyBytes>,
        row: usize,
        end: usize,
    ) -> PyResult<(usize, Vec<Bound<'py, PyTuple>>)> {
        let (payload, offsets) = (payload.as_bytes(), offsets.as_bytes());
        let offset = |at: usize| -> Option<usize> {
            let bytes = offsets.get(at.checked_mul(8)?..)?.first_chunk::<8>()?;
            usize::try_from(i64::from_le_bytes(*bytes)).ok()
        };
        let batch = py.detach(|| {
            let mut batch = Batch::new(&self.message, &self.is_wanted);
            for at in row..end {
                let document = match (offset(at), offset(at + 1)) {
                    (Some(start), Some(stop)) => payload.get(start..stop),
                    _ => None,
                };
                let Some(document) = document else { break };
                if batch.read(&self.message, self.event.as_deref(), document).is_err() {
                    break;
                }
            }
            batch
        });
        let mut columns = Vec::new();
        for (column, is_wanted) in batch.columns.iter().zip(&self.is_wanted) {
            if *is_wanted {
                columns.push(buffers(py, column)?);
            }
        }
        Ok((batch.rows, columns))
    }
}

/// The number of values, how many are null, their bits or None, and by kind: the values, or ends
/// and values, or the columns within.
fn buffers<'py>(py: Python<'py>, column: &Column) -> PyResult<Bound<'py, PyTuple>> {
    let (bits, nulls) = packed(&column.is_there);
    let bits = if nulls == 0 { None } else { Some(PyBytes::new(py, &bits)) };
    let values = match &column.values {
        Values::Fixed { bytes, .. } => PyTuple::new(py, [PyBytes::new(py, bytes)])?,
        Values::Flags(flags) => PyTuple::new(py, [PyBytes::new(py, &packed(flags).0)])?,
        Values::Variable { ends, bytes } => {
            let ends: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
            PyTuple::new(py, [PyBytes::new(py, &ends), PyBytes::new(py, bytes)])?
        }
        Values::Struct(columns) => {
            let parts: PyResult<Vec<_>> = columns.iter().map(|each| buffers(py, each)).collect();
            PyTuple::new(py, parts?)?
        }
        Values::List { ends, item } => {
            let ends: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
            let ends = PyBytes::new(py, &ends).into_any();
            PyTuple::new(py, [ends, buffers(py, item)?.into_any()])?
        }
        Values::Nothing => PyTuple::empty(py),
    };
    (column.is_there.len(), nulls, bits, values).into_pyobject(py)
}
