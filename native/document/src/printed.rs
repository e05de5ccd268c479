//! The text of the items of a document, as Java's dump prints it. The reference is
//! `wire/text/print_items.py`, whose order of parts this file has. Where that raises an error, this
//! one says `Unusual`, so that the reference tells it.

use crate::items::{code, plain_text, Body, Read, Unusual, NESTING_MAX};
use crate::layout::Layout;
use crate::shapes::{HISTORY_NAME, HISTORY_NUMBER};
use crate::spelled::{self, Moment};
use crate::typenames::{enum_constants, is_known_type};

const NULL_TEXT: &str = "!!null \"\"";
/// An array of so few entries, all in use, is a bound value or a pair.
const BOUND_VALUES_MAX: i64 = 2;
/// The choices of a printer.
#[derive(Debug, Clone, Copy)]
pub struct Choices {
    /// Of the unused zeros at the end of an array only the count is given.
    pub folds_unused: bool,
    /// Each number of a fixed width says which one.
    pub is_typed: bool,
}

/// Writes the text of a whole body behind `out`.
///
/// # Errors
/// The reference has to print the body, or say why it has no text.
pub fn items_text(body: &[u8], choices: Choices, out: String) -> Read<String> {
    let mut printer = Printer { layout: Layout::new(out), depth: 0, choices };
    let mut body = Body::new(body);
    refuse_small_number(&body)?;
    printer.items(&mut body)?;
    Ok(printer.layout.text())
}

fn refuse_small_number(body: &Body<'_>) -> Read<()> {
    match body.raw_first() {
        Some(0..code::BYTES_LENGTH8) => Err(Unusual),
        _ => Ok(()),
    }
}

struct Printer {
    layout: Layout,
    depth: usize,
    choices: Choices,
}

impl Printer {
    fn items(&mut self, body: &mut Body<'_>) -> Read<()> {
        while body.raw_first().is_some() {
            self.item(body)?;
        }
        Ok(())
    }

    fn item(&mut self, body: &mut Body<'_>) -> Read<()> {
        let Some(code) = body.raw_first() else { return Ok(()) };
        body.pass_code()?;
        match code {
            0..code::BYTES_LENGTH8 => self.constant(|out| spelled::natural(out, u64::from(code))),
            code::BYTES_LENGTH8..=code::BYTES_LENGTH32 => return self.block(code, body),
            code::HISTORY_MESSAGE => return self.history(body),
            code::I64_ARRAY => return self.array(body),
            code::PADDING => {}
            code::PADDING32 => {
                let count = body.u32()?;
                body.take(count as usize)?;
            }
            code::FLOAT32..=code::FLOAT64 | code::UINT8..=code::SET_LOW_INT16 => {
                return self.number(code, body)
            }
            code::FLOAT_STOP_2 | code::FLOAT_STOP_4 | code::FLOAT_STOP_6 => {
                let scale = match code {
                    code::FLOAT_STOP_2 => 100.0,
                    code::FLOAT_STOP_4 => 10_000.0,
                    _ => 1_000_000.0,
                };
                let value = body.stop_bit()? as f64 / scale;
                self.constant(|out| spelled::float(out, value));
            }
            code::INT64_0X => {
                let value = u64::from_le_bytes(body.array()?);
                self.constant(|out| out.push_str(&format!("0x{value:x}")));
            }
            code::FALSE => self.constant(|out| out.push_str("false")),
            code::TRUE => self.constant(|out| out.push_str("true")),
            code::NULL => self.constant(|out| out.push_str(NULL_TEXT)),
            code::TIME..=code::ZONED_DATE_TIME => return self.time(code, body),
            code::TYPE_PREFIX => return self.type_prefix(body),
            code::FIELD_NAME_ANY | code::EVENT_NAME => {
                let name = prefixed(body)?.unwrap_or(&[]);
                self.name(name);
            }
            code::STRING_ANY | code::STRING0..=0xff => {
                let text = text_operand(code, body)?;
                self.constant(|out| match text {
                    None => out.push_str(NULL_TEXT),
                    Some(text) => spelled::quote(out, text),
                });
            }
            code::FIELD_NUMBER => match body.stop_bit()? {
                HISTORY_NUMBER => self.name(HISTORY_NAME),
                number => self.name(number.to_string().as_bytes()),
            },
            code::TYPE_LITERAL => {
                let name = prefixed(body)?.map(plain_text).transpose()?;
                self.constant(|out| match name {
                    None => out.push_str(NULL_TEXT),
                    Some(name) => {
                        out.push_str("!type ");
                        spelled::quote(out, name);
                    }
                });
            }
            code::EVENT_OBJECT => return self.event_object(body),
            code::COMMENT => {
                let text = plain_text(prefixed(body)?.ok_or(Unusual)?)?;
                self.comment(|out| spelled::copy_bytes(out, text));
            }
            code::FIELD_NAME0..code::STRING0 => {
                let name = body.take(usize::from(code - code::FIELD_NAME0))?;
                if name.iter().any(|byte| *byte < 0x20) {
                    return Err(Unusual);
                }
                self.name(name);
            }
            _ => return Err(Unusual),
        }
        Ok(())
    }

