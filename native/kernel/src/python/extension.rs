//! The module that Python imports, `cqrepl._native`: its functions and classes under their names.

use pyo3::prelude::*;

use crate::mem::PyFileMap;
use crate::python::atomic_words::PyAtomicWords;
use crate::python::board_classes::{PyBell, PyBoard, PyBoardRow};
use crate::python::functions;
use crate::python::lane_tables;
use crate::python::live_classes::{
    self, PyFoundRuns, PyLiveControl, PyQueueRuns, PySendBudget, PySinkLane, PySourceLane,
    PyStoredBell,
};
use crate::python::pen_class::PyPen;
use crate::python::word_looks::PyWordLooks;

/// Raised with every change of a function's meaning, here and in `cqrepl/kernel/plain.py`.
const INTERFACE: u32 = 27;

/// The extension. Its name stands in `setup.py` as well, and in each class, where pyo3 takes
/// nothing but a literal.
#[pymodule]
#[pyo3(name = "_native")]
fn extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add("NAME", "native")?;
    module.add_function(wrap_pyfunction!(functions::find_excerpts, module)?)?;
    module.add_function(wrap_pyfunction!(functions::frame_excerpts, module)?)?;
    module.add_function(wrap_pyfunction!(functions::scan_frames, module)?)?;
    module.add_function(wrap_pyfunction!(functions::run_length, module)?)?;
    module.add_function(wrap_pyfunction!(functions::split_run, module)?)?;
    module.add_function(wrap_pyfunction!(functions::gather_payloads, module)?)?;
    module.add_function(wrap_pyfunction!(functions::join_payloads, module)?)?;
    module.add_function(wrap_pyfunction!(functions::number_from, module)?)?;
    module.add_function(wrap_pyfunction!(functions::wide_gaps, module)?)?;
    module.add_function(wrap_pyfunction!(functions::laid_size, module)?)?;
    module.add_function(wrap_pyfunction!(functions::lay_excerpts, module)?)?;
    module.add_function(wrap_pyfunction!(functions::measure_lengths, module)?)?;
    module.add_function(wrap_pyfunction!(functions::extend_chain, module)?)?;
    module.add_function(wrap_pyfunction!(functions::populate_pages, module)?)?;
    module.add_function(wrap_pyfunction!(functions::give_time, module)?)?;
    module.add_function(wrap_pyfunction!(functions::name_cut_files, module)?)?;
    module.add_class::<PyAtomicWords>()?;
    module.add_class::<PyFileMap>()?;
    module.add_class::<PyPen>()?;
    module.add_class::<PyWordLooks>()?;
    module.add_class::<PyBell>()?;
    module.add_class::<PyBoard>()?;
    module.add_class::<PyBoardRow>()?;
    module.add_class::<PyLiveControl>()?;
    module.add_class::<PySourceLane>()?;
    module.add_class::<PySendBudget>()?;
    module.add_class::<PyFoundRuns>()?;
    module.add_class::<PyQueueRuns>()?;
    module.add_class::<PyStoredBell>()?;
    module.add_class::<PySinkLane>()?;
    module.add_function(wrap_pyfunction!(lane_tables::lane_tables, module)?)?;
    module.add_function(wrap_pyfunction!(live_classes::run_live, module)?)
}
