//! The spelling of scalars in the text of documents. The reference is `wire/text/print_scalars.py`,
//! `wire/objects/float_text.py` and `wire/objects/time_text.py`.

use crate::items::{code, Read, Unusual};

const INT_MAX: f64 = 2_147_483_647.0;
const MOST_DECIMALS: i32 = 18;
const EXACT_BELOW: f64 = 1e15;
/// Only the text of a number with at least so many digits can be half-way between two.
const TIE_DIGITS: usize = 15;
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const ZONE_SECONDS_MAX: u32 = 18 * 3600;

/// Text in the quotes that Java gives it, its characters escaped.
pub fn quote(out: &mut String, text: &str) {
    if !needs_double_quotes(text) {
        match text.contains('"') && !text.contains('\'') {
            true => {
                out.push('\'');
                out.push_str(text);
                out.push('\'');
            }
            false => out.push_str(text),
        }
        return;
    }
    out.push('"');
    for char in text.chars() {
        escape(out, char);
    }
    out.push('"');
}

/// The same for bytes each of which is a character.
pub fn quote_latin(out: &mut String, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.is_ascii() => quote(out, text),
        _ => quote(out, &bytes.iter().copied().map(char::from).collect::<String>()),
    }
}

fn needs_double_quotes(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some(first) = bytes.first() else { return true };
    if matches!(first, b'%' | b'*' | b'&' | b'@' | b'`' | b'0'..=b'9' | b'+' | b'-' | b' ' | b'\'')
        || matches!(first, b'!' | b']')
        || bytes.last() == Some(&b' ')
    {
        return true;
    }
    let is_marked = |byte: &u8| {
        matches!(
            byte,
            b'?' | b',' | b'#' | b':' | b'{' | b'}' | b'[' | b']' | b'|' | b'>' | b'\\' | b'^'
        ) || *byte < 0x20
            || *byte >= 0x80
    };
    bytes.iter().any(is_marked) || bytes.windows(2).any(|pair| pair == b"\"'")
}

fn escape(out: &mut String, char: char) {
    let short = match char {
        '\0' => "\\0",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\x0b' => "\\v",
        '\x0c' => "\\f",
        '\r' => "\\r",
        '\x1b' => "\\e",
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{85}' => "\\N",
        '\u{a0}' => "\\_",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        ' '..='\x7f' => return out.push(char),
        _ if char <= '\u{ff}' => return out.push_str(&format!("\\x{:02X}", u32::from(char))),
        _ => {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04X}"));
            }
            return;
        }
    };
    out.push_str(short);
}

/// Text that Java copies without escapes, byte by byte.
pub fn copy_bytes(out: &mut String, text: &str) {
    match text.is_ascii() {
        true => out.push_str(text),
        false => out.extend(text.bytes().map(char::from)),
    }
}

/// Raw bytes: as text where they look like it, else in Base64.
pub fn payload(out: &mut String, bytes: &[u8]) {
    let is_text = bytes.iter().all(|byte| matches!(byte, 0x0a | 0x20..=0x7f));
    if is_text || bytes.iter().all(|byte| matches!(byte, 0x09 | 0x20..=0x7e)) {
        return quote_latin(out, bytes);
    }
    out.push_str("!!binary ");
    base64(out, bytes);
}

/// Base64 with its padding.
pub fn base64(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.chunks(3) {
        let at = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let sixth = (bits >> (18 - 6 * place)) & 63;
            let char = BASE64.get(sixth as usize).copied().unwrap_or(b'=');
            out.push(if place > chunk.len() as u32 { '=' } else { char::from(char) });
        }
    }
}

/// A whole number.
pub fn whole(out: &mut String, value: i64) {
    if value < 0 {
        out.push('-');
    }
    natural(out, value.unsigned_abs());
}

