//! The class `Pen`: what `append::pen` does, for Python.

use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use crate::append::pen::{self, PenPlace};
use crate::append::terms::{Refusal, Terms};
use crate::batch::layout::MeasuredBatch;
use crate::mem::fault::Fault;
use crate::mem::{file_identity, Payload, Payloads, Source, View, ViewOfLongs};
use crate::python::functions::HELD_BYTES;

/// A writer of one open store file, for the usual case. Any thread may use it.
///
/// The views are held as long as the pen lives, so the files stay mapped. The numbers of the pen
/// never change. What changes is in memory that other threads share, so a method borrows nothing.
#[pyclass(frozen, name = "Pen", module = "cqrepl._native")]
pub struct PyPen {
    store: View,
    table: View,
    turn: View,
    terms: Terms,
    place: PenPlace,
    /// What tells the store file from every other one; the caller has it open when it makes a pen.
    identity: Option<(u64, u64)>,
}

impl PyPen {
    /// The pen of the crate, which can be sent to a thread without the GIL.
    pub fn pen(&self) -> Result<pen::Pen<'_>, Fault> {
        let (store, table, turn) = (self.store.cells(), self.table.cells(), self.turn.cells());
        pen::Pen::new(store, table, turn, &self.terms, &self.place)
    }
}

/// The last index, or the negative number of the reason why nothing was appended.
fn answer((last, refusal): (i64, Option<Refusal>)) -> i64 {
    refusal.map_or(last, |refusal| -(refusal as i64))
}

#[pymethods]
impl PyPen {
    #[new]
    fn new(
        store: &Bound<'_, PyAny>,
        table: &Bound<'_, PyAny>,
        turn: &Bound<'_, PyAny>,
        terms: Terms,
        sequence: i64,
        position: i64,
    ) -> PyResult<Self> {
        let place = PenPlace {
            sequence: sequence.into(),
            position: position.into(),
            ..PenPlace::default()
        };
        let (store, table, turn) = (View::of(store)?, View::of(table)?, View::of(turn)?);
        let identity = file_identity(terms.descriptor);
        let made = PyPen { store, table, turn, terms, place, identity };
        made.pen()?; // numbers that make no sense are refused now
        Ok(made)
    }

    /// The index of the next excerpt, as of the last append.
    #[getter]
    fn next_index(&self) -> i64 {
        self.terms.index_first.wrapping_add(self.sequence())
    }

    /// The sequence of the next excerpt in the cycle.
    #[getter]
    fn sequence(&self) -> i64 {
        self.place.sequence.load(Ordering::Relaxed)
    }

    /// The position of the header of the next excerpt.
    #[getter]
    fn position(&self) -> i64 {
        self.place.position.load(Ordering::Relaxed)
    }

    /// The position before which all space is allocated.
    #[getter]
    fn reserved(&self) -> PyResult<usize> {
        Ok(self.pen()?.reserved())
    }

    #[pyo3(signature = (payload, now_ms=None))]
    fn append_one(&self, payload: &Bound<'_, PyAny>, now_ms: Option<i64>) -> PyResult<i64> {
        let Some(payload) = Payload::of(payload) else {
            return Ok(-(Refusal::Unfit as i64));
        };
        self.append_last(&[payload.source()], now_ms)
    }

    #[pyo3(signature = (payloads, now_ms=None))]
    fn append_many(&self, payloads: &Bound<'_, PyAny>, now_ms: Option<i64>) -> PyResult<i64> {
        let Some(payloads) = Payloads::of(payloads)? else {
            return Ok(-(Refusal::Unfit as i64));
        };
        self.append_last(payloads.sources(), now_ms)
    }

    fn append_at(
        &self,
        data: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        lengths: &Bound<'_, PyAny>,
        index_first: i64,
    ) -> PyResult<i64> {
        let py = data.py();
        let data = View::of(data)?;
        let (offsets, lengths) = (ViewOfLongs::of(offsets)?, ViewOfLongs::of(lengths)?);
        let (source, offsets, lengths) = (data.source(), offsets.longs(), lengths.longs());
        let batch = MeasuredBatch::new(source, offsets, lengths, 0, lengths.len() as i64)?;
        let pen = self.pen()?;
        let append = move || pen.append_batch(&batch, Some(index_first), false);
        let done = if source.len() > HELD_BYTES { py.detach(append) } else { append() };
        Ok(answer(done?))
    }
}

impl PyPen {
    fn append_last(&self, payloads: &[Source], now_ms: Option<i64>) -> PyResult<i64> {
        let pen = self.pen()?;
        if pen.has_rolled(now_ms) {
            return Ok(-(Refusal::Roll as i64));
        }
        let batch = MeasuredBatch::of_each(payloads)?;
        let is_kept_open = pen::is_written(batch.size) && self.may_write();
        Ok(answer(pen.append_batch(&batch, None, is_kept_open)?))
    }

    /// True when a batch may be written to the file, not through the mapping. While this thread
    /// holds the GIL, as it does here, no other one closes the file: if it is open now it stays so
    /// until the call is over. Another thread may have closed it before this one came to its call.
    /// Where a helper has the pages in memory ahead, nothing is quicker than the mapping.
    fn may_write(&self) -> bool {
        let is_open =
            self.identity.is_some() && file_identity(self.terms.descriptor) == self.identity;
        self.terms.step > 0 && is_open
    }
}
