//! Dates, times and decimals out of their texts, as far as they have the usual form. The reference
//! is `wire/objects/time_text.py` and `wire/objects/times.py`.

use crate::items::{Read, Unusual};

/// A column of decimals has so many places.
pub const DECIMAL_SCALE: u32 = 18;
/// The digits that all its values have at most, before and behind the point.
const DECIMAL_DIGITS: usize = 38;
const DAY_MICROS: i64 = 86_400_000_000;

struct Digits<'a>(&'a [u8]);

impl Digits<'_> {
    fn number(&mut self, count: usize) -> Read<i64> {
        let (digits, rest) = self.0.split_at_checked(count).ok_or(Unusual)?;
        self.0 = rest;
        digits.iter().try_fold(0, |value, digit| match digit {
            b'0'..=b'9' => Ok(value * 10 + i64::from(digit - b'0')),
            _ => Err(Unusual),
        })
    }

    fn sign(&mut self, wanted: u8) -> Read<()> {
        match self.0.split_first() {
            Some((&found, rest)) if found == wanted => {
                self.0 = rest;
                Ok(())
            }
            _ => Err(Unusual),
        }
    }

    fn date(&mut self) -> Read<i64> {
        let year = self.number(4)?;
        self.sign(b'-')?;
        let month = self.number(2)?;
        self.sign(b'-')?;
        let day = self.number(2)?;
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let last = match month {
            2 => 28 + i64::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return Err(Unusual),
        };
        // years near the limits of Python's types are for the plain codec
        if !(1000..=9000).contains(&year) || !(1..=last).contains(&day) {
            return Err(Unusual);
        }
        let (shifted, of_year) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let days = 365 * shifted + shifted / 4 - shifted / 100 + shifted / 400;
        Ok(days + (153 * of_year + 2) / 5 + day - 1 - 719_468)
    }

    fn time(&mut self) -> Read<i64> {
        let hour = self.number(2)?;
        self.sign(b':')?;
        let minute = self.number(2)?;
        let mut second = 0;
        let mut micros = 0;
        if self.sign(b':').is_ok() {
            second = self.number(2)?;
            if self.sign(b'.').is_ok() {
                micros = self.fraction()?;
            }
        }
        if hour > 23 || minute > 59 || second > 59 {
            return Err(Unusual);
        }
        Ok(((hour * 60 + minute) * 60 + second) * 1_000_000 + micros)
    }

    /// Microseconds; what is finer is unusual.
    fn fraction(&mut self) -> Read<i64> {
        let count = self.0.iter().take_while(|digit| digit.is_ascii_digit()).count();
        if !(1..=9).contains(&count) {
            return Err(Unusual);
        }
        let value = self.number(count)? * 10_i64.pow(9 - count as u32);
        if value % 1000 == 0 {
            Ok(value / 1000)
        } else {
            Err(Unusual)
        }
    }

    /// Microseconds that the local time is ahead of UTC.
    fn offset(&mut self) -> Read<i64> {
        if self.sign(b'Z').is_ok() {
            return Ok(0);
        }
        let ahead = if self.sign(b'+').is_ok() { 1 } else { -1 };
        if ahead < 0 {
            self.sign(b'-')?;
        }
        let hours = self.number(2)?;
        self.sign(b':')?;
        let minutes = self.number(2)?;
        if minutes > 59 || hours * 60 + minutes > 18 * 60 {
            return Err(Unusual);
        }
        Ok(ahead * (hours * 60 + minutes) * 60_000_000)
    }

    fn end(&self) -> Read<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Unusual)
        }
    }
}

/// Days since 1970 of a date.
pub fn epoch_day(text: &str) -> Read<i32> {
    let mut digits = Digits(text.as_bytes());
    let day = digits.date()?;
    digits.end()?;
    i32::try_from(day).map_err(|_| Unusual)
}

/// Microseconds since 1970 of a date and time, which is UTC where it has no offset.
pub fn epoch_micros(text: &str, has_offset: bool) -> Read<i64> {
    let mut digits = Digits(text.as_bytes());
    let day = digits.date()?;
    digits.sign(b'T')?;
    let time = digits.time()?;
    let ahead = if has_offset { digits.offset()? } else { 0 };
    digits.end()?;
    Ok(day * DAY_MICROS + time - ahead)
}

/// True for the spelling of a decimal that `wire` takes: digits, a point, an exponent.
pub fn is_decimal(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (rest.get(..at), rest.get(at + 1..)),
        None => (Some(rest), None),
    };
    let (whole, fraction) = match mantissa.unwrap_or("").split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (mantissa.unwrap_or(""), ""),
    };
    let is_digits = |part: &str| part.bytes().all(|digit| digit.is_ascii_digit());
    let is_exponent = exponent.is_none_or(|text| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        (1..=10).contains(&digits.len()) && is_digits(digits)
    });
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    has_digits && is_digits(whole) && is_digits(fraction) && is_exponent
}

/// A decimal times 10^18, without a loss; one with an exponent, or too long, is unusual.
pub fn scaled_decimal(text: &str) -> Read<i128> {
    if !is_decimal(text) || text.contains(['e', 'E']) {
        return Err(Unusual);
    }
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let fraction = fraction.trim_end_matches('0');
    let whole = whole.trim_start_matches('0');
    if fraction.len() > DECIMAL_SCALE as usize
        || whole.len() + DECIMAL_SCALE as usize > DECIMAL_DIGITS
    {
        return Err(Unusual);
    }
    let digits = whole.bytes().chain(fraction.bytes());
    let value = digits.fold(0_i128, |value, digit| value * 10 + i128::from(digit - b'0'));
    let value = value * 10_i128.pow(DECIMAL_SCALE - fraction.len() as u32);
    Ok(if text.starts_with('-') { -value } else { value })
}

/// A whole number times 10^18.
pub fn scaled_integer(value: i64) -> i128 {
    i128::from(value) * 10_i128.pow(DECIMAL_SCALE)
}
