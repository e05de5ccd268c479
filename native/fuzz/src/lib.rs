//! The inputs of the targets: numbers and buffers that mean harm, made of what the fuzzer gives.
//!
//! Each buffer is an allocation of its own and of its exact size, so that the address sanitizer
//! sees the first byte that is touched outside.

pub mod files;

use arbitrary::{Arbitrary, Result, Unstructured};

/// A number as callers could pass it: mostly near small buffers, at times where sums overflow.
#[derive(Clone, Copy, Debug)]
pub struct Number(pub i64);

impl<'a> Arbitrary<'a> for Number {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Number(match input.int_in_range(0..=15_u8)? {
            0 => i64::MAX - i64::from(u8::arbitrary(input)?),
            1 => i64::MIN + i64::from(u8::arbitrary(input)?),
            2 => i64::arbitrary(input)?,
            3 => i64::from(i8::arbitrary(input)?),
            4 => i64::from(u16::arbitrary(input)?),
            5 => 1 << input.int_in_range(0..=62)?,
            _ => i64::from(u8::arbitrary(input)?),
        }))
    }
}

/// A batch: bytes, and two arrays that may or may not name parts of these bytes.
#[derive(Debug)]
pub struct Batch {
    /// The bytes that the payloads are in.
    pub data: Box<[u8]>,
    /// Where each payload starts.
    pub offsets: Box<[i64]>,
    /// How long each payload is.
    pub lengths: Box<[i64]>,
}

impl<'a> Arbitrary<'a> for Batch {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        let data: Box<[u8]> = Arbitrary::arbitrary(input)?;
        let numbers = |input: &mut Unstructured<'a>| -> Result<Box<[i64]>> {
            Ok(Vec::<Number>::arbitrary(input)?.into_iter().map(|number| number.0).collect())
        };
        if input.ratio(1, 4)? {
            return Ok(Batch { data, offsets: numbers(input)?, lengths: numbers(input)? });
        }
        // this is a batch as it should be
        let places = input.int_in_range(0..=40)?;
        let (mut offsets, mut lengths) = (Vec::new(), Vec::new());
        for _ in 0..places {
            let offset = input.int_in_range(0..=data.len())?;
            lengths.push(input.int_in_range(0..=data.len() - offset)? as i64);
            offsets.push(offset as i64);
        }
        Ok(Batch { data, offsets: offsets.into(), lengths: lengths.into() })
    }
}

impl Batch {
    /// The payload at that place, if it lies within the data.
    pub fn payload(&self, nth: usize) -> Option<&[u8]> {
        let offset = usize::try_from(*self.offsets.get(nth)?).ok()?;
        let length = usize::try_from(*self.lengths.get(nth)?).ok()?;
        if length == 0 {
            return Some(&[]);
        }
        self.data.get(offset..)?.get(..length)
    }
}

/// Bytes that are all the same, as many as the fuzzer chooses.
#[derive(Debug)]
pub struct Room(pub Box<[u8]>);

/// What stands in a `Room` that was never written to.
pub const NOISE: u8 = 0xEE;

impl<'a> Arbitrary<'a> for Room {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        let length = input.int_in_range(0..=4096_usize)?;
        Ok(Room(vec![NOISE; length].into()))
    }
}

/// Documents of a store file: headers of all kinds, most with the bytes that they tell of.
#[derive(Debug)]
pub struct Store(pub Box<[u8]>);

impl<'a> Arbitrary<'a> for Store {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        let mut bytes = Vec::new();
        for _ in 0..input.int_in_range(0..=24_u8)? {
            let length = u32::from(u8::arbitrary(input)?);
            let word = match input.int_in_range(0..=9_u8)? {
                0 => u32::arbitrary(input)?,
                1 => 0xC000_0000,
                2 => 0x8000_0000 | length,
                3 => 0,
                4 => 0x4000_0000 | length,
                _ => length,
            };
            bytes.extend_from_slice(&word.to_le_bytes());
            let body = if input.ratio(1, 8)? { input.int_in_range(0..=300_u32)? } else { length };
            bytes.resize(bytes.len() + body as usize, NOISE);
            if input.ratio(7, 8)? {
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
        }
        Ok(Store(bytes.into()))
    }
}
