//! The live pump of a sink: frames from a socket become excerpts at their indexes, and are
//! acknowledged.
//!
//! The pump does the usual case and judges nothing: whole `re` frames of the queues that it was
//! given, each at the next index, into a file with room. It leaves all else in its buffer, from a
//! heartbeat to the end of a cycle, and comes back: Python then reads on from the same bytes.
//!
//! An acknowledgement is made after the headers are published. If none went out for a while, it
//! goes out at once; otherwise it goes out when that while is over, for all that has come
//! meanwhile. The while is longer when more bytes are there already, as each acknowledgement costs
//! the source about as much as hundreds of excerpts do. While the peer takes no bytes, only the
//! last acknowledgement is kept.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::append::clock::monotonic_ns;
use crate::append::pen::Pen;
use crate::append::terms::Refusal;
use crate::batch::documents::{HEADER_BYTES, LENGTH_MASK};
use crate::batch::frames::Scan;
use crate::live::acks;
use crate::live::control::{locked, receive_some, send_some, Control, Ended, Heard, PumpError};
use crate::mem::Source;

const UNSENT_MAX: usize = 64 << 10;
/// The shortest time between acknowledgements, when all that has come is stored.
const QUIET: Duration = Duration::from_micros(500);
/// The shortest time between acknowledgements while more bytes are there, for up to
/// `QUEUES_IN_BULK` queues.
const QUIET_IN_BULK: Duration = Duration::from_millis(5);
const QUEUES_IN_BULK: u32 = 10;

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

/// What is left when the pump of a sink comes back.
pub struct SinkRest {
    /// Why the pump came back.
    pub ended: Ended,
    /// What was received and not taken.
    pub received: Vec<u8>,
    /// What is to be sent before anything else.
    pub unsent: Vec<u8>,
    /// When the peer was heard.
    pub heard: Heard,
}

enum Next {
    /// The frames up to here were stored.
    Taken(usize),
    /// The frame is cut off: more bytes are needed.
    Cut,
    /// Something else stands there, or the pen refuses.
    Unusual,
}

