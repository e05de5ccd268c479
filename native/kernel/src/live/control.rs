//! What a live pump and the event loop share: the wish to stop, bytes to be sent in between, and
//! documents that are not the pump's.
//!
//! A pump runs in a thread of its own. The event loop sets a flag when it wants the pump back. A
//! pump that waits in the operating system is woken by an event descriptor; by another one, the
//! bell, it has the event loop look at what it has for it.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::live::token_bucket::TokenBucket;
use crate::mem::fault::Fault;

/// Why a pump has come back; the numbers are those of `cqrepl.kernel.live.Ended`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The time of the pump is over.
    Slice = 0,
    /// The event loop has asked the pump to come back.
    Interrupted = 1,
    /// Something is there that is not the business of a pump.
    Unusual = 2,
    /// The peer has closed its side of the connection.
    EndOfStream = 3,
    /// The tailer of a queue has to look at what stands in its file.
    Tailer = 4,
}

/// When a pump received, and when what it leaves began to come. Bytes that were handed over to it,
/// and that it hands back unread, are no news: they change neither.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// When it received last; `None` when it has received nothing.
    last: Option<Instant>,
    /// When the first byte of what is left came; `None` when that was before the hand-over.
    began: Option<Instant>,
}

impl Heard {
    /// Bytes have come, behind a rest of that length.
    pub fn received(&mut self, now: Instant, rest_bytes: usize) {
        self.last = Some(now);
        if rest_bytes == 0 {
            self.began = Some(now);
        }
    }

    /// All that was whole has been taken. A pump takes that before it receives again, so what is
    /// left behind it came with the last bytes.
    pub fn taken(&mut self, started: Instant) {
        self.began = Some(self.last.unwrap_or(started));
    }

    /// When the first byte of what is left came, as far as the pump knows: at the latest when it
    /// started.
    pub fn began_since(self, started: Instant) -> Instant {
        self.began.unwrap_or(started)
    }

    /// How many nanoseconds ago each was.
    pub fn ago_ns(self) -> (Option<i64>, Option<i64>) {
        let now = Instant::now();
        let ago = |then: Instant| {
            i64::try_from(now.saturating_duration_since(then).as_nanos()).unwrap_or(i64::MAX)
        };
        (self.last.map(ago), self.began.map(ago))
    }
}

/// So many bytes may wait for the event loop.
const HANDED_MAX: usize = 64 << 10;

/// Asks a pump to come back, and hands it bytes and tokens; has the event loop look at what a pump
/// has for it.
pub struct Control {
    is_interrupted: AtomicBool,
    event: OwnedFd,
    has_outgoing: AtomicBool,
    outgoing: Mutex<Vec<u8>>,
    bell: OwnedFd,
    handed: Mutex<Vec<u8>>,
    bucket: Mutex<Option<TokenBucket>>,
}

