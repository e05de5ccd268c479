//! How far each host is with one queue, and the threads that wait for that.
//!
//! ```text
//! mark     everything up to this index is true of a host, at one level
//! row      the marks of one host
//! board    the rows of one queue, and what is waited for there
//! bell     an event descriptor, of all the boards of a source: it wakes an event loop
//! ```
//!
//! A mark rises in the thread that learns of it, mostly that of a pump. That thread stores the mark,
//! and then looks at the number of those that wait; one that waits counts itself first, and then
//! looks at the marks. All four are sequentially consistent, so one of the two sees the other. While
//! nothing is waited for, a mark costs these two accesses and no system call.
//!
//! A host that cannot prove what it holds *claims* what it was not sent. Beside its mark it has a
//! claim: it counts for each index from the first one that it was sent on this connection up to the
//! one that it has acknowledged, and for no other one. A claim is rare, so it has a lock.
//!
//! Each thread that waits sleeps on a word of its own, so what wakes one wakes no other one.
//!
//! A board may have a word of other processes, too (`safe_word`), which rises with the marks.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{eventfd, EventfdFlags};
use rustix::io::Errno;
use rustix::thread::futex;

use crate::live::control::{locked, timespec};
use crate::live::safe_word::SafeWord;

/// The number of levels: appended, synced, applied.
pub const LEVELS: usize = 3;
/// The level of what stands in the queue of a host.
pub const APPENDED: usize = 0;
/// The mark of a host of which nothing is known.
pub const NOTHING: i64 = -1;

/// How a wait stands; the numbers are those of `cqrepl.kernel.interface.Waited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// What was waited for has not come.
    Unknown = 0,
    /// It has come.
    Reached = 1,
    /// Nothing more comes: the board has ended.
    Ended = 2,
}

impl Waited {
    fn of(word: &AtomicU32) -> Self {
        match word.load(Ordering::Acquire) {
            0 => Waited::Unknown,
            1 => Waited::Reached,
            _ => Waited::Ended,
        }
    }
}

/// Wakes the event loop, which waits for it to be readable.
pub struct Bell(OwnedFd);