impl SinkLane<'_> {
    /// Stores the frames at the start of `data`, which begins with the lane's cid document.
    fn store(&mut self, data: &[u8]) -> Result<Next, PumpError> {
        let mut scan = Scan::new(data.into(), 0, self.cid_document, self.payload_max)?;
        while scan.step(usize::MAX)? {}
        let count = scan.offsets.len();
        if count == 0 {
            return Ok(match document_end(data, self.cid_document.len()) {
                None => Next::Cut,
                Some(_) => Next::Unusual,
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
    fn acknowledge(&mut self, unsent: &mut Vec<u8>) {
        let due = self.due.take().filter(|_| self.is_acknowledged);
        if let Some((index, ns)) = due.filter(|_| self.pen.is_file_whole()) {
            acks::write(unsent, self.cid_document, index, ns);
        }
    }
}

/// Where the document that starts at `start` ends; `None` when it is not all there.
fn document_end(data: &[u8], start: usize) -> Option<usize> {
    let header = data.get(start..)?.first_chunk::<HEADER_BYTES>()?;
    let length = usize::try_from(u32::from_le_bytes(*header) & LENGTH_MASK).ok()?;
    let end = start.checked_add(HEADER_BYTES)?.checked_add(length)?;
    (end <= data.len()).then_some(end)
}

/// Stores what comes, until the time is over or something else comes up.
///
/// `received` is what was received before. If the buffer cannot hold it, it is left as it is.
pub fn receive(
    socket: BorrowedFd,
    control: &Control,
    lanes: &mut [SinkLane],
    received: &[u8],
    buffer: &mut [u8],
    slice: Duration,
) -> Result<SinkRest, PumpError> {
    let mut pump = SinkPump::new(lanes, buffer);
    let until = pump.started + slice;
    if !pump.put(received) {
        control.take_outgoing(&mut pump.unsent);
        let (ended, received) = (Ended::Unusual, received.to_vec());
        return Ok(SinkRest { ended, received, unsent: pump.unsent, heard: pump.heard });
    }
    let (mut ended, mut is_full, mut is_over) = (None, false, None);
    let queues = u32::try_from(pump.lanes.len()).unwrap_or(u32::MAX);
    let bulk = QUIET_IN_BULK.saturating_mul(queues.div_ceil(QUEUES_IN_BULK));
    while ended.is_none() {
        let is_unusual = !pump.store()?;
        let now = Instant::now();
        pump.flush(socket, control, now, if is_full { bulk } else { QUIET })?;
        if is_unusual {
            ended = Some(Ended::Unusual);
        } else if is_over.is_some() {
            ended = is_over;
        } else {
            // one look more at the socket: while this thread stored, it heard nothing
            if control.is_interrupted() {
                is_over = Some(Ended::Interrupted);
            } else if now >= until {
                is_over = Some(Ended::Slice);
            }
            match pump.receive(socket, now)? {
                Some(0) => ended = Some(Ended::EndOfStream),
                Some(_) => is_full = pump.end == pump.buffer.len(),
                None if is_over.is_some() => is_full = false,
                None => {
                    is_full = false;
                    let out =
                        if pump.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                    control.wait(socket, PollFlags::IN | out, Some(pump.next_look(until)))?;
                }
            }
        }
    }
    control.take_outgoing(&mut pump.unsent);
    pump.acknowledge_all();
    let received = pump.buffer.get(pump.at..pump.end).unwrap_or_default().to_vec();
    let ended = ended.unwrap_or(Ended::Slice);
    Ok(SinkRest { ended, received, unsent: pump.unsent, heard: pump.heard })
}

struct SinkPump<'l, 'a, 'b> {
    lanes: &'l mut [SinkLane<'a>],
    buffer: &'b mut [u8],
    at: usize,
    end: usize,
    turn: usize,
    unsent: Vec<u8>,
    /// When the last acknowledgements went out.
    said_at: Option<Instant>,
    started: Instant,
    heard: Heard,
}

impl<'l, 'a, 'b> SinkPump<'l, 'a, 'b> {
    fn new(lanes: &'l mut [SinkLane<'a>], buffer: &'b mut [u8]) -> Self {
        SinkPump {
            lanes,
            buffer,
            at: 0,
            end: 0,
            turn: 0,
            unsent: Vec::new(),
            said_at: None,
            started: Instant::now(),
            heard: Heard::default(),
        }
    }

    /// Starts with bytes that were received before; false when the buffer has no room for them.
    fn put(&mut self, received: &[u8]) -> bool {
        let Some(room) = self.buffer.get_mut(..received.len()) else {
            return false;
        };
        room.copy_from_slice(received);
        self.end = received.len();
        true
    }

    /// Stores all whole frames that are there; false when something else stands there.
    fn store(&mut self) -> Result<bool, PumpError> {
        let before = self.at;
        let is_usual = self.store_whole();
        if self.at > before {
            self.heard.taken(self.started);
        }
        is_usual
    }

    fn store_whole(&mut self) -> Result<bool, PumpError> {
        while self.at < self.end {
            let data = self.buffer.get(self.at..self.end).unwrap_or_default();
            let Some(nth) = acks::addressed(self.lanes, |lane| lane.cid_document, self.turn, data)
            else {
                // a document that is longer than the buffer is not for a pump either
                let is_cut = document_end(data, 0).is_none() && data.len() < self.buffer.len();
                return Ok(is_cut);
            };
            self.turn = nth;
            let Some(lane) = self.lanes.get_mut(nth) else {
                return Ok(false);
            };
            match lane.store(data)? {
                Next::Taken(count) => self.at += count,
                Next::Cut => return Ok(data.len() < self.buffer.len()),
                Next::Unusual => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Receives what is there; `None` when nothing is, 0 at the end of the stream.
    fn receive(&mut self, socket: BorrowedFd, now: Instant) -> io::Result<Option<usize>> {
        let rest_bytes = self.end - self.at;
        let count = receive_some(socket, self.room())?;
        if let Some(count) = count.filter(|&count| count > 0) {
            self.heard.received(now, rest_bytes);
            self.end += count;
        }
        Ok(count)
    }

    /// Where the next bytes go: behind the rest, which moves to the front.
    fn room(&mut self) -> &mut [u8] {
        debug_assert!(self.at <= self.end, "no more was taken than had come");
        self.buffer.copy_within(self.at..self.end, 0);
        self.end -= self.at;
        self.at = 0;
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    fn acknowledge_all(&mut self) {
        for lane in &mut *self.lanes {
            lane.acknowledge(&mut self.unsent);
        }
    }

    /// When the pump is to act though nothing comes.
    fn next_look(&self, until: Instant) -> Instant {
        match self.said_at {
            Some(said_at) if self.lanes.iter().any(|lane| lane.due.is_some()) => {
                until.min(said_at + QUIET)
            }
            _ => until,
        }
    }

    /// Sends what is to be sent, as far as the peer takes it.
    fn flush(
        &mut self,
        socket: BorrowedFd,
        control: &Control,
        now: Instant,
        quiet: Duration,
    ) -> Result<(), PumpError> {
        control.take_outgoing(&mut self.unsent); // what was said before what is said now
        let is_due = self.said_at.is_none_or(|said_at| now >= said_at + quiet);
        if self.unsent.len() < UNSENT_MAX && is_due {
            let before = self.unsent.len();
            self.acknowledge_all();
            if self.unsent.len() > before {
                self.said_at = Some(now);
            }
        }
        if !self.unsent.is_empty() {
            let count = send_some(socket, &self.unsent)?;
            self.unsent.drain(..count);
        }
        Ok(())
    }
}
