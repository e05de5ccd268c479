//! Payloads that a caller gave one by one, side by side.

use pyo3::prelude::*;

use crate::mem::fault::push;
use crate::mem::Payload;

/// A batch of copies.
pub struct Joined {
    /// All bytes.
    pub data: Vec<u8>,
    /// Where in them each payload starts.
    pub offsets: Vec<i64>,
    /// How long it is.
    pub lengths: Vec<i64>,
}

impl Joined {
    /// The batch of a sequence's items; `None` if one of them has no bytes in one piece.
    pub fn of(payloads: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let (mut data, mut offsets, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for payload in payloads.try_iter()? {
            let payload = payload?;
            let Some(payload) = Payload::of(&payload) else {
                return Ok(None);
            };
            let source = payload.source();
            push(&mut offsets, data.len() as i64)?;
            push(&mut lengths, source.len() as i64)?;
            source.append_to(&mut data)?;
        }
        Ok(Some(Joined { data, offsets, lengths }))
    }
}
