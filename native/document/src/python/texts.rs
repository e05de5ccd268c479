//! The text of documents for Python.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::items::{Read, Unusual};
use crate::printed::{items_text, Choices};
use crate::python::given::{answered, with_bytes, Stop};
use crate::shown::{document_line, excerpt_line, Form};

type Text<'py> = PyResult<Bound<'py, PyAny>>;

fn text_of<'py>(data: &Bound<'py, PyAny>, print: impl FnOnce(&[u8]) -> Read<String>) -> Text<'py> {
    let py = data.py();
    let result = with_bytes(data, |bytes| {
        print(bytes).map(|text| PyString::new(py, &text).into_any()).map_err(Stop::from)
    })?;
    answered(py, result)
}

fn form_of(form: &str) -> Read<Form> {
    match form {
        "flow" => Ok(Form::Flow),
        "json" => Ok(Form::Json { is_dense: false }),
        "dense" => Ok(Form::Json { is_dense: true }),
        _ => Err(Unusual),
    }
}

/// The text of the items of a body; `NotImplemented` where the plain printer has to print it.
#[pyfunction]
pub fn render_items<'py>(
    data: &Bound<'py, PyAny>,
    folds_unused: bool,
    is_typed: bool,
) -> Text<'py> {
    let choices = Choices { folds_unused, is_typed };
    text_of(data, |bytes| items_text(bytes, choices, String::with_capacity(2 * bytes.len())))
}

/// The values of a document, or a text, on one line; `NotImplemented` as above.
#[pyfunction]
pub fn excerpt_text<'py>(data: &Bound<'py, PyAny>, form: &str) -> Text<'py> {
    line_of(data, form, excerpt_line)
}

/// The values of a document on one line; `NotImplemented` as above.
#[pyfunction]
pub fn document_text<'py>(data: &Bound<'py, PyAny>, form: &str) -> Text<'py> {
    line_of(data, form, document_line)
}

fn line_of<'py>(
    data: &Bound<'py, PyAny>,
    form: &str,
    print: fn(&[u8], Form, &mut String) -> Read<()>,
) -> Text<'py> {
    text_of(data, |bytes| {
        let mut out = String::with_capacity(2 * bytes.len());
        print(bytes, form_of(form)?, &mut out)?;
        Ok(out)
    })
}
