//! The items of a document body: codes and their operands. The reference is `wire/reader.py`.

/// The document, or this part of it, is for the plain codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unusual;

/// A result of reading.
pub type Read<T> = Result<T, Unusual>;

/// Values are nested so deep at most.
pub const NESTING_MAX: usize = 64;

/// The codes of items, as `wire/codes.py` names them.
#[allow(missing_docs)]
pub mod code {
    pub const BYTES_LENGTH8: u8 = 0x80;
    pub const BYTES_LENGTH16: u8 = 0x81;
    pub const BYTES_LENGTH32: u8 = 0x82;
    pub const HISTORY_MESSAGE: u8 = 0x86;
    pub const U8_ARRAY: u8 = 0x8a;
    pub const I64_ARRAY: u8 = 0x8d;
    pub const PADDING32: u8 = 0x8e;
    pub const PADDING: u8 = 0x8f;
    pub const FLOAT32: u8 = 0x90;
    pub const FLOAT64: u8 = 0x91;
    pub const FLOAT_STOP_2: u8 = 0x92;
    pub const FLOAT_STOP_4: u8 = 0x94;
    pub const FLOAT_STOP_6: u8 = 0x96;
    pub const FLOAT_SET_LOW_0: u8 = 0x9a;
    pub const FLOAT_SET_LOW_4: u8 = 0x9c;
    pub const UUID: u8 = 0xa0;
    pub const UINT8: u8 = 0xa1;
    pub const UINT16: u8 = 0xa2;
    pub const UINT32: u8 = 0xa3;
    pub const INT8: u8 = 0xa4;
    pub const INT16: u8 = 0xa5;
    pub const INT32: u8 = 0xa6;
    pub const INT64: u8 = 0xa7;
    pub const SET_LOW_INT8: u8 = 0xa8;
    pub const SET_LOW_INT16: u8 = 0xa9;
    pub const INT64_0X: u8 = 0xaf;
    pub const FALSE: u8 = 0xb0;
    pub const TRUE: u8 = 0xb1;
    pub const TIME: u8 = 0xb2;
    pub const DATE: u8 = 0xb3;
    pub const DATE_TIME: u8 = 0xb4;
    pub const ZONED_DATE_TIME: u8 = 0xb5;
    pub const TYPE_PREFIX: u8 = 0xb6;
    pub const FIELD_NAME_ANY: u8 = 0xb7;
    pub const STRING_ANY: u8 = 0xb8;
    pub const EVENT_NAME: u8 = 0xb9;
    pub const FIELD_NUMBER: u8 = 0xba;
    pub const NULL: u8 = 0xbb;
    pub const TYPE_LITERAL: u8 = 0xbc;
    pub const EVENT_OBJECT: u8 = 0xbd;
    pub const COMMENT: u8 = 0xbe;
    pub const FIELD_NAME0: u8 = 0xc0;
    pub const STRING0: u8 = 0xe0;
}

/// A number as its code has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(i64),
    /// A floating-point number, or a decimal with a scale.
    Float(f64),
}

/// What is left of a body or of a block.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    rest: &'a [u8],
    /// Comments and padding are unusual.
    has_no_filler: bool,
}

impl<'a> Body<'a> {
    /// All of these bytes.
    pub fn new(data: &'a [u8]) -> Self {
        Body { rest: data, has_no_filler: false }
    }

    /// The same, without comments and padding.
    pub fn without_filler(self) -> Self {
        Body { has_no_filler: true, ..self }
    }

