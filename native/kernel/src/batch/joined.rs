//! Payloads that a caller gave one by one, put side by side.

use crate::mem::fault::{push, Fault};
use crate::mem::Source;

/// A batch that is made of copies.
#[derive(Default)]
pub struct Joined {
    /// The bytes of all payloads.
    pub data: Vec<u8>,
    /// Where in these bytes each payload starts.
    pub offsets: Vec<i64>,
    /// How long each payload is.
    pub lengths: Vec<i64>,
}

impl Joined {
    /// The batch of these payloads.
    pub fn of(payloads: &[Source]) -> Result<Self, Fault> {
        let mut joined = Joined::default();
        for payload in payloads {
            push(&mut joined.offsets, joined.data.len() as i64)?;
            push(&mut joined.lengths, payload.len() as i64)?;
            payload.append_to(&mut joined.data)?;
        }
        Ok(joined)
    }
}