    fn constant(&mut self, write: impl FnOnce(&mut String)) {
        write(self.layout.begin());
        self.layout.done();
    }

    fn name(&mut self, name: &[u8]) {
        let out = self.layout.begin();
        spelled::quote_latin(out, name);
        out.push_str(": ");
    }

    fn comment(&mut self, write: impl FnOnce(&mut String)) {
        let out = self.layout.begin();
        out.push_str("# ");
        write(out);
        self.layout.end_comment();
    }

    fn shown_type(&mut self, write: impl FnOnce(&mut String)) {
        let out = self.layout.begin();
        out.push('!');
        write(out);
        out.push(' ');
    }

    fn number(&mut self, code: u8, body: &mut Body<'_>) -> Read<()> {
        if matches!(code, code::UINT8 | code::SET_LOW_INT8) && body.raw_first().is_none() {
            self.constant(|out| out.push_str("-1")); // the byte at the end of a block
            return Ok(());
        }
        let kind = match code {
            code::INT8 => "byte",
            code::INT16 => "short",
            code::UINT8 if self.choices.is_typed => "uint8",
            code::UINT16 if self.choices.is_typed => "uint16",
            code::UINT32 if self.choices.is_typed => "uint32",
            code::INT32 if self.choices.is_typed => "int",
            code::INT64 if self.choices.is_typed => "long",
            code::FLOAT32 if self.choices.is_typed => "float",
            code::FLOAT64 if self.choices.is_typed => "double",
            _ => "",
        };
        let mut float = None;
        let mut whole = 0;
        match code {
            code::UINT8 | code::SET_LOW_INT8 => whole = i64::from(u8::from_le_bytes(body.array()?)),
            code::UINT16 | code::SET_LOW_INT16 => {
                whole = i64::from(u16::from_le_bytes(body.array()?));
            }
            code::UINT32 => whole = i64::from(body.u32()?),
            code::INT8 => whole = i64::from(i8::from_le_bytes(body.array()?)),
            code::INT16 => whole = i64::from(i16::from_le_bytes(body.array()?)),
            code::INT32 => whole = i64::from(i32::from_le_bytes(body.array()?)),
            code::INT64 => whole = i64::from_le_bytes(body.array()?),
            code::FLOAT32 => float = Some(f64::from(f32::from_le_bytes(body.array()?))),
            code::FLOAT64 => float = Some(f64::from_le_bytes(body.array()?)),
            _ => return Err(Unusual),
        }
        if !kind.is_empty() {
            self.shown_type(|out| out.push_str(kind));
        }
        self.constant(|out| match float {
            Some(value) => spelled::float(out, value),
            None => spelled::whole(out, whole),
        });
        Ok(())
    }

