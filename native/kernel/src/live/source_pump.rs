//! The live pump of a source: excerpts of mapped files become frames and go to a socket, as they
//! appear.
//!
//! The pump does the usual case and judges nothing. It stops before all that is not a new excerpt
//! behind the last one: the end of a file, a file that has grown, a mark that contradicts the walk.
//! Then it comes back, and the tailer looks from the same place.
//!
//! If the pump receives on the socket as well, it notes the acknowledgements that come meanwhile;
//! the event loop counts and checks them. The pump comes back before the room that they give is
//! missed, and for all else that the peer says.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::batch::apart::Apart;
use crate::live::acks::{Behind, Inbox};
use crate::live::control::{send_parts, Control, Ended, Heard, PumpError};
use crate::live::pauser::Pauser;
use crate::live::source_lane::{Look, SourceLane};
use crate::mem::fault::Fault;

/// After so many looks without a pause that asks for the time, the pump asks for the time itself.
const LOOKS_UNTIMED: u32 = 4096;
/// For so long, a pump that has enough to send does not come back for the index that the event loop
/// waits for.
const AWAITED_PAUSE: Duration = Duration::from_millis(10);
/// The time between two looks at the socket, while excerpts come.
const INBOX_PAUSE: Duration = Duration::from_micros(20);
/// The time between two looks at the socket, when no excerpts have come for some time.
const INBOX_PAUSE_IDLE: Duration = Duration::from_millis(25);

/// What is left when the pump of a source comes back.
pub struct SourceRest {
    /// Why the pump came back.
    pub ended: Ended,
    /// What of the frames has not been sent. It goes out before all that is sent later.
    pub unsent: Vec<u8>,
    /// What was received and not taken.
    pub received: Vec<u8>,
    /// When the peer was heard.
    pub heard: Heard,
    /// True when the peer acknowledges in another shape.
    pub is_foreign: bool,
}

/// Sends what appears in the lanes, until the time is over or something else comes up.
///
/// `received` is what was received before and not taken. It is `None` when the event loop receives
/// on the socket itself.
pub fn stream(
    socket: BorrowedFd,
    control: &Control,
    lanes: &[SourceLane],
    out: &mut Vec<u8>,
    pauser: Pauser,
    slice: Duration,
    received: Option<&[u8]>,
) -> Result<SourceRest, PumpError> {
    let now = Instant::now();
    let mut pump = SourcePump {
        socket,
        control,
        lanes,
        pauser,
        inbox: received.map(|received| Inbox::new(received, now)),
        heard_at: None,
        is_foreign: false,
        tells_at: now + AWAITED_PAUSE,
    };
    let (ended, unsent) = pump.run(out, now + slice)?;
    let (received, heard) = pump.inbox.map(|inbox| (inbox.left(), inbox.heard)).unwrap_or_default();
    Ok(SourceRest { ended, unsent, received, heard, is_foreign: pump.is_foreign })
}

struct SourcePump<'l, 'a> {
    socket: BorrowedFd<'a>,
    control: &'l Control,
    lanes: &'l [SourceLane<'a>],
    pauser: Pauser,
    inbox: Option<Inbox>,
    /// When the pump last looked at the socket for what the peer says.
    heard_at: Option<Instant>,
    is_foreign: bool,
    /// From this time on the pump comes back for the index that the event loop waits for, though
    /// there is enough to send.
    tells_at: Instant,
}

impl SourcePump<'_, '_> {
    /// Runs the pump; the answer is why it ended, and what was not sent.
    fn run(&mut self, out: &mut Vec<u8>, until: Instant) -> Result<(Ended, Vec<u8>), PumpError> {
        let mut apart = Apart::default();
        let mut untimed = 0;
        let mut turn = 0;
        loop {
            if self.control.is_interrupted() {
                // one look more at the socket: while this thread worked, it heard nothing
                let ended = self.receive()?.unwrap_or(Ended::Interrupted);
                return Ok((ended, Vec::new()));
            }
            turn = (turn + 1) % self.lanes.len().max(1);
            let (filled, is_unusual) = frame_all(self.lanes, turn, out, &mut apart)?;
            if filled > 0 {
                let rest = out.get(..filled).unwrap_or_default();
                let (ended, unsent) = self.send_all(rest, &apart, until)?;
                apart.clear();
                if let Some(ended) = ended {
                    return Ok((ended, unsent));
                }
                self.pauser.reset();
            }
            if is_unusual {
                return Ok((Ended::Unusual, Vec::new()));
            }
            let now = if filled > 0 { Some(Instant::now()) } else { self.pauser.pause() };
            untimed += 1;
            if now.is_some() || untimed > LOOKS_UNTIMED {
                untimed = 0;
                let now = now.unwrap_or_else(Instant::now);
                if let Some(ended) = self.hear(now)? {
                    return Ok((ended, Vec::new()));
                }
                let may_tell = filled == 0 || now >= self.tells_at;
                if now >= until || (may_tell && self.lanes.iter().any(SourceLane::is_awaited)) {
                    return Ok((Ended::Slice, Vec::new()));
                }
            }
        }
    }