impl Bell {
    /// A bell that has not rung.
    pub fn new() -> io::Result<Self> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// The number of the event descriptor, which is open as long as this lives.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes it readable.
    pub fn ring(&self) {
        // a full descriptor can be read already, which is all that is wanted
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Takes back that it has rung.
    pub fn clear(&self) {
        // one that has not rung says so by an error
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// What is waited for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// At this level, ...
    pub level: usize,
    /// ... everything up to this index, ...
    pub index: i64,
    /// ... at so many hosts at least, ...
    pub hosts_min: usize,
    /// ... of these, or of all.
    pub hosts: Option<HostSet>,
}

/// Ids of hosts, from 0 to 127: a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSet(u128);

impl HostSet {
    /// A set of these; an id that no host can have is not in it.
    pub fn of(hosts: impl IntoIterator<Item = i64>) -> Self {
        HostSet(hosts.into_iter().filter_map(bit).fold(0, |bits, bit| bits | bit))
    }

    fn has(self, host: i64) -> bool {
        bit(host).is_some_and(|bit| self.0 & bit != 0)
    }
}

fn bit(host: i64) -> Option<u128> {
    1_u128.checked_shl(u32::try_from(host).ok()?)
}

/// The marks of one host.
struct HostRow {
    host: i64,
    marks: [AtomicI64; LEVELS],
    /// The first and the last index that the host has acknowledged one by one.
    claim: Mutex<(i64, i64)>,
}

impl HostRow {
    /// True when an index stands in the queue of the host.
    fn has(&self, index: i64) -> bool {
        if load(self, APPENDED).is_some_and(|mark| mark >= index) {
            return true;
        }
        let (first, last) = *locked(&self.claim);
        first <= index && index <= last
    }

    /// Up to where the host surely has a level: no further than what stands in its queue.
    fn held(&self, level: usize) -> i64 {
        let (appended, further) = (load(self, APPENDED), load(self, level));
        appended.min(further).unwrap_or(NOTHING)
    }
}

/// The claim of a host that has none.
const NO_CLAIM: (i64, i64) = (i64::MAX, NOTHING);

/// What is done when a wait is over.
enum Told {
    /// The thread that sleeps on this word is woken.
    Thread(Arc<AtomicU32>),
    /// The bell rings.
    Loop,
}

struct Waiter {
    id: u64,
    wanted: Wanted,
    told: Told,
}

#[derive(Default)]
struct Members {
    /// In the order of the hosts.
    rows: Vec<Arc<HostRow>>,
    waiters: Vec<Waiter>,
    waiters_ever: u64,
    has_ended: bool,
    safe: Option<SafeWord<HostSet>>,
}

impl Members {
    fn has(&self, wanted: &Wanted) -> bool {
        let counts = |row: &&Arc<HostRow>| {
            let is_named = wanted.hosts.is_none_or(|hosts| hosts.has(row.host));
            // a level counts no further than what is appended
            let level = wanted.level;
            let reaches = || load(row, level).is_some_and(|mark| mark >= wanted.index);
            is_named && row.has(wanted.index) && (level == APPENDED || reaches())
        };
        self.rows.iter().filter(counts).take(wanted.hosts_min).count() >= wanted.hosts_min
    }

    fn raise_safe(&self) {
        let Some(safe) = &self.safe else { return };
        let counts = |row: &&Arc<HostRow>| safe.hosts.is_none_or(|hosts| hosts.has(row.host));
        let held = self.rows.iter().filter(counts).map(|row| row.held(safe.level)).collect();
        safe.raise(held);
    }

    fn stand(&self, wanted: &Wanted) -> Waited {
        match (self.has(wanted), self.has_ended) {
            (true, _) => Waited::Reached,
            (false, true) => Waited::Ended,
            (false, false) => Waited::Unknown,
        }
    }
}

/// The marks of one queue.
pub struct Board {
    bell: Arc<Bell>,
    /// How many wait; counted before they look at the marks.
    waiting: AtomicUsize,
    /// True while a word is raised; set before its thread looks at the marks.
    has_word: AtomicBool,
    members: Mutex<Members>,
}

/// The marks of one host on one board, where they are raised.
#[derive(Clone)]
pub struct Row {
    board: Arc<Board>,
    row: Arc<HostRow>,
    /// The first index of the claim that it raises, in place of the mark.
    claim_from: Option<i64>,
}

/// A wait of one thread.
pub struct Seat {
    id: u64,
    word: Arc<AtomicU32>,
    until: Option<Instant>,
}

impl Board {
    /// A board without hosts.
    pub fn new(bell: Arc<Bell>) -> Self {
        let (waiting, has_word) = (AtomicUsize::new(0), AtomicBool::new(false));
        Board { bell, waiting, has_word, members: Mutex::default() }
    }

    /// The marks of a host, which may be new.
    pub fn row(self: &Arc<Self>, host: i64) -> Row {
        let rows = &mut locked(&self.members).rows;
        let known = rows.iter().find(|row| row.host == host).cloned();
        let row = known.unwrap_or_else(|| {
            let marks = std::array::from_fn(|_| AtomicI64::new(NOTHING));
            let row = Arc::new(HostRow { host, marks, claim: Mutex::new(NO_CLAIM) });
            rows.insert(rows.partition_point(|row| row.host < host), Arc::clone(&row));
            row
        });
        Row { board: Arc::clone(self), row, claim_from: None }
    }

    /// The hosts that have a mark at this level, and their marks.
    pub fn marks(&self, level: usize) -> Vec<(i64, i64)> {
        let rows = &locked(&self.members).rows;
        let mark = |row: &Arc<HostRow>| Some((row.host, load(row, level)?));
        rows.iter().filter_map(mark).filter(|(_, mark)| *mark > NOTHING).collect()
    }

    /// True when what is waited for is there.
    pub fn has(&self, wanted: &Wanted) -> bool {
        locked(&self.members).has(wanted)
    }

    /// Has a thread begin to wait, for so long at most; it then sleeps on its seat, and leaves it.
    pub fn enter(&self, wanted: Wanted, longest: Option<Duration>) -> Seat {
        // what no clock can count to is for ever
        let until = longest.and_then(|longest| Instant::now().checked_add(longest));
        let word = Arc::new(AtomicU32::new(Waited::Unknown as u32));
        let id = self.add(wanted, Told::Thread(Arc::clone(&word)));
        Seat { id, word, until }
    }

    /// Ends the wait of a thread; the answer is how it stands.
    pub fn leave(&self, seat: &Seat) -> Waited {
        let told = Waited::of(&seat.word);
        if told != Waited::Unknown {
            return told; // who told it has forgotten it: no lock is taken that all others want
        }
        self.forget(seat.id);
        Waited::of(&seat.word)
    }

    /// Has the bell ring once, when it has come, or when the board ends. The answer is for
    /// `forget`.
    pub fn watch(&self, wanted: Wanted) -> u64 {
        self.add(wanted, Told::Loop)
    }

    /// Ends a watch, or the wait of a thread; nothing for one that is over.
    pub fn forget(&self, id: u64) {
        let waiters = &mut locked(&self.members).waiters;
        waiters.retain(|waiter| waiter.id != id);
        self.waiting.store(waiters.len(), Ordering::SeqCst);
    }

    /// Ends all waits that there are, and each one to come that is not for what is there.
    pub fn end(&self) {
        locked(&self.members).has_ended = true;
        self.tell();
    }

    /// Lets threads wait again.
    pub fn go_on(&self) {
        locked(&self.members).has_ended = false;
    }

    /// Raises a word from now on, in place of the one before, which is the answer.
    pub fn keep_safe(&self, safe: Option<SafeWord<HostSet>>) -> Option<SafeWord<HostSet>> {
        let mut members = locked(&self.members);
        self.has_word.store(safe.is_some(), Ordering::SeqCst);
        let before = std::mem::replace(&mut members.safe, safe);
        members.raise_safe();
        before
    }

    fn add(&self, wanted: Wanted, told: Told) -> u64 {
        let mut members = locked(&self.members);
        members.waiters_ever += 1;
        let id = members.waiters_ever;
        self.waiting.store(members.waiters.len() + 1, Ordering::SeqCst);
        // a mark that rose before is not told by the thread that raised it
        let stand = members.stand(&wanted);
        if stand == Waited::Unknown {
            members.waiters.push(Waiter { id, wanted, told });
            return id;
        }
        self.waiting.store(members.waiters.len(), Ordering::SeqCst);
        drop(members);
        match told {
            Told::Thread(word) => word.store(stand as u32, Ordering::Release),
            Told::Loop => self.bell.ring(),
        }
        id
    }

    /// Tells all whose wait is over. They are woken once the lock is free, which they may want.
    fn tell(&self) {
        let (mut woken, mut rings) = (Vec::new(), false);
        {
            let mut members = locked(&self.members);
            let waiters = std::mem::take(&mut members.waiters);
            for waiter in waiters {
                let stand = members.stand(&waiter.wanted);
                match (stand, &waiter.told) {
                    (Waited::Unknown, _) => members.waiters.push(waiter),
                    (_, Told::Loop) => rings = true,
                    (_, Told::Thread(word)) => {
                        word.store(stand as u32, Ordering::Release);
                        woken.push(Arc::clone(word));
                    }
                }
            }
            self.waiting.store(members.waiters.len(), Ordering::SeqCst);
        }
        for word in woken {
            // that the thread sleeps not yet, or no more, is no error
            let _ = futex::wake(&word, futex::Flags::PRIVATE, 1);
        }
        if rings {
            self.bell.ring();
        }
    }
}

impl Row {
    /// The same host, which is sent what is from an index on and cannot prove that it has the rest:
    /// what is raised here at `APPENDED` counts from there on, and the mark stays. A claim that began
    /// before is over.
    pub fn claiming(&self, first: i64) -> Row {
        *locked(&self.row.claim) = (first, NOTHING);
        Row { claim_from: Some(first), ..self.clone() }
    }

    /// Raises a mark, or the claim; one that is higher stays.
    pub fn raise_to(&self, level: usize, index: i64) {
        let has_risen = match (self.claim_from, self.row.marks.get(level)) {
            (Some(first), _) if level == APPENDED => {
                let mut claim = locked(&self.row.claim);
                let has_risen = claim.0 == first && claim.1 < index;
                if has_risen {
                    claim.1 = index;
                }
                has_risen
            }
            (_, Some(mark)) => mark.fetch_max(index, Ordering::SeqCst) < index,
            (_, None) => false,
        };
        if has_risen && self.board.has_word.load(Ordering::SeqCst) {
            locked(&self.board.members).raise_safe();
        }
        if has_risen && self.board.waiting.load(Ordering::SeqCst) > 0 {
            self.board.tell();
        }
    }

    /// Lowers a mark, and with what is appended the claim; one that is lower stays.
    pub fn lower_to(&self, level: usize, index: i64) {
        if level == APPENDED {
            let mut claim = locked(&self.row.claim);
            claim.1 = claim.1.min(index);
        }
        if let Some(mark) = self.row.marks.get(level) {
            mark.fetch_min(index, Ordering::SeqCst);
        }
    }

    /// The mark at a level.
    pub fn mark(&self, level: usize) -> i64 {
        load(&self.row, level).unwrap_or(NOTHING)
    }

    /// Rings the bell of the board.
    pub fn ring(&self) {
        self.board.bell.ring();
    }
}

fn load(row: &HostRow, level: usize) -> Option<i64> {
    row.marks.get(level).map(|mark| mark.load(Ordering::SeqCst))
}

impl Seat {
    /// Sleeps until the wait is over, the time has come, or the system has interrupted the sleep:
    /// then it still waits, and false is the answer.
    pub fn sleep(&self) -> bool {
        loop {
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            if Waited::of(&self.word) != Waited::Unknown || left == Some(Duration::ZERO) {
                return true;
            }
            let left = left.map(timespec);
            let waiting = Waited::Unknown as u32;
            let slept = futex::wait(&self.word, futex::Flags::PRIVATE, waiting, left.as_ref());
            if slept == Err(Errno::INTR) {
                return false;
            }
        }
    }
}
