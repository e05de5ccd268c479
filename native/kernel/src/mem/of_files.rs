//! Open files by their number, as Python has them; a part of the module with unsafe code.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::IoSlice;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, FromRawFd, RawFd};

use rustix::fs::FallocateFlags;

/// The open file of that number, which its owner keeps open; `None` for no number of a file.
pub fn open_file(descriptor: RawFd) -> Option<BorrowedFd<'static>> {
    // SAFETY: not -1; should its owner close it too early, calls fail or reach another file, and
    // nothing in memory
    (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// The size that an open file has now; `None` if that cannot be told.
pub fn file_size(descriptor: RawFd) -> Option<u64> {
    if descriptor < 0 {
        return None;
    }
    // SAFETY: it is not closed here; one that its owner has closed meanwhile is only asked for a
    // size, which changes nothing whatever it names now
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    file.metadata().ok().map(|status| status.len())
}

/// Writes parts to an open file, one behind the other; how many bytes, `None` if that failed.
///
/// The caller knows that the descriptor is open: another file might have its number.
pub fn write_at(descriptor: RawFd, parts: &[IoSlice<'_>], position: usize) -> Option<usize> {
    let offset = u64::try_from(position).ok()?;
    if descriptor < 0 {
        return None;
    }
    // SAFETY: it is not closed here, and it is open as the caller knows
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    rustix::io::pwritev(file, parts, offset).ok()
}

/// Allocates bytes of an open file, whose size and content stay; false when that cannot be done.
pub fn allocate(descriptor: RawFd, start: usize, end: usize) -> bool {
    let (Ok(offset), Some(length)) = (u64::try_from(start), end.checked_sub(start)) else {
        return false;
    };
    if descriptor < 0 || length == 0 {
        return false;
    }
    // SAFETY: it is not closed here; another file that has its number by now keeps size and content
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, length as u64).is_ok()
}