/// The value behind a mutex. A thread that panicked while it held the mutex cannot have left the
/// value half-changed.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// A control that does not interrupt, with nothing to send.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Control {
            is_interrupted: AtomicBool::new(false),
            event,
            has_outgoing: AtomicBool::new(false),
            outgoing: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            handed: Mutex::default(),
            bucket: Mutex::default(),
        })
    }

    /// Asks the pump to come back.
    pub fn interrupt(&self) {
        self.is_interrupted.store(true, Ordering::Release);
        self.wake();
    }

    /// Takes the wish back, before the pump runs again.
    pub fn reset(&self) {
        self.is_interrupted.store(false, Ordering::Release);
    }

    /// True when the pump should come back.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Acquire)
    }

    /// Takes bytes for the peer, to be sent between two documents.
    pub fn send(&self, bytes: &[u8]) {
        let mut outgoing = locked(&self.outgoing);
        outgoing.extend_from_slice(bytes);
        self.has_outgoing.store(!outgoing.is_empty(), Ordering::Release);
        drop(outgoing);
        self.wake();
    }

    /// Moves the bytes for the peer behind those that a pump has not sent yet.
    pub fn take_outgoing(&self, unsent: &mut Vec<u8>) {
        if self.has_outgoing.load(Ordering::Acquire) {
            let mut outgoing = locked(&self.outgoing);
            unsent.append(&mut outgoing);
            self.has_outgoing.store(false, Ordering::Release);
        }
    }

    /// True when a pump should look up from its work: to come back, or to send something.
    pub fn is_called(&self) -> bool {
        self.is_interrupted() || self.has_outgoing.load(Ordering::Acquire)
    }

    /// Has the event loop look: it has something to do.
    pub fn ring(&self) {
        // a full descriptor can be read already, which is all that is wanted
        let _ = rustix::io::write(self.bell.as_fd(), &1_u64.to_ne_bytes());
    }

    /// The descriptor that can be read when the event loop has something to do.
    pub fn bell(&self) -> i32 {
        self.bell.as_raw_fd()
    }

    /// Hands whole documents over to the event loop; false when too much waits for it already.
    pub fn hand_over(&self, documents: &[u8]) -> bool {
        let mut handed = locked(&self.handed);
        if handed.len() + documents.len() > HANDED_MAX {
            return false;
        }
        handed.extend_from_slice(documents);
        drop(handed);
        self.ring();
        true
    }

    /// Takes what was handed over, and silences the bell.
    pub fn take_handed(&self) -> Vec<u8> {
        let mut count = [0; 8];
        // one that was not rung cannot be read, which is no error
        let _ = rustix::io::read(self.bell.as_fd(), &mut count);
        std::mem::take(&mut locked(&self.handed))
    }

    /// Gives the pump that runs next tokens. More come so many a second, unless its time does not go
    /// on.
    pub fn put_tokens(&self, bytes_per_s: i64, tokens: i64, goes_on: bool) {
        let now = goes_on.then(Instant::now);
        self.put_bucket(TokenBucket::new(bytes_per_s, tokens, now));
    }

    /// Takes the tokens that a pump has left; `None` without a limit.
    pub fn take_tokens(&self) -> Option<i64> {
        let mut bucket = self.take_bucket()?;
        bucket.fill(Instant::now());
        Some(bucket.tokens())
    }

    /// Takes back the tokens of a pump that has come back.
    pub fn put_bucket(&self, bucket: TokenBucket) {
        *locked(&self.bucket) = Some(bucket);
    }

    /// Takes the tokens; `None` where there is no limit.
    pub fn take_bucket(&self) -> Option<TokenBucket> {
        locked(&self.bucket).take()
    }

    /// Waits for the socket or the time, or until another thread wakes the pump.
    pub fn wait(
        &self,
        socket: BorrowedFd,
        flags: PollFlags,
        until: Option<Instant>,
    ) -> io::Result<()> {
        let mut waited =
            [PollFd::from_borrowed_fd(socket, flags), PollFd::new(&self.event, PollFlags::IN)];
        let left = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
        match poll(&mut waited, left.as_ref()) {
            Err(error) if error != Errno::INTR => return Err(error.into()),
            _ => {}
        }
        let [_, event] = waited;
        if !event.revents().is_empty() {
            let mut count = [0; 8];
            // a pump that was faster may have emptied the descriptor, which is no error
            let _ = rustix::io::read(self.event.as_fd(), &mut count);
        }
        Ok(())
    }

    fn wake(&self) {
        // a full descriptor can be read already, which is all that is wanted
        let _ = rustix::io::write(self.event.as_fd(), &1_u64.to_ne_bytes());
    }
}

/// A length of time, as the system takes it.
pub fn timespec(left: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    }
}

/// Sends as much as the socket takes; the answer is how many bytes.
pub fn send_some(socket: BorrowedFd, bytes: &[u8]) -> io::Result<usize> {
    send_parts(socket, &[IoSlice::new(bytes)])
}

/// Sends as much as the socket takes of some parts, one behind the other; the answer is how many
/// bytes.
pub fn send_parts(socket: BorrowedFd, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags) {
            Ok(count) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives what is there: `None` when nothing is there, 0 bytes at the end of the stream.
pub fn receive_some(socket: BorrowedFd, room: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::recv(socket, &mut *room, RecvFlags::DONTWAIT) {
            Ok((_, count)) => return Ok(Some(count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// What ends a pump before its time.
#[derive(Debug)]
pub enum PumpError {
    /// The connection is broken.
    Io(io::Error),
    /// An argument makes no sense.
    Fault(Fault),
}

impl From<io::Error> for PumpError {
    fn from(error: io::Error) -> Self {
        PumpError::Io(error)
    }
}

impl From<Fault> for PumpError {
    fn from(fault: Fault) -> Self {
        PumpError::Fault(fault)
    }
}
