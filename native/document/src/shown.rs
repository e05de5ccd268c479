//! The values of a document on one line: as flow YAML for people, and as JSON. The reference is
//! `wire/text/print_values.py` with `wire/text/lines.py`.
//!
//! The usual is printed here: names each of which comes once, values, blocks, types that mean
//! nothing of their own. All else, as comments and names without a value, is for the reference.

use std::borrow::Cow;

use crate::items::{code, is_framed, plain_text, Body, Read, Unusual, NESTING_MAX};
use crate::printed::{count, entry, text_operand};
use crate::shapes::{HISTORY_NAME, HISTORY_NUMBER};
use crate::spelled::{self, Moment};
use crate::typenames::{enum_constants, is_known_type, COMPRESSIONS, MEANT};

/// More fields of one block are for the reference, which finds a name that comes twice faster.
const FIELDS_MAX: usize = 64;
const NULL_TEXT: &str = "!!null \"\"";

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Flow YAML; the braces of the whole are left out.
    Flow,
    /// JSON, with a blank behind each comma and colon, or without.
    Json {
        /// Without these blanks.
        is_dense: bool,
    },
}

/// Writes an excerpt behind `out`: a document, or plain text of ASCII.
///
/// # Errors
/// The reference has to print it.
pub fn excerpt_line(data: &[u8], form: Form, out: &mut String) -> Read<()> {
    let mut line = Line { out, form, is_decoded: false };
    if data.iter().all(|byte| matches!(byte, 0x20..=0x7e)) {
        let text = plain_text(data)?;
        match form {
            Form::Flow => line.out.push_str(text),
            Form::Json { .. } => json_string(line.out, text)?,
        }
        return Ok(());
    }
    // a body that begins with a small number, or is UTF-8, is shown otherwise
    if data.first().is_none_or(|first| *first < code::BYTES_LENGTH8)
        || std::str::from_utf8(data).is_ok()
    {
        return Err(Unusual);
    }
    line.body(data)
}

/// Writes the values that `wire.decode` reads in a document behind `out`.
///
/// # Errors
/// The reference has to print it.
pub fn document_line(data: &[u8], form: Form, out: &mut String) -> Read<()> {
    if is_framed(data) {
        return Err(Unusual);
    }
    Line { out, form, is_decoded: true }.body(data)
}

struct Line<'o> {
    out: &'o mut String,
    form: Form,
    /// Values are those of `wire.decode`, which reads some otherwise than the dump shows them.
    is_decoded: bool,
}