    fn time(&mut self, code: u8, body: &mut Body<'_>) -> Read<()> {
        let Some(bytes) = prefixed(body)? else {
            self.constant(|out| out.push_str(NULL_TEXT));
            return Ok(());
        };
        let moment = Moment::read(code, plain_text(bytes)?)?;
        self.constant(|out| moment.java(out));
        Ok(())
    }

    fn event_object(&mut self, body: &mut Body<'_>) -> Read<()> {
        self.nest()?;
        let outer = self.layout.open_key();
        if body.raw_first() == Some(code::TYPE_PREFIX) {
            self.item(body)?;
        }
        refuse_small_number(body)?;
        self.item(body)?;
        self.layout.close_key(outer);
        self.depth -= 1;
        Ok(())
    }

    fn type_prefix(&mut self, body: &mut Body<'_>) -> Read<()> {
        loop {
            let name = plain_text(prefixed(body)?.ok_or(Unusual)?)?;
            self.shown_type(|out| spelled::copy_bytes(out, name));
            if is_known_type(name) {
                return Ok(());
            }
            match body.raw_first() {
                Some(code::TYPE_PREFIX) => body.pass_code()?,
                _ => return self.typed_value(name, body),
            }
        }
    }

    /// The value of a type that Java's dump treats in a way of its own.
    fn typed_value(&mut self, name: &str, body: &mut Body<'_>) -> Read<()> {
        let Some(code) = body.raw_first() else { return Ok(()) };
        if name == "byte[]" && matches!(code, code::BYTES_LENGTH8..=code::BYTES_LENGTH32) {
            let mut after = *body;
            after.pass_code()?;
            let block = after.block_behind(code)?;
            if let Some((&code::U8_ARRAY, bytes)) = block.rest().split_first() {
                self.constant(|out| spelled::quote_latin(out, bytes));
                *body = after;
                return Ok(());
            }
        }
        if let Some(constants) = enum_constants(name) {
            if code >= code::STRING0 || code == code::STRING_ANY {
                let mut after = *body;
                after.pass_code()?;
                if let Some(constant) = text_operand(code, &mut after)? {
                    if !constant.is_ascii() {
                        return Err(Unusual);
                    }
                    if !constants.contains(&constant.to_ascii_uppercase().as_str()) {
                        *body = after;
                        return Ok(());
                    }
                }
            }
        }
        self.item(body)
    }

    fn nest(&mut self) -> Read<()> {
        if self.depth == NESTING_MAX {
            return Err(Unusual);
        }
        self.depth += 1;
        Ok(())
    }

    fn block(&mut self, code: u8, body: &mut Body<'_>) -> Read<()> {
        let mut block = body.block_behind(code)?;
        match block.raw_first() {
            Some(code::U8_ARRAY) => {
                block.pass_code()?;
                self.constant(|out| spelled::payload(out, block.rest()));
            }
            Some(code::HISTORY_MESSAGE) => {
                block.pass_code()?;
                self.history(&mut block)?;
                self.items(&mut block)?;
            }
            Some(code::I64_ARRAY) => return Err(Unusual),
            Some(
                code::FIELD_NAME0..code::STRING0
                | code::FIELD_NAME_ANY
                | code::EVENT_NAME
                | code::FIELD_NUMBER
                | code::EVENT_OBJECT,
            ) => {
                self.nest()?;
                let opened = self.layout.open_map(true);
                self.items(&mut block)?;
                self.layout.close_map(opened);
                self.depth -= 1;
            }
            _ => {
                self.nest()?;
                let opened = self.layout.open_sequence();
                self.items(&mut block)?;
                self.layout.close_sequence(opened);
                self.depth -= 1;
            }
        }
        Ok(())
    }

