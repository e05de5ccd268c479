//! One queue in the pump of a sink: frames become excerpts at their indexes, and are acknowledged.
//!
//! The lane does the usual case and judges nothing: whole `re` frames, each at the next index, into
//! a file with room. It leaves all else where it stands, from a heartbeat to the end of a cycle.

use std::sync::Mutex;

use crate::append::clock::monotonic_ns;
use crate::append::pen::Pen;
use crate::append::terms::Refusal;
use crate::batch::frames::Scan;
use crate::live::acks;
use crate::live::control::{locked, PumpError};
use crate::live::others::document_end;
use crate::mem::Source;

/// What a lane has stored since the event loop asked last.
#[derive(Default)]
pub struct Stored {
    /// The number of excerpts.
    pub excerpts: i64,
    /// The number of payload bytes.
    pub bytes: i64,
    /// The entry of each batch, as `cqrepl.replicator.logs` has it, if the lane is logged.
    pub entries: Vec<u8>,
}

/// One queue in the pump of a sink.
pub struct SinkLane<'a> {
    /// The cid document that selects the handler.
    pub cid_document: &'a [u8],
    /// The pen that writes the store file.
    pub pen: Pen<'a>,
    /// The length of the longest excerpt that is taken.
    pub payload_max: i64,
    /// True when the source wants to know what is stored.
    pub is_acknowledged: bool,
    /// True when the time at which each batch was stored is to be logged.
    pub is_logged: bool,
    /// What was stored, for the event loop, which asks while the pump runs.
    pub stored: &'a Mutex<Stored>,
    /// The index and the nano time that are to be acknowledged.
    pub due: Option<(i64, i64)>,
}

/// What a lane has done with the bytes that begin with its cid document.
pub enum Next {
    /// The frames up to here were stored.
    Taken(usize),
    /// The frame is cut off: more bytes are needed.
    Cut,
    /// Something else stands there.
    Other,
    /// The pen refuses.
    Unusual,
}

impl SinkLane<'_> {
    /// Stores the frames at the start of `data`, which begins with the lane's cid document.
    pub fn store(&mut self, data: &[u8]) -> Result<Next, PumpError> {
        let mut scan = Scan::new(data.into(), 0, self.cid_document, self.payload_max)?;
        while scan.step(usize::MAX)? {}
        let count = scan.offsets.len();
        if count == 0 {
            return Ok(match document_end(data, self.cid_document.len()) {
                None => Next::Cut,
                Some(_) => Next::Other,
            });
        }
        debug_assert_eq!(count, scan.lengths.len());
        debug_assert!(scan.end <= data.len());
        debug_assert!(scan.lengths.iter().all(|&length| length <= self.payload_max));
        let source = Source::from(data);
        let (stored, refusal) =
            self.pen.append(source, &scan.offsets, &scan.lengths, 0, count, scan.index_first)?;
        if stored == 0 {
            return Ok(Next::Unusual);
        }
        debug_assert_eq!(stored, count, "a batch is appended as a whole or not at all");
        let now_ns = if self.is_logged { monotonic_ns() } else { 0 };
        let (index_last, bytes) = (scan.index_first + count as i64 - 1, scan.lengths.iter().sum());
        debug_assert!(self.due.is_none_or(|(index, _)| index < scan.index_first));
        self.due = Some((index_last, scan.ns_last));
        let mut noted = locked(self.stored);
        noted.excerpts += count as i64;
        noted.bytes += bytes;
        if self.is_logged {
            for number in [index_last, scan.ns_last, now_ns, count as i64, bytes] {
                noted.entries.extend_from_slice(&number.to_le_bytes());
            }
        }
        // the lock was taken away by force: the appender finds that out when it looks next
        Ok(if refusal == Some(Refusal::LockLost) { Next::Unusual } else { Next::Taken(scan.end) })
    }

    /// Puts the acknowledgement that is due behind what is to be sent. What a removed file holds is
    /// lost: the next append finds that out, or who watches the names of the files.
    pub fn acknowledge(&mut self, documents: &mut Vec<u8>) {
        let due = self.due.take().filter(|_| self.is_acknowledged);
        if let Some((index, ns)) = due.filter(|_| self.pen.is_file_whole()) {
            acks::write(documents, self.cid_document, index, ns);
        }
    }
}
