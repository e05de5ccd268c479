//! `re` frames: a cid document, then a data document with index, payload and nano time.
//!
//! ```text
//! <cid document> | word | C2 're' | 82 u32 | AF index8 | 80/81/82 length | payload | ns item
//! ```

use crate::batch::apart::Apart;
use crate::batch::documents::BODY_MAX;
use crate::mem::fault::{self, push, Fault};
use crate::mem::{Longs, Source, Target};

const RE_NAME: [u8; 3] = *b"\xC2re";
const BLOCK32: u8 = 0x82;
const INT64_0X: u8 = 0xAF;
/// The code of a number of 64 bits, as a nano time has it.
pub const INT64: u8 = 0xA7;
const BLOCK8: u8 = 0x80;
const INDEX_ITEM_BYTES: u64 = 9;
const NS_ITEM_BYTES: usize = 9; // the one shape that a scan takes
const HEAD_BLOCK_BYTES: u64 = 4 + 3 + 1 + 4; // what stands before the block's content
const HEAD_BYTES: usize = HEAD_BLOCK_BYTES as usize + 9 + 1; // all up to the code of the length

/// Writes the frames of a batch, one after the other. The work can be interrupted.
pub struct Framing<'a, 'd> {
    data: Source<'d>,
    offsets: Longs<'a>,
    lengths: Longs<'a>,
    next: usize,
    index: i64,
    ns_item: &'a [u8],
    head: Head,
    out: Target<'a>,
    apart_min: usize,
    /// The payloads that were left where they are.
    pub apart: Apart<'d>,
    /// How many excerpts were framed.
    pub count: usize,
    /// The offset in the output behind the last frame.
    pub filled: usize,
}

/// All that stands before a payload, the cid document included.
///
/// The whole head is stored as it was made, and then what differs from frame to frame is stored
/// over it. That is faster than to fill in a copy first, as the wide loads of the copy would wait
/// for the narrow stores into it.
struct Head {
    bytes: Vec<u8>,
    cid_bytes: usize,
    ns_bytes: usize,
}

impl Head {
    fn new(cid_document: &[u8], ns_bytes: usize) -> Result<Self, Fault> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(cid_document.len().saturating_add(HEAD_BYTES))?;
        bytes.extend_from_slice(cid_document);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&RE_NAME);
        bytes.push(BLOCK32);
        bytes.extend_from_slice(&[0; 4]);
        bytes.push(INT64_0X);
        bytes.extend_from_slice(&[0; 9]);
        Ok(Head { bytes, cid_bytes: cid_document.len(), ns_bytes })
    }

    /// Stores the head of one frame, and answers where its payload starts.
    fn put(&self, out: &mut Target, at: usize, index: i64, length: usize) -> Result<usize, Fault> {
        let form = form_of(length);
        let width = 1 << form;
        let fixed = INDEX_ITEM_BYTES + 1 + (width + self.ns_bytes) as u64;
        let inner = fixed.saturating_add(length as u64);
        let word = inner.saturating_add(HEAD_BLOCK_BYTES - 4);
        if word > BODY_MAX as u64 {
            return Err(fault::TOO_LONG);
        }
        let variable = at + self.cid_bytes;
        let [b0, b1, b2, b3] = (length as u32).to_le_bytes();
        out.put(at, &self.bytes)
            .and_then(|()| out.put(variable, &(word as u32).to_le_bytes()))
            .and_then(|()| out.put(variable + 8, &(inner as u32).to_le_bytes()))
            .and_then(|()| out.put(variable + 13, &index.to_le_bytes()))
            .and_then(|()| match form {
                0 => out.put(variable + 21, &[BLOCK8, b0]),
                1 => out.put(variable + 21, &[BLOCK8 + 1, b0, b1]),
                _ => out.put(variable + 21, &[BLOCK8 + 2, b0, b1, b2, b3]),
            })
            .ok_or(fault::POSITION_OUTSIDE)?;
        Ok(variable + HEAD_BYTES + width)
    }
}

/// Which form a length has: 0 for a length of 1 byte, 1 for 2 bytes, 2 for 4 bytes.
fn form_of(length: usize) -> usize {
    usize::from(length > 0xFF) + usize::from(length > 0xFFFF)
}

