//! Views of memory that other processes or threads may change.
//!
//! A store file is mapped, so other processes may write what we read, at any moment. No Rust slice
//! is ever made of such memory, as a slice promises that nothing changes behind it; the one
//! exception is an argument of a system call. A view is an address and a length, and gives copies:
//!
//! ```text
//! header word   one atomic load and an acquire fence: what its writer stored before can be read
//! numbers       one volatile read each; the caller keeps the copy, and never reads twice
//! payloads      a plain copy of bytes that are only passed on, never interpreted
//! ```
//!
//! A payload changes while it is copied only if a writer breaks the format. The copy is then a mix
//! of old and new bytes, and nothing worse happens, as no decision hangs on it.
//!
//! Words that processes agree through are references to atomics, for as long as the view lives.
//!
//! Every access is compared with the length of the view first, and gives `None` outside. A file
//! that another process cuts short can still raise SIGBUS, as in every program that maps it.

#![allow(unsafe_code)]

use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::sync::atomic::{fence, AtomicI64, AtomicU32, Ordering};
use std::{ptr, slice};

use rustix::mm::{madvise, Advice};

use crate::mem::fault::Fault;

/// True when `count` bytes from `offset` on lie within `length`. Nothing is added, so nothing can
/// overflow.
fn lies_within(length: usize, offset: usize, count: usize) -> bool {
    offset <= length && count <= length - offset
}

/// Bytes that can be read.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub(super) start: *const u8,
    pub(super) length: usize,
    pub(super) life: PhantomData<&'a [u8]>,
}

// SAFETY: the memory belongs to no thread, and stays for 'a; other threads and processes may change
// it at any time anyway
unsafe impl Send for Source<'_> {}
// SAFETY: a view that is shared can do no more than a copy of it, which may be sent
unsafe impl Sync for Source<'_> {}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Source { start: bytes.as_ptr(), length: bytes.len(), life: PhantomData }
    }
}

impl<'a> Source<'a> {
    /// A view of `count` bytes from `offset` on.
    pub fn part(&self, offset: usize, count: usize) -> Option<Source<'a>> {
        if !lies_within(self.length, offset, count) {
            return None;
        }
        // SAFETY: offset and count were compared with the length above
        let start = unsafe { self.start.add(offset) };
        Some(Source { start, length: count, life: PhantomData })
    }

    /// The same, where no bytes lie anywhere: their offset says nothing.
    #[inline]
    pub fn piece(&self, offset: usize, count: usize) -> Option<Source<'a>> {
        self.part(if count == 0 { 0 } else { offset }, count)
    }

    /// The bytes as an argument of a system call, which is the only use that is allowed.
    pub fn io_slice(&self) -> IoSlice<'a> {
        // SAFETY: so many bytes are there, for 'a. They may change at any time, but only the system
        // reads through the slice: for the compiler an address and a length are passed on
        IoSlice::new(unsafe { slice::from_raw_parts(self.start, self.length) })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The header word at `offset`. What its writer stored before it can be read afterwards.
    pub fn header(&self, offset: usize) -> Option<u32> {
        if !lies_within(self.length, offset, 4) {
            return None;
        }
        // SAFETY: offset and width were compared with the length above
        let at = unsafe { self.start.add(offset) };
        let word = if at.cast::<u32>().is_aligned() {
            // SAFETY: there are 4 aligned bytes in the view. The load is relaxed, with a fence
            // behind it, as Rust promises that no stronger load works where memory is mapped for
            // reading only
            unsafe { AtomicU32::from_ptr(at.cast_mut().cast()) }.load(Ordering::Relaxed)
        } else {
            // SAFETY: there are 4 bytes in the view, which may have any address. A mapping begins
            // on a page, so bytes without alignment are in no file that is shared; still they are
            // read once
            u32::from_ne_bytes(unsafe { at.cast::<[u8; 4]>().read_volatile() })
        };
        fence(Ordering::Acquire);
        Some(u32::from_le(word))
    }

    /// A copy of `N` bytes from `offset` on.
    #[inline]
    pub fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if !lies_within(self.length, offset, N) {
            return None;
        }
        let mut bytes = [0; N];
        // SAFETY: offset and count were compared with the length above; the copy is ours alone
        unsafe { ptr::copy_nonoverlapping(self.start.add(offset), bytes.as_mut_ptr(), N) };
        Some(bytes)
    }

    /// True when exactly these bytes stand at `offset`.
    #[inline]
    pub fn holds(&self, offset: usize, bytes: &[u8]) -> bool {
        if !lies_within(self.length, offset, bytes.len()) {
            return false;
        }
        let mut at = offset;
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            if self.read::<8>(at).as_ref().map(<[u8; 8]>::as_slice) != Some(word) {
                return false;
            }
            at += 8;
        }
        words.remainder().iter().enumerate().all(|(nth, &byte)| self.read(at + nth) == Some([byte]))
    }

    /// The aligned 64-bit number at `offset`, which writers store in one go. Later reads stay
    /// behind this one.
    pub fn number(&self, offset: usize) -> Option<i64> {
        if !lies_within(self.length, offset, 8) {
            return None;
        }
        // SAFETY: offset and width were compared with the length above
        let at = unsafe { self.start.add(offset) }.cast::<i64>();
        if !at.is_aligned() {
            return None;
        }
        // SAFETY: there are 8 aligned bytes in the view. The load is relaxed, as the memory may be
        // mapped for reading only
        let number = unsafe { AtomicI64::from_ptr(at.cast_mut()) }.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        Some(i64::from_le(number))
    }

    /// Puts a copy of all bytes behind those of a vector.
    pub fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), Fault> {
        bytes.try_reserve(self.length)?;
        // SAFETY: `length` bytes are there. As many have just been reserved behind the bytes of the
        // vector, and they become part of it only after they have been stored
        unsafe {
            ptr::copy_nonoverlapping(self.start, bytes.as_mut_ptr().add(bytes.len()), self.length);
            bytes.set_len(bytes.len() + self.length);
        }
        Ok(())
    }

    /// Has the processor fetch the bytes at `offset` into its cache, where they are in memory and
    /// it can be asked to. Nothing is read.
    #[inline]
    pub fn expect(&self, offset: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if offset < self.length {
            // SAFETY: the offset was compared with the length above. It is a hint: no address can
            // make it fail
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                    self.start.add(offset).cast(),
                );
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = offset;
    }

    /// True when `count` bytes from `offset` on lie within the view. No bytes lie anywhere.
    #[inline]
    pub fn has(&self, offset: usize, count: usize) -> bool {
        count == 0 || lies_within(self.length, offset, count)
    }
}