    fn history(&mut self, body: &mut Body<'_>) -> Read<()> {
        let sources = count(body)?;
        let (ids, indexes) = (body.take(4 * sources)?, body.take(8 * sources)?);
        let timings = count(body)?;
        let times = body.take(8 * timings)?;
        let map = self.layout.open_map(false);
        self.name(b"sources");
        let sequence = self.layout.open_sequence();
        for (id, index) in ids.chunks_exact(4).zip(indexes.chunks_exact(8)) {
            let (id, index) = (entry(id)?, entry::<8>(index)?);
            self.constant(|out| spelled::whole(out, i64::from(i32::from_le_bytes(id))));
            self.constant(|out| out.push_str(&format!("0x{:x}", u64::from_le_bytes(index))));
        }
        self.layout.close_sequence(sequence);
        self.name(b"timings");
        let sequence = self.layout.open_sequence();
        self.entries(times)?;
        self.layout.close_sequence(sequence);
        self.layout.close_map(map);
        Ok(())
    }

    fn array(&mut self, body: &mut Body<'_>) -> Read<()> {
        let capacity = i64::from_le_bytes(body.array()?);
        let used = i64::from_le_bytes(body.array()?);
        let places = usize::try_from(capacity.max(0)).map_err(|_| Unusual)?;
        let entries = body.take(places.checked_mul(8).ok_or(Unusual)?)?;
        let sequence = self.layout.open_sequence();
        if capacity == used && capacity <= BOUND_VALUES_MAX {
            self.entries(entries)?;
        } else {
            self.comment(|out| out.push_str(&format!("length: {capacity}, used: {used}")));
            let is_partly = 0 <= used && used < capacity;
            let used = usize::try_from(if is_partly { used } else { capacity.max(0) });
            self.partly_used(entries, used.map_err(|_| Unusual)?)?;
        }
        self.layout.close_sequence(sequence);
        Ok(())
    }

    fn partly_used(&mut self, entries: &[u8], used: usize) -> Read<()> {
        let (kept, unused) = entries.split_at_checked(8 * used).ok_or(Unusual)?;
        if self.choices.folds_unused {
            let significant = unused.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            let shown = significant.div_ceil(8) + used;
            self.entries(entries.get(..8 * shown).ok_or(Unusual)?)?;
            let rest = entries.len() / 8 - shown;
            if rest > 0 {
                self.comment(|out| out.push_str(&format!("{rest} more, all 0")));
            }
            return Ok(());
        }
        self.entries(kept)?;
        if !unused.is_empty() {
            self.layout.set_leaf(true);
            self.entries(unused)?;
            self.layout.set_leaf(false);
        }
        Ok(())
    }

    fn entries(&mut self, entries: &[u8]) -> Read<()> {
        for each in entries.chunks_exact(8) {
            let value = i64::from_le_bytes(entry(each)?);
            self.constant(|out| spelled::whole(out, value));
        }
        Ok(())
    }
}

/// So many bytes as an array.
pub fn entry<const N: usize>(bytes: &[u8]) -> Read<[u8; N]> {
    bytes.try_into().map_err(|_| Unusual)
}

/// A count in one byte; none at the end of a block.
pub fn count(body: &mut Body<'_>) -> Read<usize> {
    match body.raw_first() {
        None => Ok(0),
        Some(count) => {
            body.pass_code()?;
            Ok(usize::from(count))
        }
    }
}

/// The bytes behind a length, none for length -1; a length at the end of a block is 0.
pub fn prefixed<'a>(body: &mut Body<'a>) -> Read<Option<&'a [u8]>> {
    if body.raw_first().is_none() {
        return Ok(Some(&[]));
    }
    match body.stop_bit()? {
        -1 => Ok(None),
        length => body.take(usize::try_from(length).map_err(|_| Unusual)?).map(Some),
    }
}

/// The text behind its code; nothing for null.
pub fn text_operand<'a>(code: u8, body: &mut Body<'a>) -> Read<Option<&'a str>> {
    if code >= code::STRING0 {
        return plain_text(body.take(usize::from(code - code::STRING0))?).map(Some);
    }
    prefixed(body)?.map(plain_text).transpose()
}