/// What is framed, for one handler.
pub struct Frames<'a, 'd> {
    /// The bytes that the payloads are in.
    pub data: Source<'d>,
    /// Where each payload starts.
    pub offsets: Longs<'a>,
    /// How long each payload is.
    pub lengths: Longs<'a>,
    /// The meta-data document that stands before each event.
    pub cid_document: &'a [u8],
    /// The item that stands behind each payload.
    pub ns_item: &'a [u8],
}

impl<'a, 'd> Framing<'a, 'd> {
    /// Makes ready to write the frames of the excerpts from `start` on into `out`, from `filled`
    /// on.
    pub fn new(
        frames: Frames<'a, 'd>,
        start: i64,
        index: i64,
        out: Target<'a>,
        filled: i64,
    ) -> Result<Self, Fault> {
        let Frames { data, offsets, lengths, cid_document, ns_item } = frames;
        let next = fault::offset(start, fault::PART_OUTSIDE)?;
        let filled = fault::offset(filled, fault::POSITION_OUTSIDE)?;
        if offsets.len() != lengths.len() {
            return Err(fault::PART_OUTSIDE);
        }
        // the last of these indexes must fit into 64 bits, the one behind it need not
        let more = offsets.len().saturating_sub(next).saturating_sub(1);
        i64::try_from(more)
            .ok()
            .and_then(|more| index.checked_add(more))
            .ok_or(Fault::Overflow("expected indexes of at most 64 bits"))?;
        let head = Head::new(cid_document, ns_item.len())?;
        let (apart_min, apart, count) = (usize::MAX, Apart::default(), 0);
        Ok(Framing {
            data,
            offsets,
            lengths,
            next,
            index,
            ns_item,
            head,
            out,
            apart_min,
            apart,
            count,
            filled,
        })
    }

    /// Leaves payloads of at least that length where they are, behind those that were left before.
    /// Their bytes count as if they were in the output.
    pub fn leaving(self, apart_min: usize, apart: Apart<'d>) -> Self {
        Framing { apart_min, apart, ..self }
    }

    /// Writes up to so many frames, or as many as take so many bytes; false when no excerpt is
    /// left, or the next one does not fit.
    pub fn step(&mut self, frames: usize, bytes: usize) -> Result<bool, Fault> {
        let bytes_end = self.filled.saturating_add(bytes);
        for _ in 0..frames {
            if self.filled >= bytes_end {
                return Ok(true);
            }
            let Some((offset, length)) =
                self.offsets.get(self.next).zip(self.lengths.get(self.next))
            else {
                return Ok(false);
            };
            if !self.put(offset, length)? {
                return Ok(false);
            }
            self.next += 1;
        }
        Ok(true)
    }

    /// Writes the frame of one more excerpt; false when it does not fit.
    #[inline]
    pub fn put(&mut self, offset: i64, length: i64) -> Result<bool, Fault> {
        let length = fault::offset(length, fault::EXCERPT_OUTSIDE)?;
        let width = 1 << form_of(length);
        let fixed = self.head.cid_bytes + HEAD_BYTES + width + self.ns_item.len();
        let end = self.filled.saturating_add(self.apart.bytes).saturating_add(fixed);
        let end = end.saturating_add(length);
        if end > self.out.len() {
            return Ok(false);
        }
        let offset = fault::offset(offset, fault::EXCERPT_OUTSIDE)?;
        if !self.data.has(offset, length) {
            return Err(fault::EXCERPT_OUTSIDE);
        }
        debug_assert!(self.index.checked_add(self.count as i64).is_some(), "indexes follow");
        let index = self.index.wrapping_add(self.count as i64);
        let payload = self.head.put(&mut self.out, self.filled, index, length)?;
        let mut ns = payload;
        if length >= self.apart_min.max(1) {
            let payload = self.data.part(offset, length).ok_or(fault::EXCERPT_OUTSIDE)?;
            self.apart.put(ns, payload)?;
        } else {
            ns += length;
            self.out.copy(payload, self.data, offset, length).ok_or(fault::POSITION_OUTSIDE)?;
        }
        self.out.put(ns, self.ns_item).ok_or(fault::POSITION_OUTSIDE)?;
        self.filled = ns + self.ns_item.len();
        self.count += 1;
        debug_assert_eq!(self.filled + self.apart.bytes, end, "a frame is as long as was reckoned");
        Ok(true)
    }
}