impl Line<'_> {
    fn body(&mut self, data: &[u8]) -> Read<()> {
        let mut body = Body::new(data).without_filler();
        if !body.is_map()? {
            return Err(Unusual);
        }
        self.fields(&mut body, 0, self.form == Form::Flow)
    }

    fn fields(&mut self, body: &mut Body<'_>, depth: usize, is_outermost: bool) -> Read<()> {
        let mut names: Vec<Cow<'_, [u8]>> = Vec::new();
        let mut colon = 0;
        if !is_outermost {
            self.out.push('{');
        }
        while body.raw_first().is_some() {
            let name = field_name(body)?;
            if names.len() == FIELDS_MAX || names.contains(&name) {
                return Err(Unusual);
            }
            if !names.is_empty() {
                self.comma();
            }
            self.name(&name)?;
            names.push(name);
            colon = self.out.len();
            self.out.push(':');
            if self.form != (Form::Json { is_dense: true }) {
                self.out.push(' ');
            }
            self.value(body, depth)?;
        }
        if !is_outermost {
            self.out.push('}');
        } else if names.len() == 1 {
            self.out.remove(colon); // a call is shown as the method and its argument
            self.out.truncate(self.out.trim_end().len());
        }
        Ok(())
    }

    fn comma(&mut self) {
        self.out.push(',');
        if self.form != (Form::Json { is_dense: true }) {
            self.out.push(' ');
        }
    }

    fn value(&mut self, body: &mut Body<'_>, depth: usize) -> Read<()> {
        let code = body.value_code()?;
        body.pass_code()?;
        let is_at_end = body.raw_first().is_none();
        if is_at_end && matches!(code, code::STRING_ANY | code::BYTES_LENGTH8) {
            return Err(Unusual); // the dump takes the end for a length of 0
        }
        match code {
            0..code::BYTES_LENGTH8 => spelled::natural(self.out, u64::from(code)),
            code::STRING_ANY | code::STRING0..=0xff => match text_operand(code, body)? {
                Some(text) => self.text(text)?,
                None => self.null(),
            },
            code::UINT8 | code::SET_LOW_INT8 => self.whole(u8::from_le_bytes(body.array()?)),
            code::UINT16 | code::SET_LOW_INT16 => self.whole(u16::from_le_bytes(body.array()?)),
            code::UINT32 => self.whole(body.u32()?),
            code::INT8 => self.whole(i8::from_le_bytes(body.array()?)),
            code::INT16 => self.whole(i16::from_le_bytes(body.array()?)),
            code::INT32 => self.whole(i32::from_le_bytes(body.array()?)),
            code::INT64 => self.whole(i64::from_le_bytes(body.array()?)),
            code::INT64_0X => {
                let value = u64::from_le_bytes(body.array()?);
                if self.is_decoded && value >> 63 != 0 {
                    return Err(Unusual);
                }
                spelled::natural(self.out, value);
            }
            code::FLOAT32 => self.float(f64::from(f32::from_le_bytes(body.array()?))),
            code::FLOAT64 => self.float(f64::from_le_bytes(body.array()?)),
            code::FLOAT_STOP_2 => {
                let value = body.stop_bit()? as f64 / 100.0;
                self.float(value);
            }
            code::FLOAT_STOP_4 => {
                let value = body.stop_bit()? as f64 / 10_000.0;
                self.float(value);
            }
            code::FLOAT_STOP_6 => {
                let value = body.stop_bit()? as f64 / 1_000_000.0;
                self.float(value);
            }
            code::TRUE => self.out.push_str("true"),
            code::FALSE => self.out.push_str("false"),
            code::NULL => self.null(),
            code::TIME..=code::ZONED_DATE_TIME => {
                let moment = Moment::read(code, body.prefixed_text()?)?;
                self.quoted_in_json(|out| moment.python(out))?;
            }
            code::BYTES_LENGTH8..=code::BYTES_LENGTH32 => {
                let block = body.block_behind(code)?;
                self.block(block, depth)?;
            }
            code::TYPE_PREFIX => self.typed(body, depth)?,
            _ => return Err(Unusual),
        }
        Ok(())
    }

    fn block(&mut self, mut block: Body<'_>, depth: usize) -> Read<()> {
        match block.raw_first() {
            Some(code::U8_ARRAY) => {
                block.pass_code()?;
                self.bytes(block.rest());
                Ok(())
            }
            Some(code::HISTORY_MESSAGE) if self.is_decoded => Err(Unusual),
            Some(code::HISTORY_MESSAGE) => {
                block.pass_code()?;
                self.history(&mut block)?;
                if block.raw_first().is_some() {
                    return Err(Unusual);
                }
                Ok(())
            }
            _ if depth >= NESTING_MAX => Err(Unusual),
            _ if block.is_map()? => self.fields(&mut block, depth + 1, false),
            _ => {
                self.out.push('[');
                let mut is_first = true;
                while block.raw_first().is_some() {
                    if block.is_map()? {
                        return Err(Unusual);
                    }
                    if !is_first {
                        self.comma();
                    }
                    is_first = false;
                    self.value(&mut block, depth + 1)?;
                }
                self.out.push(']');
                Ok(())
            }
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        match self.form {
            Form::Flow => {
                self.out.push_str("!!binary ");
                spelled::base64(self.out, bytes);
            }
            Form::Json { is_dense } => {
                self.out.push_str(if is_dense { "{\"!!binary\":\"" } else { "{\"!!binary\": \"" });
                spelled::base64(self.out, bytes);
                self.out.push_str("\"}");
            }
        }
    }

    fn history(&mut self, body: &mut Body<'_>) -> Read<()> {
        let sources = count(body)?;
        let (ids, indexes) = (body.take(4 * sources)?, body.take(8 * sources)?);
        let timings = count(body)?;
        let times = body.take(8 * timings)?;
        self.out.push('{');
        self.list_of("sources");
        for (at, (id, index)) in ids.chunks_exact(4).zip(indexes.chunks_exact(8)).enumerate() {
            if at > 0 {
                self.comma();
            }
            self.whole(i32::from_le_bytes(entry(id)?));
            self.comma();
            spelled::natural(self.out, u64::from_le_bytes(entry(index)?));
        }
        self.out.push(']');
        self.comma();
        self.list_of("timings");
        for (at, time) in times.chunks_exact(8).enumerate() {
            if at > 0 {
                self.comma();
            }
            self.whole(i64::from_le_bytes(entry(time)?));
        }
        self.out.push_str("]}");
        Ok(())
    }

    fn list_of(&mut self, name: &str) {
        let (quote, blank) = match self.form {
            Form::Flow => ("", " "),
            Form::Json { is_dense: true } => ("\"", ""),
            Form::Json { is_dense: false } => ("\"", " "),
        };
        for part in [quote, name, quote, ":", blank, "["] {
            self.out.push_str(part);
        }
    }

    fn typed(&mut self, body: &mut Body<'_>, depth: usize) -> Read<()> {
        let name = body.prefixed_text()?;
        let is_plain = !name.is_empty() && name.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
        let is_special = name == "byte[]" || enum_constants(name).is_some();
        let is_decoded_otherwise =
            self.is_decoded && (MEANT.contains(&name) || COMPRESSIONS.contains(&name));
        if !is_plain || is_known_type(name) || is_special || is_decoded_otherwise {
            return Err(Unusual);
        }
        let code = body.value_code()?;
        if code == code::TYPE_PREFIX || body.is_map()? || (self.is_decoded && depth == NESTING_MAX)
        {
            return Err(Unusual);
        }
        let depth = depth + usize::from(self.is_decoded);
        match self.form {
            Form::Flow => {
                self.out.push('!');
                self.out.push_str(name);
                self.out.push(' ');
                self.value(body, depth)
            }
            Form::Json { is_dense } => {
                self.out.push_str("{\"!");
                json_escaped(self.out, name)?;
                self.out.push_str(if is_dense { "\":" } else { "\": " });
                self.value(body, depth)?;
                self.out.push('}');
                Ok(())
            }
        }
    }

    fn whole(&mut self, value: impl Into<i64>) {
        spelled::whole(self.out, value.into());
    }

    fn float(&mut self, value: f64) {
        if value.is_finite() {
            return spelled::python_float(self.out, value);
        }
        let quote = if self.form == Form::Flow { "" } else { "\"" };
        self.out.push_str(quote);
        spelled::float(self.out, value);
        self.out.push_str(quote);
    }

    fn null(&mut self) {
        self.out.push_str(if self.form == Form::Flow { NULL_TEXT } else { "null" });
    }

    fn quoted_in_json(&mut self, write: impl FnOnce(&mut String) -> Read<()>) -> Read<()> {
        let quote = if self.form == Form::Flow { "" } else { "\"" };
        self.out.push_str(quote);
        write(self.out)?;
        self.out.push_str(quote);
        Ok(())
    }

    fn name(&mut self, name: &[u8]) -> Read<()> {
        match std::str::from_utf8(name) {
            Ok(text) if name.is_ascii() => self.text(text),
            _ => self.text(&name.iter().copied().map(char::from).collect::<String>()),
        }
    }

    fn text(&mut self, text: &str) -> Read<()> {
        match self.form {
            Form::Flow => flow_scalar(self.out, text),
            Form::Json { .. } => json_string(self.out, text),
        }
    }
}