/// 64-bit numbers that can be read: the offsets and lengths of a batch.
#[derive(Clone, Copy)]
pub struct Longs<'a> {
    pub(super) start: *const i64,
    pub(super) length: usize,
    pub(super) life: PhantomData<&'a [i64]>,
}

// SAFETY: the reasons are those of `Source`
unsafe impl Send for Longs<'_> {}

impl<'a> From<&'a [i64]> for Longs<'a> {
    fn from(numbers: &'a [i64]) -> Self {
        Longs { start: numbers.as_ptr(), length: numbers.len(), life: PhantomData }
    }
}

impl Longs<'_> {
    /// The number of numbers.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True when there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The number at that place.
    pub fn get(&self, place: usize) -> Option<i64> {
        if place >= self.length {
            return None;
        }
        // SAFETY: the place was compared with the length above; the address is aligned, as those of
        // slices and of typed Python buffers are. The read is volatile, so that it happens once:
        // another thread may change the array while we work without the GIL
        Some(unsafe { self.start.add(place).read_volatile() })
    }
}

/// Bytes that can be written. No reader looks at them before they are published.
pub struct Target<'a> {
    pub(super) start: *mut u8,
    pub(super) length: usize,
    pub(super) life: PhantomData<&'a mut [u8]>,
}

// SAFETY: the reasons are those of `Source`; the code that makes a Target has seen to it that there
// is one writer
unsafe impl Send for Target<'_> {}

impl<'a> From<&'a mut [u8]> for Target<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Target { start: bytes.as_mut_ptr(), length: bytes.len(), life: PhantomData }
    }
}

