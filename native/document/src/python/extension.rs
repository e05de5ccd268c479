//! The extension `wire._codec`. Its name stands in `setup.py` as well.

use pyo3::prelude::*;

use crate::python::batches::PyColumnBatch;
use crate::python::messages::PyMessageReader;
use crate::python::objects::PyObjectReader;
use crate::python::texts;
use crate::python::writers::PyMessageWriter;

/// Raised with every change of a function's meaning, here and in `wire/codec.py`.
const INTERFACE: u32 = 4;

#[pymodule]
#[pyo3(name = "_codec")]
fn extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<PyObjectReader>()?;
    module.add_class::<PyMessageReader>()?;
    module.add_class::<PyMessageWriter>()?;
    module.add_class::<PyColumnBatch>()?;
    module.add_function(wrap_pyfunction!(texts::render_items, module)?)?;
    module.add_function(wrap_pyfunction!(texts::excerpt_text, module)?)?;
    module.add_function(wrap_pyfunction!(texts::document_text, module)?)
}