    /// Takes what the peer says, now and then; the answer is a reason to come back, if there is
    /// one.
    fn hear(&mut self, now: Instant) -> io::Result<Option<Ended>> {
        let pause = if self.pauser.is_awake(now) { INBOX_PAUSE } else { INBOX_PAUSE_IDLE };
        if self.heard_at.is_some_and(|heard_at| now < heard_at + pause) {
            return Ok(None);
        }
        self.heard_at = Some(now);
        self.receive()
    }

    fn receive(&mut self) -> io::Result<Option<Ended>> {
        let Some(inbox) = &mut self.inbox else {
            return Ok(None);
        };
        let is_open = inbox.receive(self.socket)?;
        let behind = inbox.hand_out(self.lanes);
        self.is_foreign = behind == Behind::Foreign;
        if !is_open {
            return Ok(Some(Ended::EndOfStream));
        }
        if behind != Behind::Nothing {
            return Ok(Some(Ended::Unusual));
        }
        Ok(self.lanes.iter().any(SourceLane::needs_room).then_some(Ended::Slice))
    }

    /// Sends all of it, and takes what the peer says while the socket takes nothing. If it was not
    /// all sent, the answer is why not, and what is left.
    fn send_all(
        &mut self,
        bytes: &[u8],
        apart: &Apart<'_>,
        until: Instant,
    ) -> Result<(Option<Ended>, Vec<u8>), PumpError> {
        let end = bytes.len() + apart.bytes;
        let mut sent = 0;
        loop {
            let Ok(count) = send_parts(self.socket, &apart.parts(bytes, sent)) else {
                // what has come before is not lost: the next call that sends the rest meets the
                // error
                return Ok((Some(Ended::Interrupted), apart.joined(bytes, sent)?));
            };
            sent += count;
            debug_assert!(sent <= end);
            if sent >= end {
                return Ok((None, Vec::new()));
            }
            if self.control.is_interrupted() {
                return Ok((Some(Ended::Interrupted), apart.joined(bytes, sent)?));
            }
            let hears = if self.inbox.is_some() { PollFlags::IN } else { PollFlags::empty() };
            self.control.wait(self.socket, PollFlags::OUT | hears, Some(until))?;
            if let Some(ended) = self.receive()? {
                return Ok((Some(ended), apart.joined(bytes, sent)?));
            }
            let now = Instant::now();
            let may_tell = now >= self.tells_at && self.lanes.iter().any(SourceLane::is_awaited);
            if now >= until || may_tell {
                return Ok((Some(Ended::Slice), apart.joined(bytes, sent)?));
            }
        }
    }
}

fn frame_all<'a>(
    lanes: &[SourceLane<'a>],
    turn: usize,
    out: &mut Vec<u8>,
    apart: &mut Apart<'a>,
) -> Result<(usize, bool), Fault> {
    let (before, from) = lanes.split_at(turn.min(lanes.len()));
    let mut filled = 0;
    for lane in from.iter().chain(before) {
        if filled + apart.bytes > out.len() / 4 * 3 {
            break; // too little room is left for a look; the next time another lane is first
        }
        loop {
            match lane.frame(out.as_mut_slice().into(), filled, apart)? {
                Look::Nothing => break,
                Look::Framed(end) => filled = end,
                Look::Longer(size) => {
                    // this is no longer than the longest payload; the next look finds the room
                    out.try_reserve(size - out.len())?;
                    out.resize(size, 0);
                }
                Look::Unusual => return Ok((filled, true)),
            }
        }
    }
    Ok((filled, false))
}
