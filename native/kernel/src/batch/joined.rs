//! Payloads that a caller gave one by one, put side by side.

use pyo3::prelude::*;

use crate::mem::fault::push;
use crate::mem::Payload;

/// A batch that is made of copies.
pub struct Joined {
    /// The bytes of all payloads.
    pub data: Vec<u8>,
    /// Where in these bytes each payload starts.
    pub offsets: Vec<i64>,
    /// How long each payload is.
    pub lengths: Vec<i64>,
}

impl Joined {
    /// The batch of the items of a sequence; `None` if an item has no bytes, or has them in several
    /// pieces.
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
