//! The class `WordLooks`: looks at words that other processes write, without Python in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::live::words::{until_changed, Pauses, Word};
use crate::mem::{Source, View};

/// How many bytes a word has.
const WORD_BYTES: usize = 4;

/// Looks at words of shared memory, again and again, until one is not what it was.
///
/// Python's own thread would take the GIL for each look, which costs more than the look. The views
/// are held as long as this lives, so the files stay mapped.
#[pyclass(frozen, name = "WordLooks", module = "cqrepl._native")]
pub struct PyWordLooks {
    /// With what stood in each.
    words: Vec<(View, Option<u32>)>,
    pauses: Pauses,
    is_cancelled: AtomicBool,
}

impl PyWordLooks {
    /// The words, with what stood in each.
    pub fn words(&self) -> Vec<Word<'_>> {
        self.words.iter().map(|(view, value)| (view.source(), *value)).collect()
    }
}

#[pymethods]
impl PyWordLooks {
    #[new]
    fn new(
        words: Vec<Bound<'_, PyAny>>,
        values: &[u8],
        pause_seconds: f64,
        later_pause_seconds: f64,
        count: u64,
    ) -> PyResult<Self> {
        let views: Vec<View> = words.iter().map(View::of).collect::<PyResult<_>>()?;
        let is_word = |view: &View| view.source().len() == WORD_BYTES;
        if values.len() != WORD_BYTES * views.len() || !views.iter().all(is_word) {
            return Err(PyValueError::new_err("expected 4 bytes for each word, and for its value"));
        }
        let pause = |seconds| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|_| PyValueError::new_err("expected a pause of 0 seconds or more"))
        };
        let (first, later) = (pause(pause_seconds)?, pause(later_pause_seconds)?);
        let pauses = Pauses { first, later, count };
        let values = values.chunks(WORD_BYTES).map(|value| Source::from(value).header(0));
        let words = views.into_iter().zip(values).collect();
        Ok(PyWordLooks { words, pauses, is_cancelled: AtomicBool::new(false) })
    }

    /// Pauses before each look, the first too, and after `count` looks longer; true when a word has
    /// changed, false when cancelled.
    fn until_changed(&self, py: Python<'_>) -> bool {
        let words = self.words();
        let (pauses, is_cancelled) = (self.pauses, &self.is_cancelled);
        py.detach(move || until_changed(&words, pauses, is_cancelled))
    }

    /// Has `until_changed` come back at its next look. Any thread may call it.
    fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }
}
