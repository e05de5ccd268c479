//! The live pump of a connection: one thread that makes frames of the excerpts of mapped files as
//! they appear, makes excerpts of the frames that come, and carries acknowledgements both ways.
//!
//! The pump does the usual case and judges nothing. It comes back before all that is not a new
//! excerpt behind the last one, in a file that goes out as in what comes in: the end of a file, a
//! mark that contradicts the walk, a gap. The event loop then goes on from the same place. What
//! changes no queue, as a heartbeat, it hands over to the event loop, and runs on.
//!
//! While the socket takes nothing the pump goes on receiving: two hosts with full sockets would wait
//! for each other for ever.
//!
//! An acknowledgement is made after the headers are published. If none went out for a while, it
//! goes out at once; otherwise it goes out when that while is over, for all that has come
//! meanwhile. The while is longer when more bytes are there already, as each acknowledgement costs
//! the source about as much as hundreds of excerpts do; and it is short while little comes, as then
//! a writer may wait for each of its excerpts, or for its level. While the peer takes no bytes, only
//! the last acknowledgement is kept.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::live::control::{Control, Ended, Heard, PumpError};
use crate::live::inflow::{Behind, Inflow};
use crate::live::outflow::Outflow;
use crate::live::pauser::Pauser;
use crate::live::sink_lane::SinkLane;
use crate::live::source_lane::SourceLane;
use crate::live::words::{has_changed, Word};

/// The time between two looks at the socket for acknowledgements alone, while excerpts go out.
const INBOX_PAUSE: Duration = Duration::from_micros(20);
/// The time between two looks at the socket for acknowledgements alone, when no excerpts have gone
/// out for some time.
const INBOX_PAUSE_IDLE: Duration = Duration::from_millis(25);
/// So many looks at lanes may come between two looks at the clock, which says when the peer is heard.
const LANES_UNHEARD: usize = 128;
/// So many bytes may wait for the peer before acknowledgements are held back.
const UNSENT_MAX: usize = 64 << 10;
/// The shortest time between acknowledgements, when all that has come is stored.
const QUIET: Duration = Duration::from_micros(500);
/// The shortest time between acknowledgements while no more than so many bytes have come since the
/// last.
const QUIET_LITTLE: Duration = Duration::from_micros(50);
const LITTLE: u64 = 4 << 10;
/// The shortest time between acknowledgements while more bytes are there, for up to
/// `QUEUES_IN_BULK` queues.
const QUIET_IN_BULK: Duration = Duration::from_millis(5);
const QUEUES_IN_BULK: u32 = 10;

/// What a pump works on.
pub struct Lanes<'l, 'a> {
    /// The queues that go out.
    pub sources: &'l [SourceLane<'a>],
    /// The queues that come in.
    pub sinks: &'l mut [SinkLane<'a>],
    /// Words of queues that go out and have no lane, as what comes next of them will be in a file
    /// that is not there yet: when one changes, a tailer has to look.
    pub waited: &'l [Word<'a>],
}

/// How much memory a pump takes for bytes on their way, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// For what comes in.
    pub received: usize,
    /// For frames that go out.
    pub frames: usize,
}

/// What is left when a pump comes back.
pub struct Rest {
    /// Why the pump came back.
    pub ended: Ended,
    /// What has not been sent. It goes out before all that is sent later.
    pub unsent: Vec<u8>,
    /// What was received and not taken.
    pub received: Vec<u8>,
    /// When the peer was heard.
    pub heard: Heard,
}

