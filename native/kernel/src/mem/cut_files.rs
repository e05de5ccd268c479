//! The last words of a process whose mapped file was cut. This module has unsafe code, as it takes a
//! signal, and asks the system in ways that are safe at such a moment.
//!
//! Who touches a page behind the end of a mapped file gets SIGBUS, and the system ends the process
//! without a word. So does a page that a full disk has no room for. Nothing can be gone on with then:
//! the bytes are not there. What can be done is to say which file it was.
//!
//! The handler allocates nothing and takes no lock. It looks the address up in the system's own list
//! of what is mapped, so that nothing has to be kept up to date before. A page of any other file is
//! none of its business: the handler that was there before is put back, and the same signal goes to
//! that one.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

/// What is read at a time.
const PIECE_BYTES: usize = 2048;
/// A line of the list of mappings: a path, and what stands before it.
const LINE_BYTES: usize = 4096 + 128;
/// How the system marks a file that no name leads to.
const DELETED: &[u8] = b" (deleted)";

/// What the handler has to know.
struct Words {
    speaker: String,
    code_cut: c_int,
    code_full: c_int,
    previous: libc::sigaction,
}

static WORDS: OnceLock<Words> = OnceLock::new();

/// Has this process say which file was cut under it; the first call counts.
pub fn name_cut_files(speaker: &str, code_cut: i32, code_full: i32) -> io::Result<()> {
    // SAFETY: zeros are a valid action, which the call overwrites
    let mut previous: libc::sigaction = unsafe { zeroed() };
    // SAFETY: only asks, and stores what it finds in `previous`
    if unsafe { libc::sigaction(libc::SIGBUS, null(), &mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let words = Words { speaker: speaker.to_owned(), code_cut, code_full, previous };
    if WORDS.set(words).is_err() {
        return Ok(());
    }
    // SAFETY: zeros are a valid action: no flags, and an empty mask
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = on_bus_error as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, and does only what a handler may
    match unsafe { libc::sigaction(libc::SIGBUS, &action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes SIGBUS.
extern "C" fn on_bus_error(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    let Some(words) = WORDS.get() else { return };
    // SAFETY: the system has filled it in; an address is in it where it says a page was not there
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    if code > 0 {
        let mut line = Line::new();
        if look_up(address, &mut line) {
            if let Some(place) = Place::of(line.bytes(), address) {
                end(words, &place);
            }
        }
    }
    // SAFETY: puts back what was there. A page that is not there is met again, and goes to it
    unsafe {
        libc::sigaction(libc::SIGBUS, &words.previous, null_mut());
        if code <= 0 {
            libc::raise(libc::SIGBUS); // sent by a process, and so not met again
        }
    }
}

/// Says which file it is, and ends the process.
fn end(words: &Words, place: &Place<'_>) -> ! {
    let mut path = Line::new();
    path.push(place.path);
    path.push(b"\0");
    // SAFETY: zeros are a valid status, which the call overwrites
    let mut status: libc::stat = unsafe { zeroed() };
    // SAFETY: the path ends with a zero
    let is_there = unsafe { libc::stat(path.bytes().as_ptr().cast(), &mut status) } == 0;
    let size = u64::try_from(status.st_size).unwrap_or(0);
    let was_cut = !is_there || place.position >= size;
    let mut line = Line::new();
    line.push(words.speaker.as_bytes());
    line.push(b": ");
    line.push(place.path);
    if was_cut {
        line.push(b": expected a file as long as it was, it was cut while it was in use\n");
    } else {
        line.push(b": expected room or bytes for a page, its disk is full or fails\n");
    }
    // SAFETY: the bytes are there. `_exit` is what a handler may call, and no file is left half-written
    // by it that is not anyway
    unsafe {
        libc::write(libc::STDERR_FILENO, line.bytes().as_ptr().cast(), line.bytes().len());
        libc::_exit(if was_cut { words.code_cut } else { words.code_full })
    }
}

/// Finds the line of the mapping that an address is in; false when there is none.
fn look_up(address: u64, line: &mut Line) -> bool {
    let open = || {
        // SAFETY: the path ends with a zero
        unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
    };
    let mut file = open();
    if file < 0 {
        // SAFETY: there may be no descriptor left, and standard input is needed no more
        unsafe { libc::close(libc::STDIN_FILENO) };
        file = open();
    }
    let mut piece = [0_u8; PIECE_BYTES];
    loop {
        // SAFETY: the buffer is as long as is said. A file that could not be opened is an error here
        let count = unsafe { libc::read(file, piece.as_mut_ptr().cast(), PIECE_BYTES) };
        let Some(read) = usize::try_from(count).ok().and_then(|count| piece.get(..count)) else {
            return false;
        };
        if read.is_empty() {
            return false;
        }
        for byte in read {
            if *byte != b'\n' {
                line.push(&[*byte]);
            } else if Place::span(line.bytes())
                .is_some_and(|(from, to)| (from..to).contains(&address))
            {
                return true;
            } else {
                line.clear();
            }
        }
    }
}

/// Bytes on the stack, up to a limit; what is more is left out.
struct Line {
    bytes: [u8; LINE_BYTES],
    length: usize,
}

impl Line {
    fn new() -> Line {
        Line { bytes: [0; LINE_BYTES], length: 0 }
    }

    fn push(&mut self, more: &[u8]) {
        for byte in more {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    fn clear(&mut self) {
        self.length = 0;
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// A place in a mapped file of a queue.
struct Place<'a> {
    path: &'a [u8],
    position: u64,
}

impl Place<'_> {
    /// What stands at an address, by the line of its mapping; `None` for another kind of file.
    fn of(line: &[u8], address: u64) -> Option<Place<'_>> {
        let (from, _) = Place::span(line)?;
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let offset = hex(fields.nth(2)?)?;
        let path = fields.nth(2)?.trim_ascii_start();
        let path = path.strip_suffix(DELETED).unwrap_or(path);
        let suffix = path.rsplit(|byte| *byte == b'.').next()?;
        let position = offset.checked_add(address.checked_sub(from)?)?;
        (path.starts_with(b"/") && suffix.starts_with(b"cq")).then_some(Place { path, position })
    }

    /// The first address of a mapping, and the one behind its last.
    fn span(line: &[u8]) -> Option<(u64, u64)> {
        let mut ends = line.split(|byte| *byte == b' ').next()?.split(|byte| *byte == b'-');
        Some((hex(ends.next()?)?, hex(ends.next()?)?))
    }
}

/// The number that stands there in hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
