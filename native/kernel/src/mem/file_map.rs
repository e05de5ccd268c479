//! A file mapped into memory that can grow where it is. This module has unsafe code, as it maps memory.
//!
//! ```text
//! start           start + mapped                       start + reserved
//! |  the file     |  addresses that belong to us,      |
//! |               |  which no access may touch         |
//! ```
//!
//! When the file has grown, its new pages are mapped right behind those that are there. What was mapped
//! stays where it is, with all of its page tables: addresses that others hold stay good, and nothing is
//! unmapped, which takes the system longer the more of it was touched.
//!
//! Behind the end of what is written, and in what a file grows by, pages come one by one. The first access
//! to a page that is not in memory has the system read ahead, as far as its device says, which may be 8
//! MiB: to clear so many pages takes 13 ms, and there is nothing in them yet. `comes_singly` is against
//! that; what was written long ago and is read through gains by it.
//!
//! Reserved addresses cost no memory. They are refused where the process may not have so many, or where
//! all maps together would take a good part of what there is. The file is mapped without any then, and
//! cannot grow.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{madvise, mmap, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};
use rustix::param::page_size;

use crate::mem::of_files::open_file;

/// All maps of a process reserve no more than this part of its addresses.
const ADDRESSES_SHARE: usize = 8;

/// What is unmapped where it is given up: milliseconds. A larger map takes seconds for each ten
/// gigabytes that were touched: a writer that goes on to the next file is not to wait for that.
const AT_ONCE_BYTES: usize = 64 << 20;

/// The bytes that all maps of this process have reserved.
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// A file, or the beginning of it, mapped and shared with all who map it.
pub struct FileMap {
    start: usize,
    length: usize,
    /// At least the length, in whole pages; more where it can grow.
    reserved: usize,
    is_writable: bool,
}

impl FileMap {
    /// Maps the first `length` bytes of an open file, which is at least that long, with room to grow to
    /// `reserved` bytes, if the system has so many addresses.
    pub fn new(
        descriptor: RawFd,
        length: usize,
        reserved: usize,
        is_writable: bool,
    ) -> io::Result<Self> {
        let invalid = io::ErrorKind::InvalidInput;
        let pages = whole_pages(length).filter(|pages| *pages > 0).ok_or(invalid)?;
        let reserved = whole_pages(reserved).unwrap_or(0);
        if reserved > pages {
            if let Some(start) = reserve(reserved) {
                let mut map = FileMap { start, length: 0, reserved, is_writable };
                if map.extend(descriptor, length) {
                    return Ok(map);
                }
            }
        }
        let file = open_file(descriptor).ok_or(invalid)?;
        // SAFETY: the system chooses an address at which nothing is mapped
        let start =
            unsafe { mmap(null_mut(), pages, protection(is_writable), MapFlags::SHARED, file, 0)? };
        RESERVED.fetch_add(pages, Ordering::Relaxed);
        Ok(FileMap { start: start as usize, length, reserved: pages, is_writable })
    }

    /// Maps what the file has grown by, up to `length`; false where there is no room for that, or the
    /// system refuses, and what is mapped is as it was. The descriptor is one of the same open file.
    pub fn extend(&mut self, descriptor: RawFd, length: usize) -> bool {
        let (Some(from), Some(to)) = (whole_pages(self.length), whole_pages(length)) else {
            return false;
        };
        if to > self.reserved {
            return false;
        }
        if to > from {
            let Some(file) = open_file(descriptor) else { return false };
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            let at = (self.start + from) as *mut _;
            // SAFETY: the addresses were reserved by this map, which has nothing at them yet, and lie
            // before its end
            let mapped = unsafe {
                mmap(at, to - from, protection(self.is_writable), flags, file, from as u64)
            };
            if mapped.is_err() {
                // the system may have given these addresses away before it failed: whether they, and
                // those behind, are still ours cannot be known, and they are not touched any more
                self.reserved = from;
                return false;
            }
            if from > 0 {
                self.advise(from, to);
            }
        }
        self.length = self.length.max(length);
        true
    }

    /// Has the system read nothing ahead behind a position of what is mapped.
    pub fn comes_singly(&self, position: usize) {
        let page = position / page_size() * page_size();
        if let Some(to) = whole_pages(self.length).filter(|to| page < *to) {
            self.advise(page, to);
        }
    }

    /// Both are in whole pages, and mapped.
    fn advise(&self, from: usize, to: usize) {
        // SAFETY: these are pages of this map's own, of which no byte changes
        let _ = unsafe { madvise((self.start + from) as *mut _, to - from, Advice::Random) };
    }

    /// The address of the first byte, for as long as this lives.
    pub fn start(&self) -> *mut u8 {
        self.start as *mut u8
    }

    /// How many bytes of the file are mapped.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True when nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// True when its bytes may be written.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        if self.reserved == 0 {
            return;
        }
        let (start, reserved) = (self.start, self.reserved);
        let give_back = move || {
            // SAFETY: all of these addresses are this map's, and those who held any of them are gone
            let done = unsafe { munmap(start as *mut _, reserved) };
            if done.is_ok() {
                RESERVED.fetch_sub(reserved, Ordering::Relaxed);
            }
        };
        let thread = || std::thread::Builder::new().name("unmap".into()).spawn(give_back);
        if self.length <= AT_ONCE_BYTES || thread().is_err() {
            give_back();
        }
    }
}

fn protection(is_writable: bool) -> ProtFlags {
    if is_writable {
        ProtFlags::READ | ProtFlags::WRITE
    } else {
        ProtFlags::READ
    }
}

/// So many bytes as whole pages; `None` for more than there are addresses.
fn whole_pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(page_size())
}

/// Reserves addresses at which nothing is mapped; `None` where there are not enough.
fn reserve(bytes: usize) -> Option<usize> {
    // SAFETY: the system chooses addresses at which nothing is mapped
    let start = unsafe {
        mmap_anonymous(
            null_mut(),
            bytes,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let start = start.ok()? as usize;
    // the system maps from above, so that the first address tells how many there are
    let most = start.checked_next_power_of_two().unwrap_or(usize::MAX) / ADDRESSES_SHARE;
    if RESERVED.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > most {
        RESERVED.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: these are the addresses that were just reserved, and no other has seen them
        let _ = unsafe { munmap(start as *mut _, bytes) };
        return None;
    }
    Some(start)
}
