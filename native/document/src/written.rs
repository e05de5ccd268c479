//! Items as Java's binary wire writes them. The reference is `wire/writer.py`, `wire/numbers.py` and
//! `wire/objects/body_writer.py`.

use crate::items::{code, plain_text, Read, Unusual};

const DECIMAL_UNITS: f64 = 1e6;
/// The decimals that are tried, in millionths; both limits are outside.
const DOUBLE_DECIMALS: (i64, i64) = (-(1 << 35), 1 << 42);
const FLOAT_DECIMALS: (i64, i64) = (-(1 << 14), 1 << 21);
const DECIMAL_STEPS: [(u8, i64, f64); 3] = [
    (code::FLOAT_STOP_2, 10_000, 100.0),
    (code::FLOAT_STOP_4, 100, 10_000.0),
    (code::FLOAT_STOP_6, 1, 1_000_000.0),
];
const LONG_LIMIT: f64 = 9_223_372_036_854_775_808.0;
const SHORT_TEXT_MAX: usize = 31;

fn put<const N: usize>(out: &mut Vec<u8>, code: u8, bytes: [u8; N]) {
    out.push(code);
    out.extend_from_slice(&bytes);
}

/// A number of as many bytes as it needs, seven bits in each.
pub fn stop_bit(out: &mut Vec<u8>, value: i64) {
    let is_negative = value < 0;
    let mut rest = if is_negative { !value } else { value };
    while rest > 0x7f {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    if is_negative {
        out.extend_from_slice(&[rest as u8 | 0x80, 0]);
    } else {
        out.push(rest as u8);
    }
}

/// A whole number, in the width that Java's writer picks for it.
pub fn whole(out: &mut Vec<u8>, value: i64) {
    match value {
        0..=0xff => put(out, code::UINT8, [value as u8]),
        0x100..=0x7fff => put(out, code::INT16, (value as i16).to_le_bytes()),
        0x8000..=0xffff => put(out, code::UINT16, (value as u16).to_le_bytes()),
        0x1_0000..=0x7fff_ffff => put(out, code::INT32, (value as i32).to_le_bytes()),
        0x8000_0000..=0xffff_ffff => put(out, code::UINT32, (value as u32).to_le_bytes()),
        -0x80..0 => put(out, code::INT8, (value as i8).to_le_bytes()),
        -0x8000..-0x80 => put(out, code::INT16, (value as i16).to_le_bytes()),
        -0x8000_0000..-0x8000 => put(out, code::INT32, (value as i32).to_le_bytes()),
        // the conversion back saturates, as Java's does
        _ if (value as f32) as i64 == value => {
            put(out, code::FLOAT32, (value as f32).to_le_bytes());
        }
        _ => put(out, code::INT64, value.to_le_bytes()),
    }
}

/// A double, as narrow as it goes out; NaN is unusual.
pub fn double(out: &mut Vec<u8>, value: f64) -> Read<()> {
    if value.is_nan() {
        return Err(Unusual);
    }
    if is_whole(value) {
        whole_float(out, value, -2_147_483_648.0);
    } else if !decimal(out, value, DOUBLE_DECIMALS, |number| number == value) {
        if f64::from(value as f32) == value {
            put(out, code::FLOAT32, (value as f32).to_le_bytes());
        } else {
            put(out, code::FLOAT64, value.to_le_bytes());
        }
    }
    Ok(())
}

/// The nearest 32-bit float, as narrow as it goes out; NaN is unusual.
pub fn single(out: &mut Vec<u8>, value: f64) -> Read<()> {
    if value.is_nan() {
        return Err(Unusual);
    }
    let float = value as f32;
    let value = f64::from(float);
    if is_whole(value) {
        whole_float(out, value, -32_768.0);
    } else if !decimal(out, value, FLOAT_DECIMALS, |number| number as f32 == float) {
        put(out, code::FLOAT32, float.to_le_bytes());
    }
    Ok(())
}

fn is_whole(value: f64) -> bool {
    (-LONG_LIMIT..=LONG_LIMIT).contains(&value) && value == value.trunc()
}

fn whole_float(out: &mut Vec<u8>, value: f64, negative_min: f64) {
    if (0.0..=255.0).contains(&value) {
        put(out, code::UINT8, [value as u8]);
    } else if (0.0..=65_535.0).contains(&value) {
        put(out, code::UINT16, (value as u16).to_le_bytes());
    } else if (-128.0..0.0).contains(&value) {
        put(out, code::INT8, (value as i8).to_le_bytes());
    } else if (-32_768.0..0.0).contains(&value) {
        put(out, code::INT16, (value as i16).to_le_bytes());
    } else if f64::from(value as f32) == value {
        put(out, code::FLOAT32, (value as f32).to_le_bytes());
    } else if (0.0..=4_294_967_295.0).contains(&value) {
        put(out, code::UINT32, (value as u32).to_le_bytes());
    } else if (negative_min..0.0).contains(&value) {
        put(out, code::INT32, (value as i32).to_le_bytes());
    } else {
        put(out, code::FLOAT64, value.to_le_bytes());
    }
}

/// The number with 2, 4 or 6 places, where one of them is the same; false where none is.
fn decimal(
    out: &mut Vec<u8>,
    value: f64,
    limits: (i64, i64),
    is_same: impl Fn(f64) -> bool,
) -> bool {
    let scaled = value * DECIMAL_UNITS;
    if !((limits.0 - 1) as f64..(limits.1 + 1) as f64).contains(&scaled) {
        return false;
    }
    let below = scaled.floor();
    let units = below as i64 + i64::from(scaled - below >= 0.5);
    if units <= limits.0 || units >= limits.1 || !is_same(units as f64 / DECIMAL_UNITS) {
        return false;
    }
    for (code, divisor, scale) in DECIMAL_STEPS {
        let number = units / divisor;
        if is_same(number as f64 / scale) {
            out.push(code);
            stop_bit(out, number);
            return true;
        }
    }
    false
}

/// A text; one that Java encodes otherwise than UTF-8 is unusual.
pub fn text(out: &mut Vec<u8>, text: &str) -> Read<()> {
    plain_text(text.as_bytes())?;
    match u8::try_from(text.len()) {
        Ok(length) if text.len() <= SHORT_TEXT_MAX => out.push(code::STRING0 + length),
        _ => length(out, code::STRING_ANY, text.len())?,
    }
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// A code and a length.
pub fn length(out: &mut Vec<u8>, code: u8, length: usize) -> Read<()> {
    out.push(code);
    stop_bit(out, i64::try_from(length).map_err(|_| Unusual)?);
    Ok(())
}

/// Bytes that say that they are bytes.
pub fn bytes(out: &mut Vec<u8>, payload: &[u8]) -> Read<()> {
    let length = payload.len() + 1;
    if let Ok(length) = u8::try_from(length) {
        put(out, code::BYTES_LENGTH8, [length]);
    } else if let Ok(length) = u16::try_from(length) {
        put(out, code::BYTES_LENGTH16, length.to_le_bytes());
    } else {
        let length = u32::try_from(length).map_err(|_| Unusual)?;
        put(out, code::BYTES_LENGTH32, length.to_le_bytes());
    }
    out.push(code::U8_ARRAY);
    out.extend_from_slice(payload);
    Ok(())
}

/// A date or a time, in the form of Java's text.
pub fn time(out: &mut Vec<u8>, code: u8, text: &str) -> Read<()> {
    length(out, code, text.len())?;
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// A UUID in the order of its text.
pub fn uuid(out: &mut Vec<u8>, value: u128) {
    out.push(code::UUID);
    out.extend_from_slice(&((value >> 64) as u64).to_le_bytes());
    out.extend_from_slice(&(value as u64).to_le_bytes());
}

/// A block, which `write` fills.
pub fn block<E: From<Unusual>>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    put(out, code::BYTES_LENGTH32, [0; 4]);
    let start = out.len();
    write(out)?;
    let length = u32::try_from(out.len() - start).map_err(|_| Unusual)?;
    let head = out.get_mut(start - 4..start).ok_or(Unusual)?;
    head.copy_from_slice(&length.to_le_bytes());
    Ok(())
}