/// Sends what appears in the lanes of the source, and stores what comes for those of the sink,
/// until the time is over or something else comes up.
///
/// `received` is what was received before and not taken.
pub fn run(
    socket: BorrowedFd,
    control: &Control,
    lanes: Lanes,
    pauser: Pauser,
    slice: Duration,
    received: &[u8],
    room: Room,
) -> Result<Rest, PumpError> {
    let now = Instant::now();
    let mut unsent = Vec::new();
    control.take_outgoing(&mut unsent);
    let mut pump = Pump {
        socket,
        control,
        lanes,
        pauser,
        inflow: Inflow::new(received, room.received, now),
        outflow: Outflow::new(unsent, room.frames, control.take_bucket()),
        is_for_tailer: false,
        said_at: None,
        taken_said: 0,
        heard_at: None,
    };
    let ended = pump.run(now, now + slice)?;
    control.take_outgoing(&mut pump.outflow.documents);
    pump.acknowledge_all();
    let unsent = pump.outflow.rest()?;
    if let Some(bucket) = pump.outflow.bucket.take() {
        control.put_bucket(bucket);
    }
    Ok(Rest { ended, unsent, received: pump.inflow.left(), heard: pump.inflow.heard })
}

struct Pump<'l, 'a> {
    socket: BorrowedFd<'l>,
    control: &'l Control,
    lanes: Lanes<'l, 'a>,
    pauser: Pauser,
    inflow: Inflow,
    outflow: Outflow<'a>,
    /// True when a tailer has to look at what stands in its lane.
    is_for_tailer: bool,
    /// When the last acknowledgements went out.
    said_at: Option<Instant>,
    /// How many bytes had been taken by then.
    taken_said: u64,
    /// When the pump last looked at the socket for what the peer says.
    heard_at: Option<Instant>,
}

impl Pump<'_, '_> {
    /// Runs the pump; the answer is why it ended.
    fn run(&mut self, started: Instant, until: Instant) -> Result<Ended, PumpError> {
        let (mut now, mut over, mut has_come) = (started, None, false);
        loop {
            let behind = self.inflow.take(self.lanes.sinks, self.lanes.sources, self.control)?;
            if has_come && self.needs_room() {
                self.control.ring(); // the event loop gives it
            }
            let ends = over.is_some() || behind != Behind::Nothing;
            self.say(now);
            if !ends {
                self.frame()?;
            }
            let has_frames = self.outflow.has_frames();
            let Ok(has_sent) = self.outflow.send(self.socket) else {
                // what has come before is not lost: the next call that sends the rest meets the
                // error
                let is_end = self.hear(now, true)? == Some(0);
                return Ok(if is_end { Ended::EndOfStream } else { Ended::Interrupted });
            };
            if behind != Behind::Nothing {
                return Ok(Ended::Unusual);
            }
            if let Some(ended) = over {
                return Ok(ended);
            }
            if self.is_for_tailer {
                return Ok(Ended::Tailer);
            }
            if has_sent && has_frames && self.outflow.is_live {
                self.pauser.reset();
            }
            now = Instant::now();
            over = self.wish(now, until);
            let came = self.hear(now, over.is_some())?;
            has_come = came.is_some();
            match came {
                Some(0) => return Ok(Ended::EndOfStream),
                Some(_) => {}
                None if over.is_some() => {}
                None => self.wait(now, until, has_sent)?,
            }
        }
    }

    /// Why the pump should come back, though nothing keeps it from going on. It looks at the socket
    /// once more before it does: while this thread worked, it heard nothing.
    fn wish(&self, now: Instant, until: Instant) -> Option<Ended> {
        if self.control.is_interrupted() {
            return Some(Ended::Interrupted);
        }
        (now >= until || self.inflow.is_late(now)).then_some(Ended::Slice)
    }

    fn needs_room(&self) -> bool {
        self.lanes.sources.iter().any(SourceLane::needs_room)
    }

    /// Makes frames of what is new; the answer is true when there are any, or a tailer has to look.
    fn frame(&mut self) -> Result<bool, PumpError> {
        self.is_for_tailer = self.is_for_tailer
            || has_changed(self.lanes.waited)
            || self.outflow.frame(self.lanes.sources)?;
        Ok(self.is_for_tailer || self.outflow.has_frames())
    }