    /// The bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The byte that stands next, filler too; nothing at the end.
    pub fn raw_first(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The code of the next item behind padding and comments; nothing at the end.
    #[inline]
    pub fn code(&mut self) -> Read<Option<u8>> {
        loop {
            let Some(&first) = self.rest.first() else { return Ok(None) };
            match first {
                code::PADDING | code::PADDING32 | code::COMMENT if self.has_no_filler => {
                    return Err(Unusual);
                }
                code::PADDING => {
                    self.take(1)?;
                }
                code::PADDING32 => {
                    self.take(1)?;
                    let length = self.u32()?;
                    self.take(length as usize)?;
                }
                code::COMMENT => {
                    self.take(1)?;
                    let length = self.length()?;
                    self.take(length)?;
                }
                _ => return Ok(Some(first)),
            }
        }
    }

    /// The code of the value that must stand next.
    #[inline]
    pub fn value_code(&mut self) -> Read<u8> {
        self.code()?.ok_or(Unusual)
    }

    /// Steps over one byte: a code that was looked at.
    #[inline]
    pub fn pass_code(&mut self) -> Read<()> {
        self.take(1).map(|_| ())
    }

    /// The next bytes.
    #[inline]
    pub fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Unusual)?;
        self.rest = rest;
        Ok(taken)
    }

    /// So many bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Unusual)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Four bytes as a number.
    pub fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of as many bytes as it needs, seven bits in each.
    #[inline]
    pub fn stop_bit(&mut self) -> Read<i64> {
        let mut value: u64 = 0;
        for group in 0..10u32 {
            let [byte] = self.array()?;
            if byte & 0x80 != 0 {
                if group == 9 {
                    break;
                }
                value |= u64::from(byte & 0x7f) << (7 * group);
            } else if byte == 0 && group > 0 {
                return Ok(!(value as i64));
            } else if group >= 9 {
                break;
            } else {
                return Ok((value | u64::from(byte) << (7 * group)) as i64);
            }
        }
        Err(Unusual)
    }

    /// A length; a negative one is unusual.
    #[inline]
    fn length(&mut self) -> Read<usize> {
        usize::try_from(self.stop_bit()?).map_err(|_| Unusual)
    }

    /// True where a field or event name, a number or an object as a name stands next.
    #[inline]
    pub fn is_map(&mut self) -> Read<bool> {
        Ok(matches!(
            self.code()?,
            Some(
                code::FIELD_NAME0
                    ..code::STRING0
                        | code::FIELD_NAME_ANY
                        | code::EVENT_NAME
                        | code::FIELD_NUMBER
                        | code::EVENT_OBJECT
            )
        ))
    }

    /// The bytes of the name that stands next, each a character; numbers and objects are unusual.
    #[inline]
    pub fn name(&mut self) -> Read<&'a [u8]> {
        let code = self.value_code()?;
        match code {
            code::FIELD_NAME0..code::STRING0 => {
                self.take(1)?;
                self.take(usize::from(code - code::FIELD_NAME0))
            }
            code::FIELD_NAME_ANY | code::EVENT_NAME => {
                self.take(1)?;
                let length = self.length()?;
                self.take(length)
            }
            _ => Err(Unusual),
        }
    }

    /// The number that a name is.
    pub fn name_number(&mut self) -> Read<i64> {
        self.take(1)?;
        self.stop_bit()
    }

    /// A number of any code.
    #[inline]
    pub fn number(&mut self) -> Read<Number> {
        let code = self.value_code()?;
        self.take(1)?;
        Ok(match code {
            0..code::BYTES_LENGTH8 => Number::Whole(i64::from(code)),
            code::UINT8 | code::SET_LOW_INT8 => {
                Number::Whole(i64::from(u8::from_le_bytes(self.array()?)))
            }
            code::UINT16 | code::SET_LOW_INT16 => {
                Number::Whole(i64::from(u16::from_le_bytes(self.array()?)))
            }
            code::UINT32 => Number::Whole(i64::from(u32::from_le_bytes(self.array()?))),
            code::INT8 => Number::Whole(i64::from(i8::from_le_bytes(self.array()?))),
            code::INT16 => Number::Whole(i64::from(i16::from_le_bytes(self.array()?))),
            code::INT32 => Number::Whole(i64::from(i32::from_le_bytes(self.array()?))),
            code::INT64 | code::INT64_0X => Number::Whole(i64::from_le_bytes(self.array()?)),
            code::FLOAT32 => Number::Float(f64::from(f32::from_le_bytes(self.array()?))),
            code::FLOAT64 => Number::Float(f64::from_le_bytes(self.array()?)),
            code::FLOAT_STOP_2 => Number::Float(self.stop_bit()? as f64 / 100.0),
            code::FLOAT_STOP_4 => Number::Float(self.stop_bit()? as f64 / 10_000.0),
            code::FLOAT_STOP_6 => Number::Float(self.stop_bit()? as f64 / 1_000_000.0),
            _ => return Err(Unusual),
        })
    }

    /// A whole number of which nothing is lost; what is not of 64 bits is unusual.
    #[inline]
    pub fn integer(&mut self) -> Read<i64> {
        match self.number()? {
            Number::Whole(value) => Ok(value),
            // 2^63 and beyond are for the plain codec, which bends the first one
            Number::Float(value) if value.trunc() == value && value.abs() < 9.2e18 => {
                Ok(value as i64)
            }
            Number::Float(_) => Err(Unusual),
        }
    }

    /// A number as a double.
    #[inline]
    pub fn float(&mut self) -> Read<f64> {
        Ok(match self.number()? {
            Number::Whole(value) => value as f64,
            Number::Float(value) => value,
        })
    }

    /// True or false.
    #[inline]
    pub fn boolean(&mut self) -> Read<bool> {
        let code = self.value_code()?;
        self.take(1)?;
        match code {
            code::TRUE => Ok(true),
            code::FALSE => Ok(false),
            _ => Err(Unusual),
        }
    }

    /// A text that was written as text; null and text that is not plain UTF-8 are unusual.
    #[inline]
    pub fn text(&mut self) -> Read<&'a str> {
        let code = self.value_code()?;
        self.take(1)?;
        match code {
            code::STRING0..=0xff => plain_text(self.take(usize::from(code - code::STRING0))?),
            code::STRING_ANY => self.prefixed_text(),
            _ => Err(Unusual),
        }
    }

    /// The text behind the length that stands next.
    #[inline]
    pub fn prefixed_text(&mut self) -> Read<&'a str> {
        let length = self.length()?;
        plain_text(self.take(length)?)
    }

    /// The content of the block that stands next.
    #[inline]
    pub fn block(&mut self) -> Read<Body<'a>> {
        let code = self.value_code()?;
        self.take(1)?;
        let length = match code {
            code::BYTES_LENGTH8 => usize::from(u8::from_le_bytes(self.array()?)),
            code::BYTES_LENGTH16 => usize::from(u16::from_le_bytes(self.array()?)),
            code::BYTES_LENGTH32 => self.u32()? as usize,
            _ => return Err(Unusual),
        };
        let has_no_filler = self.has_no_filler;
        self.take(length).map(|rest| Body { rest, has_no_filler })
    }

    /// The content of a block whose code was stepped over; at the end of a block a length of one
    /// byte is 0, as the text of documents has it.
    pub fn block_behind(&mut self, code: u8) -> Read<Body<'a>> {
        let length = match code {
            code::BYTES_LENGTH8 if self.rest.is_empty() => 0,
            code::BYTES_LENGTH8 => usize::from(u8::from_le_bytes(self.array()?)),
            code::BYTES_LENGTH16 => usize::from(u16::from_le_bytes(self.array()?)),
            _ => self.u32()? as usize,
        };
        let has_no_filler = self.has_no_filler;
        self.take(length).map(|rest| Body { rest, has_no_filler })
    }

    /// The bytes of a block that says that it holds bytes.
    pub fn bytes(&mut self) -> Read<&'a [u8]> {
        let block = self.block()?;
        match block.rest.split_first() {
            Some((&code::U8_ARRAY, bytes)) => Ok(bytes),
            _ => Err(Unusual),
        }
    }

    /// A UUID in the order of its text.
    pub fn uuid(&mut self) -> Read<u128> {
        if self.value_code()? != code::UUID {
            return Err(Unusual);
        }
        self.take(1)?;
        let high = u64::from_le_bytes(self.array()?);
        let low = u64::from_le_bytes(self.array()?);
        Ok(u128::from(high) << 64 | u128::from(low))
    }

    /// Steps over the next value as a whole, with its types; looks into nothing.
    pub fn step_over(&mut self) -> Read<()> {
        let mut code = self.value_code()?;
        match code {
            code::U8_ARRAY => {
                self.rest = &[];
                return Ok(());
            }
            code::FLOAT_SET_LOW_0..=code::FLOAT_SET_LOW_4 => return self.take(2).map(|_| ()),
            _ => {}
        }
        self.take(1)?;
        while code == code::TYPE_PREFIX {
            let length = self.length()?;
            self.take(length)?;
            code = self.value_code()?;
            self.take(1)?;
        }
        let length = match code {
            0..code::BYTES_LENGTH8 | code::NULL | code::TRUE | code::FALSE => 0,
            code::STRING0..=0xff => usize::from(code - code::STRING0),
            code::BYTES_LENGTH8 => usize::from(u8::from_le_bytes(self.array()?)),
            code::BYTES_LENGTH16 => usize::from(u16::from_le_bytes(self.array()?)),
            code::BYTES_LENGTH32 => self.u32()? as usize,
            code::UINT8 | code::INT8 | code::SET_LOW_INT8 => 1,
            code::UINT16 | code::INT16 | code::SET_LOW_INT16 => 2,
            code::UINT32 | code::INT32 | code::FLOAT32 => 4,
            code::INT64 | code::INT64_0X | code::FLOAT64 => 8,
            code::UUID => 16,
            code::FLOAT_STOP_2 | code::FLOAT_STOP_4 | code::FLOAT_STOP_6 => {
                self.stop_bit()?;
                0
            }
            code::TIME | code::DATE | code::DATE_TIME | code::ZONED_DATE_TIME => self.length()?,
            code::STRING_ANY | code::TYPE_LITERAL => match self.stop_bit()? {
                -1 => 0,
                length => usize::try_from(length).map_err(|_| Unusual)?,
            },
            _ => return Err(Unusual), // an array in place, too: the plain codec knows its size
        };
        self.take(length).map(|_| ())
    }
}

/// The text in these bytes, where Java's encoding of it is that of UTF-8: no half characters, none
/// beyond the basic plane, no zero in two bytes.
#[inline]
pub fn plain_text(bytes: &[u8]) -> Read<&str> {
    let text = std::str::from_utf8(bytes).map_err(|_| Unusual)?;
    if !bytes.is_ascii() && bytes.iter().any(|&byte| byte >= 0xf0) {
        return Err(Unusual);
    }
    Ok(text)
}

/// True for whole documents with their headers, which are no body: `wire.header.is_framed`.
pub fn is_framed(data: &[u8]) -> bool {
    let mut rest = data;
    while let Some((head, behind)) = rest.split_first_chunk::<4>() {
        let word = u32::from_le_bytes(*head);
        if word == 0 || word & 0x8000_0000 != 0 {
            return false;
        }
        match behind.get((word & 0x3fff_ffff) as usize..) {
            Some(next) => rest = next,
            None => return false,
        }
    }
    rest.is_empty() && !data.is_empty()
}