/// The name that stands next, as characters of one byte.
fn field_name<'a>(body: &mut Body<'a>) -> Read<Cow<'a, [u8]>> {
    if body.value_code()? == code::FIELD_NUMBER {
        return Ok(match body.name_number()? {
            HISTORY_NUMBER => HISTORY_NAME.into(),
            number => number.to_string().into_bytes().into(),
        });
    }
    let name = body.name()?;
    if name.iter().any(|byte| *byte < 0x20) {
        return Err(Unusual);
    }
    Ok(name.into())
}

/// Text as a scalar of flow YAML: bare where nothing can be mistaken.
fn flow_scalar(out: &mut String, text: &str) -> Read<()> {
    let mut is_bare = !text.is_empty() && !text.starts_with(' ') && !text.ends_with([' ', ':']);
    let mut last = ' ';
    for char in text.chars() {
        match char {
            '0'..='9' | 'a'..='z' | 'A'..='Z' | '_' | '-' | '.' | '/' | ':' | '+' | '@' => {}
            ' ' => is_bare = is_bare && last != ':',
            '!'..='~' => is_bare = false,
            // letters of Europe, and of Chinese
            '\u{c0}'..='\u{24f}' if !matches!(char, '\u{d7}' | '\u{f7}') => {}
            '\u{401}'..='\u{481}' | '\u{4e00}'..='\u{9fa5}' => {}
            '€' | '£' | '¥' | '×' | '÷' => is_bare = false,
            _ => return Err(Unusual), // Python knows which characters are printed
        }
        last = char;
    }
    if is_bare {
        out.push_str(text);
        return Ok(());
    }
    json_string(out, text)
}

/// Text as a string of JSON.
fn json_string(out: &mut String, text: &str) -> Read<()> {
    out.push('"');
    json_escaped(out, text)?;
    out.push('"');
    Ok(())
}

fn json_escaped(out: &mut String, text: &str) -> Read<()> {
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            // a terminal obeys these
            '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => out.push_str(&format!("\\u{:04x}", u32::from(char))),
            _ => out.push(char),
        }
    }
    Ok(())
}