/// A whole number without a sign.
pub fn natural(out: &mut String, mut value: u64) {
    let mut digits = [0_u8; 20];
    let mut count = 0;
    for place in digits.iter_mut().rev() {
        *place = b'0' + (value % 10) as u8;
        count += 1;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    let text = digits.get(digits.len() - count..).unwrap_or(&[]);
    out.extend(text.iter().copied().map(char::from));
}

/// A double as Java's text wire prints it.
pub fn float(out: &mut String, value: f64) {
    let size = value.abs();
    if value.is_nan() {
        return out.push_str("NaN");
    }
    if value < 0.0 || (size == 0.0 && value.is_sign_negative()) {
        out.push('-');
    }
    if size.is_infinite() {
        return out.push_str("Infinity");
    }
    if size == 0.0 {
        return out.push_str("0.0");
    }
    if !(1e-7..1e15).contains(&size) {
        return java_double(out, size);
    }
    for (unit, exponent) in [(1e6, "E6"), (1e3, "E3")] {
        let count = (size / unit).trunc();
        if count.min(INT_MAX) * unit == size {
            natural(out, count as u64);
            return out.push_str(exponent);
        }
    }
    if size < 1e-3 {
        return small(out, size, value < 0.0);
    }
    plain(out, size);
}

/// Below a thousandth. Rounding is half up of the number with its sign, as the reference has it.
fn small(out: &mut String, size: f64, is_negative: bool) {
    let sign = if is_negative { -1.0 } else { 1.0 };
    let scaled = (round_half_up(sign * size * 1e16) / 1e9).abs();
    for (limit, divisor, exponent) in
        [(10.0, 1.0, "E-7"), (100.0, 10.0, "E-6"), (1000.0, 100.0, "E-5"), (1e4, 1000.0, "E-4")]
    {
        if scaled < limit {
            plain(out, scaled / divisor);
            return out.push_str(exponent);
        }
    }
    plain(out, scaled / 10_000.0);
    out.push_str("E-3");
}

fn round_half_up(value: f64) -> f64 {
    let below = value.floor();
    below + if value - below >= 0.5 { 1.0 } else { 0.0 }
}

fn plain(out: &mut String, size: f64) {
    let mut power = 1.0;
    for decimals in 0..=MOST_DECIMALS {
        let digits = round_half_up(size * power);
        if digits / power == size {
            let mut text = String::new();
            natural(&mut text, digits as u64);
            return pointed(out, &text, decimals);
        }
        if digits >= EXACT_BELOW {
            break;
        }
        power *= 10.0;
    }
    shortest_plain(out, size);
}

/// Digits of which so many stand behind the point, at least one on each side.
fn pointed(out: &mut String, digits: &str, decimals: i32) {
    let decimals = usize::try_from(decimals).unwrap_or(0);
    let before = digits.len().saturating_sub(decimals);
    out.push_str(if before == 0 { "0" } else { digits.get(..before).unwrap_or("0") });
    out.push('.');
    for _ in digits.len()..decimals {
        out.push('0');
    }
    let behind = digits.get(before..).unwrap_or("");
    out.push_str(if decimals == 0 { "0" } else { behind });
}

/// Digits d1 d2 ... and an exponent e: the number is 0.d1d2... * 10^e, and no shorter one is it.
fn shortest_digits(size: f64) -> (String, i32) {
    let mut text = format!("{size:e}");
    if text.len() > TIE_DIGITS {
        // of two that are as short and as near, the even one, as Python has it
        let places = text.bytes().filter(u8::is_ascii_digit).count();
        let exponent_places = text
            .split_once('e')
            .map_or(0, |(_, part)| part.bytes().filter(u8::is_ascii_digit).count());
        let even = format!("{size:.*e}", (places - exponent_places).saturating_sub(1));
        if even.parse::<f64>() == Ok(size) {
            text = even;
        }
    }
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits: String = mantissa.chars().filter(|char| *char != '.').collect();
    let digits = digits.trim_end_matches('0').to_owned();
    (digits, exponent.parse::<i32>().unwrap_or(0) + 1)
}

fn shortest_plain(out: &mut String, size: f64) {
    let (digits, exponent) = shortest_digits(size);
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    if exponent < count {
        return pointed(out, &digits, count - exponent);
    }
    out.push_str(&digits);
    for _ in count..exponent {
        out.push('0');
    }
    out.push_str(".0");
}

fn java_double(out: &mut String, size: f64) {
    let (digits, exponent) = shortest_digits(size);
    let (first, rest) = digits.split_at_checked(1).unwrap_or(("0", ""));
    out.push_str(first);
    out.push('.');
    out.push_str(if rest.is_empty() { "0" } else { rest });
    out.push('E');
    whole(out, i64::from(exponent) - 1);
}

/// A double as Python's `repr` spells it, one that is finite.
pub fn python_float(out: &mut String, value: f64) {
    let size = value.abs();
    if value.is_sign_negative() {
        out.push('-');
    }
    if size == 0.0 {
        return out.push_str("0.0");
    }
    if (1e-4..1e16).contains(&size) {
        return shortest_plain(out, size);
    }
    let (digits, exponent) = shortest_digits(size);
    let (first, rest) = digits.split_at_checked(1).unwrap_or(("0", ""));
    out.push_str(first);
    if !rest.is_empty() {
        out.push('.');
        out.push_str(rest);
    }
    let exponent = exponent - 1;
    out.push_str(if exponent < 0 { "e-" } else { "e+" });
    if exponent.abs() < 10 {
        out.push('0');
    }
    whole(out, i64::from(exponent.abs()));
}

/// The parts of a date or time of the usual form, each checked.
#[derive(Debug, Default, Clone, Copy)]
pub struct Moment<'a> {
    date: Option<&'a str>,
    hour_minute: Option<&'a str>,
    second: &'a str,
    /// Without the zeros at its end, three at a time.
    nanos: [u8; 9],
    nanos_count: usize,
    /// Sign, hours and minutes; nothing for UTC.
    offset: Option<&'a str>,
    offset_second: &'a str,
    has_zone: bool,
    region: Option<&'a str>,
}