impl Target<'_> {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Stores bytes of our own at `offset`.
    #[inline]
    pub fn put(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        if !lies_within(self.length, offset, bytes.len()) {
            return None;
        }
        // SAFETY: offset and length were compared above; `copy` allows the two areas to overlap,
        // though they never should
        unsafe { ptr::copy(bytes.as_ptr(), self.start.add(offset), bytes.len()) };
        Some(())
    }

    /// Copies bytes from a view, which may be of the same memory.
    #[inline]
    pub fn copy(&mut self, offset: usize, data: Source, from: usize, count: usize) -> Option<()> {
        if !lies_within(self.length, offset, count) || !data.has(from, count) {
            return None;
        }
        if count > 0 {
            // SAFETY: both areas were compared above; `copy` allows them to overlap
            unsafe { ptr::copy(data.start.add(from), self.start.add(offset), count) };
        }
        Some(())
    }

    /// Brings the pages of some bytes into memory, writable, as a store would; no byte changes.
    ///
    /// The answer is `Some(Err)` where a store would kill the process, as the bytes are behind the
    /// end of a file or the disk is full.
    pub fn populate(&self, start: usize, end: usize) -> Option<io::Result<()>> {
        let count = end.checked_sub(start)?;
        if !lies_within(self.length, start, count) {
            return None;
        }
        if count == 0 {
            return Some(Ok(()));
        }
        // SAFETY: start and count were compared with the length above
        let at = unsafe { self.start.add(start) };
        let before = at as usize % rustix::param::page_size();
        // SAFETY: these are exactly the pages that hold the bytes, and no byte changes. An address
        // that nothing is mapped at gives an error, not a fault
        let done = unsafe {
            let first = at.wrapping_sub(before).cast();
            madvise(first, before + count, Advice::LinuxPopulateWrite)
        };
        Some(done.map_err(io::Error::from))
    }

    /// True when a byte of this view is a byte of the source, too.
    pub fn overlaps(&self, other: Source) -> bool {
        let (mine, others) = (self.start as usize, other.start as usize);
        mine < others.saturating_add(other.length) && others < mine.saturating_add(self.length)
    }
}

/// Aligned words that processes agree through.
#[derive(Clone, Copy)]
pub struct Cells<'a> {
    pub(super) start: *mut u8,
    pub(super) length: usize,
    pub(super) is_writable: bool,
    pub(super) life: PhantomData<&'a AtomicI64>,
}

// SAFETY: the reasons are those of `Source`; the words are reached as atomics only
unsafe impl Send for Cells<'_> {}

impl<'a> Cells<'a> {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True when there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The same bytes, to be read.
    pub fn source(&self) -> Source<'a> {
        Source { start: self.start, length: self.length, life: PhantomData }
    }

    /// The same bytes, to lay what no reader looks at yet; `None` if they may not be written.
    pub fn target(&self) -> Option<Target<'a>> {
        let target = Target { start: self.start, length: self.length, life: PhantomData };
        self.is_writable.then_some(target)
    }

    fn at(&self, offset: usize, width: usize) -> Option<*mut u8> {
        if !lies_within(self.length, offset, width) {
            return None;
        }
        // SAFETY: offset and width were compared with the length above
        let at = unsafe { self.start.add(offset) };
        (at as usize).is_multiple_of(width).then_some(at)
    }

    /// The 32-bit word at `offset`. What its writer stored before it can be read afterwards.
    pub fn load_4(&self, offset: usize) -> Option<u32> {
        let at = self.at(offset, 4)?;
        // SAFETY: there are 4 aligned bytes in the view. The load is relaxed, as the memory may be
        // mapped for reading only
        let word = unsafe { AtomicU32::from_ptr(at.cast()) }.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        Some(word)
    }

    /// The 64-bit word at `offset`. What its writer stored before it can be read afterwards.
    pub fn load_8(&self, offset: usize) -> Option<i64> {
        let at = self.at(offset, 8)?;
        // SAFETY: there are 8 aligned bytes in the view. The load is relaxed, as the memory may be
        // mapped for reading only
        let word = unsafe { AtomicI64::from_ptr(at.cast()) }.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        Some(word)
    }

    /// The 32-bit word at `offset`, to be changed; `None` if it may not be written.
    pub fn cell_4(&self, offset: usize) -> Option<&'a AtomicU32> {
        let at = self.at(offset, 4).filter(|_| self.is_writable)?;
        // SAFETY: 4 aligned bytes are in the view, which outlives the reference, and may be written
        Some(unsafe { AtomicU32::from_ptr(at.cast()) })
    }

    /// The 64-bit word at `offset`, to be changed; `None` if it may not be written.
    pub fn cell_8(&self, offset: usize) -> Option<&'a AtomicI64> {
        let at = self.at(offset, 8).filter(|_| self.is_writable)?;
        // SAFETY: 8 aligned bytes are in the view, which outlives the reference, and may be written
        Some(unsafe { AtomicI64::from_ptr(at.cast()) })
    }
}

impl<'a> From<&'a mut [u8]> for Cells<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Cells {
            start: bytes.as_mut_ptr(),
            length: bytes.len(),
            is_writable: true,
            life: PhantomData,
        }
    }
}
