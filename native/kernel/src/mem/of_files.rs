//! Calls on open files and sockets by their descriptors, as Python has them. This module has unsafe
//! code, as a descriptor can be closed by its owner at any time.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::IoSlice;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, FromRawFd, RawFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::FallocateFlags;

/// The open file with that descriptor, which its owner keeps open; `None` for a negative number.
pub fn open_file(descriptor: RawFd) -> Option<BorrowedFd<'static>> {
    // SAFETY: the number is not -1. Should the owner close the file too early, calls fail or reach
    // another file; no memory is touched
    (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// The size that an open file has now; `None` if the system cannot tell, or if the file was removed
/// and no name leads to it any more.
pub fn named_file_size(descriptor: RawFd) -> Option<u64> {
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the file is not closed here. Should its owner have closed it meanwhile, the system is
    // only asked about another file, which changes nothing
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let status = file.metadata().ok()?;
    (status.nlink() > 0).then_some(status.len())
}

/// What tells an open file from every other one: its device, and its number there; `None` if no file
/// has that descriptor.
#[cfg(feature = "python")]
pub fn file_identity(descriptor: RawFd) -> Option<(u64, u64)> {
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the file is not closed here. Should its owner have closed it, the system is only asked
    // about another file, or says that there is none
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    let status = file.metadata().ok()?;
    Some((status.dev(), status.ino()))
}

/// Writes parts to an open file, one behind the other; the answer is how many bytes were written,
/// or `None` if the call failed.
///
/// The caller knows that the descriptor is open: otherwise another file might have its number.
pub fn write_at(descriptor: RawFd, parts: &[IoSlice<'_>], position: usize) -> Option<usize> {
    let offset = u64::try_from(position).ok()?;
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the file is not closed here, and the caller knows that it is open
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    rustix::io::pwritev(file, parts, offset).ok()
}

/// Allocates bytes of an open file, whose size and content stay; false when the system refuses.
pub fn allocate(descriptor: RawFd, start: usize, end: usize) -> bool {
    let (Ok(offset), Some(length)) = (u64::try_from(start), end.checked_sub(start)) else {
        return false;
    };
    if descriptor < 0 || length == 0 {
        return false;
    }
    // SAFETY: the file is not closed here. Should another file have its number by now, that file
    // keeps its size and content
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, length as u64).is_ok()
}