impl<'a> Moment<'a> {
    /// Of a text behind the code of a time.
    pub fn read(code: u8, text: &'a str) -> Read<Self> {
        let mut found = Moment::default();
        let mut rest = text;
        if code != code::TIME {
            let date = taken(&mut rest, 10)?;
            check_date(date)?;
            found.date = Some(date);
        }
        if matches!(code, code::DATE_TIME | code::ZONED_DATE_TIME) {
            rest = rest.strip_prefix('T').ok_or(Unusual)?;
        }
        if code != code::DATE {
            found.read_time(&mut rest)?;
        }
        if code == code::ZONED_DATE_TIME {
            found.read_zone(&mut rest)?;
        }
        if rest.is_empty() {
            Ok(found)
        } else {
            Err(Unusual)
        }
    }

    fn read_time(&mut self, rest: &mut &'a str) -> Read<()> {
        let hour_minute = taken(rest, 5)?;
        let (hour, minute) = hour_minute.split_once(':').ok_or(Unusual)?;
        if two_digits(hour)? > 23 || two_digits(minute)? > 59 {
            return Err(Unusual);
        }
        self.hour_minute = Some(hour_minute);
        let Some(behind) = rest.strip_prefix(':') else { return Ok(()) };
        *rest = behind;
        self.second = taken(rest, 2)?;
        if two_digits(self.second)? > 59 {
            return Err(Unusual);
        }
        let Some(behind) = rest.strip_prefix('.') else { return Ok(()) };
        let count = behind.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, behind) = behind.split_at_checked(count).ok_or(Unusual)?;
        if digits.len() > self.nanos.len() {
            return Err(Unusual);
        }
        *rest = behind;
        self.nanos = [b'0'; 9];
        self.nanos.iter_mut().zip(digits.bytes()).for_each(|(place, digit)| *place = digit);
        self.nanos_count = 9;
        while self.nanos.get(..self.nanos_count).is_some_and(|kept| kept.ends_with(b"000")) {
            self.nanos_count -= 3;
        }
        Ok(())
    }

    fn read_zone(&mut self, rest: &mut &'a str) -> Read<()> {
        self.has_zone = true;
        if let Some(behind) = rest.strip_prefix('Z') {
            *rest = behind;
        } else {
            let offset = taken(rest, 6)?;
            if !offset.starts_with(['+', '-']) {
                return Err(Unusual);
            }
            let (hours, minutes) =
                offset.get(1..).and_then(|part| part.split_once(':')).ok_or(Unusual)?;
            let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
            let mut seconds = 0;
            if let Some(behind) = rest.strip_prefix(':') {
                *rest = behind;
                let second = taken(rest, 2)?;
                seconds = two_digits(second)?;
                if seconds > 0 {
                    self.offset_second = second;
                }
            }
            let total = hours * 3600 + minutes * 60 + seconds;
            if total > 0 {
                self.offset = Some(offset);
            }
            if minutes > 59 || seconds > 59 || total > ZONE_SECONDS_MAX {
                return Err(Unusual);
            }
        }
        if let Some(region) = rest.strip_prefix('[').and_then(|part| part.strip_suffix(']')) {
            let is_sign = |byte: u8| b"~/._+:-".contains(&byte);
            let is_region =
                region.bytes().all(|byte| byte.is_ascii_alphanumeric() || is_sign(byte));
            if !is_region || !region.starts_with(|char: char| char.is_ascii_alphabetic()) {
                return Err(Unusual);
            }
            self.region = Some(region);
            *rest = "";
        }
        Ok(())
    }

    fn nanos(&self) -> &[u8] {
        self.nanos.get(..self.nanos_count).unwrap_or(&[])
    }

    /// As Java's `toString` prints it; with a region in quotes.
    pub fn java(&self, out: &mut String) {
        if self.region.is_some() {
            out.push('"');
        }
        self.begin(out);
        let has_seconds = !self.nanos().is_empty() || !matches!(self.second, "" | "00");
        if self.hour_minute.is_some() && has_seconds {
            out.push(':');
            out.push_str(self.second);
            self.fraction(out, self.nanos_count);
        }
        if self.has_zone && self.offset.is_none() {
            out.push('Z');
        }
        self.end(out);
        if let Some(region) = self.region {
            out.push('[');
            out.push_str(region);
            out.push_str("]\"");
        }
    }

    /// As Python's `isoformat` prints it; what Python has no type for is unusual.
    pub fn python(&self, out: &mut String) -> Read<()> {
        let is_year_0 = self.date.is_some_and(|date| date.starts_with("0000"));
        if self.nanos_count > 6 || self.region.is_some() || is_year_0 {
            return Err(Unusual);
        }
        self.begin(out);
        if self.hour_minute.is_some() {
            out.push(':');
            out.push_str(if self.second.is_empty() { "00" } else { self.second });
            self.fraction(out, if self.nanos_count > 0 { 6 } else { 0 });
        }
        if self.has_zone && self.offset.is_none() {
            out.push_str("+00:00");
        }
        self.end(out);
        Ok(())
    }

    fn begin(&self, out: &mut String) {
        out.push_str(self.date.unwrap_or(""));
        if self.date.is_some() && self.hour_minute.is_some() {
            out.push('T');
        }
        out.push_str(self.hour_minute.unwrap_or(""));
    }

    fn fraction(&self, out: &mut String, count: usize) {
        if count > 0 {
            out.push('.');
            let digits = self.nanos.get(..count).unwrap_or(&[]);
            out.extend(digits.iter().copied().map(char::from));
        }
    }

    fn end(&self, out: &mut String) {
        if let Some(offset) = self.offset {
            out.push_str(offset);
            if !self.offset_second.is_empty() {
                out.push(':');
                out.push_str(self.offset_second);
            }
        }
    }
}

fn taken<'a>(rest: &mut &'a str, count: usize) -> Read<&'a str> {
    let (part, behind) = rest.split_at_checked(count).ok_or(Unusual)?;
    *rest = behind;
    Ok(part)
}

fn two_digits(text: &str) -> Read<u32> {
    match text.as_bytes() {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
            Ok(u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
        }
        _ => Err(Unusual),
    }
}

fn check_date(date: &str) -> Read<()> {
    let (century, rest) = date.split_at_checked(2).ok_or(Unusual)?;
    let (years, rest) = rest.split_at_checked(2).ok_or(Unusual)?;
    let (month, day) =
        rest.strip_prefix('-').and_then(|part| part.split_once('-')).ok_or(Unusual)?;
    let year = two_digits(century)? * 100 + two_digits(years)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match two_digits(month)? {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return Err(Unusual),
    };
    if (1..=last).contains(&two_digits(day)?) {
        Ok(())
    } else {
        Err(Unusual)
    }
}
