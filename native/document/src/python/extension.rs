//! The extension `wire._codec`. Its name stands in `setup.py` as well.

use pyo3::prelude::*;

use crate::python::batches::PyColumnBatch;
use crate::python::messages::PyMessageReader;
use crate::python::objects::PyObjectReader;

/// Raised with every change of a function's meaning, here and in `wire/codec.py`.
const INTERFACE: u32 = 2;

#[pymodule]
#[pyo3(name = "_codec")]
fn extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<PyObjectReader>()?;
    module.add_class::<PyMessageReader>()?;
    module.add_class::<PyColumnBatch>()
}