    /// Puts what is to be said behind what is to be sent.
    fn say(&mut self, now: Instant) {
        self.control.take_outgoing(&mut self.outflow.documents); // before what is said now
        let is_due = self.said_at.is_none_or(|said_at| now >= said_at + self.quiet());
        let before = self.outflow.documents.len();
        if before < UNSENT_MAX && is_due {
            self.acknowledge_all();
            if self.outflow.documents.len() > before {
                self.said_at = Some(now);
                self.taken_said = self.inflow.taken;
            }
        }
    }

    fn quiet(&self) -> Duration {
        if !self.inflow.is_full {
            let is_little = self.inflow.taken - self.taken_said <= LITTLE;
            return if is_little { QUIET_LITTLE } else { QUIET };
        }
        let queues = u32::try_from(self.lanes.sinks.len()).unwrap_or(u32::MAX);
        QUIET_IN_BULK.saturating_mul(queues.div_ceil(QUEUES_IN_BULK))
    }

    fn acknowledge_all(&mut self) {
        for lane in &mut *self.lanes.sinks {
            lane.acknowledge(&mut self.outflow.documents);
        }
    }

    /// Receives what the peer says, if it is time; `None` when there is nothing, 0 at the end of the
    /// stream.
    fn hear(&mut self, now: Instant, is_last: bool) -> Result<Option<usize>, PumpError> {
        // acknowledgements alone may wait for a moment; excerpts may not
        let pause = if self.pauser.is_awake(now) { INBOX_PAUSE } else { INBOX_PAUSE_IDLE };
        let is_early = self.heard_at.is_some_and(|heard_at| now < heard_at + pause);
        if is_early && !is_last && self.lanes.sinks.is_empty() && self.outflow.is_empty() {
            return Ok(None);
        }
        self.heard_at = Some(now);
        Ok(self.inflow.receive(self.socket, now)?)
    }

    /// Waits until there may be something to do.
    fn wait(&mut self, now: Instant, until: Instant, has_sent: bool) -> Result<(), PumpError> {
        let limit = self.next_look(until);
        if !self.outflow.is_empty() {
            self.control.wait(self.socket, PollFlags::OUT | PollFlags::IN, Some(limit))?;
        } else if self.lanes.sources.is_empty() {
            self.control.wait(self.socket, PollFlags::IN, Some(limit))?;
        } else if has_sent {
            // more is likely to be there
        } else if let Some(opens_at) = self.opens_at() {
            self.control.wait(self.socket, PollFlags::IN, Some(limit.min(opens_at)))?;
        } else if self.lanes.sinks.is_empty() {
            // many lanes take long to look at, and the peer is to be heard meanwhile
            for _ in 0..(LANES_UNHEARD / self.lanes.sources.len()).max(1) {
                let is_timed = self.pauser.pause(std::thread::sleep).is_some();
                if is_timed || self.control.is_called() || self.frame()? {
                    break;
                }
            }
        } else {
            let (socket, control) = (self.socket, self.control);
            self.pauser.pause(|sleep| {
                // an error of the socket is met when it is used next
                let _ = control.wait(socket, PollFlags::IN, Some(limit.min(now + sleep)));
            });
        }
        Ok(())
    }

    /// When anything may go out again of what is there; `None` while it may, so that looks have to
    /// find it.
    fn opens_at(&mut self) -> Option<Instant> {
        let (sources, waited) = (self.lanes.sources, self.lanes.waited);
        // what comes of a queue without a lane would be live
        self.outflow.opens_at(waited.is_empty() && sources.iter().all(SourceLane::is_behind))
    }

    /// When the pump is to act though nothing comes.
    fn next_look(&self, until: Instant) -> Instant {
        match self.said_at {
            Some(said_at) if self.lanes.sinks.iter().any(SinkLane::has_word) => {
                until.min(said_at + self.quiet())
            }
            _ => until,
        }
    }
}