/// Finds the frames of one handler with consecutive indexes. The work can be interrupted.
pub struct Scan<'a> {
    data: Source<'a>,
    cid_document: &'a [u8],
    payload_max: i64,
    /// The offset behind the last frame.
    pub end: usize,
    /// The index of the first frame.
    pub index_first: i64,
    /// The nano time of the last frame.
    pub ns_last: i64,
    /// Where the payloads start.
    pub offsets: Vec<i64>,
    /// How long each payload is.
    pub lengths: Vec<i64>,
}

struct Frame {
    index: i64,
    payload: usize,
    length: usize,
    ns: i64,
    end: usize,
}

impl<'a> Scan<'a> {
    /// A scan of the frames that begin at `start`.
    pub fn new(
        data: Source<'a>,
        start: i64,
        cid_document: &'a [u8],
        payload_max: i64,
    ) -> Result<Self, Fault> {
        Ok(Scan {
            data,
            cid_document,
            payload_max,
            end: fault::offset(start, fault::POSITION_OUTSIDE)?,
            index_first: 0,
            ns_last: 0,
            offsets: Vec::new(),
            lengths: Vec::new(),
        })
    }

    /// Passes up to so many frames; false when the next bytes are no frame with the next index.
    pub fn step(&mut self, frames: usize) -> Result<bool, Fault> {
        for _ in 0..frames {
            let Some(frame) = self.frame() else {
                return Ok(false);
            };
            if self.offsets.is_empty() {
                self.index_first = frame.index;
            } else if self.index_first.checked_add(self.offsets.len() as i64) != Some(frame.index) {
                return Ok(false);
            }
            debug_assert!(self.end < frame.payload, "each frame is behind the one before");
            debug_assert!(frame.payload + frame.length < frame.end);
            debug_assert!(frame.end <= self.data.len());
            push(&mut self.offsets, frame.payload as i64)?;
            push(&mut self.lengths, frame.length as i64)?;
            self.ns_last = frame.ns;
            self.end = frame.end;
        }
        Ok(true)
    }

    /// The frame at `end`, if it is whole and of the usual shape.
    fn frame(&self) -> Option<Frame> {
        let head = self.end.checked_add(self.cid_document.len())?;
        let at = head.checked_add(HEAD_BYTES)?;
        if !self.data.holds(self.end, self.cid_document) {
            return None;
        }
        let [w0, w1, w2, w3, n0, n1, n2, block, i0, i1, i2, i3, code_index, index @ .., code] =
            self.data.read::<HEAD_BYTES>(head)?;
        // a length of more than one byte may be cut off, but 4 bytes stand there in any frame
        let long = u32::from_le_bytes(self.data.read(at)?);
        let inner = u64::from(u32::from_le_bytes([i0, i1, i2, i3]));
        let (width, length) = match code.checked_sub(BLOCK8)? {
            0 => (1, long & 0xFF),
            1 => (2, long & 0xFFFF),
            2 => (4, long),
            _ => return None,
        };
        let is_usual = u64::from(u32::from_le_bytes([w0, w1, w2, w3]))
            == inner + HEAD_BLOCK_BYTES - 4
            && [n0, n1, n2] == RE_NAME
            && block == BLOCK32
            && code_index == INT64_0X
            && inner
                == INDEX_ITEM_BYTES + 1 + width as u64 + u64::from(length) + NS_ITEM_BYTES as u64
            && i64::from(length) <= self.payload_max;
        if !is_usual {
            return None;
        }
        let length = usize::try_from(length).ok()?;
        let payload = at.checked_add(width)?;
        let ns_item = payload.checked_add(length)?;
        let [INT64, ns @ ..] = self.data.read::<NS_ITEM_BYTES>(ns_item)? else {
            return None;
        };
        Some(Frame {
            index: i64::from_le_bytes(index),
            payload,
            length,
            ns: i64::from_le_bytes(ns),
            end: ns_item + NS_ITEM_BYTES,
        })
    }
}
