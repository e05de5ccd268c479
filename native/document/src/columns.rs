//! Columns of values, in the layout of Arrow: a batch of documents becomes a few buffers.
//!
//! A row is read as a whole, or not at all: where a document is unusual every column is cut back to
//! where it was. Fields that are not asked for are checked as well, so that a document fits or not
//! whatever columns are wanted; nothing is allocated for them.

use crate::items::{code, is_framed, Body, Read, Unusual};
use crate::scalars;
use crate::shapes::{self, Default, Kind, Message, Shape};

/// The values of a column.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Values {
    /// Numbers of so many bytes each.
    Fixed {
        width: usize,
        bytes: Vec<u8>,
    },
    /// True and false, a byte each.
    Flags(Vec<u8>),
    /// Texts or bytes, one behind the other, and where each ends.
    Variable {
        ends: Vec<i64>,
        bytes: Vec<u8>,
    },
    Struct(Vec<Column>),
    List {
        ends: Vec<i32>,
        item: Box<Column>,
    },
    /// A field that is not asked for.
    Nothing,
}

/// A column: its values, and which of them are there.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Column {
    pub is_there: Vec<u8>,
    pub values: Values,
}

/// A value that has no parts.
#[derive(Debug, Clone, Copy)]
enum Leaf<'a> {
    Null,
    Whole(i64),
    Float(f64),
    Flag(bool),
    Bytes(&'a [u8]),
    Wide(i128),
    Uuid(u128),
}

impl Column {
    /// An empty column of a shape.
    pub fn new(shape: &Shape) -> Self {
        let values = match &shape.kind {
            Kind::Integer { bytes, .. } => Values::Fixed { width: *bytes, bytes: Vec::new() },
            Kind::Float | Kind::Moment => Values::Fixed { width: 8, bytes: Vec::new() },
            Kind::Float32 | Kind::Date => Values::Fixed { width: 4, bytes: Vec::new() },
            Kind::Decimal => Values::Fixed { width: 16, bytes: Vec::new() },
            Kind::Boolean => Values::Flags(Vec::new()),
            Kind::Text | Kind::Enum(_) | Kind::OpenEnum | Kind::Bytes | Kind::Uuid => {
                Values::Variable { ends: vec![0], bytes: Vec::new() }
            }
            Kind::Message(message) => {
                Values::Struct(message.shapes.iter().map(Column::new).collect())
            }
            Kind::List(item) => Values::List { ends: vec![0], item: Box::new(Column::new(item)) },
        };
        Column { is_there: Vec::new(), values }
    }

    /// The column of a field that is only checked.
    pub fn nothing() -> Self {
        Column { is_there: Vec::new(), values: Values::Nothing }
    }

    /// Cuts it back to so many values.
    fn truncate(&mut self, count: usize) {
        self.is_there.truncate(count);
        match &mut self.values {
            Values::Fixed { width, bytes } => bytes.truncate(count * *width),
            Values::Flags(flags) => flags.truncate(count),
            Values::Variable { ends, bytes } => {
                ends.truncate(count + 1);
                let end = ends.last().copied().unwrap_or(0);
                bytes.truncate(usize::try_from(end).unwrap_or(0));
            }
            Values::Struct(columns) => columns.iter_mut().for_each(|each| each.truncate(count)),
            Values::List { ends, item } => {
                ends.truncate(count + 1);
                let end = ends.last().copied().unwrap_or(0);
                item.truncate(usize::try_from(end).unwrap_or(0));
            }
            Values::Nothing => {}
        }
    }

    /// Reads the value that stands next.
    #[inline]
    fn read(&mut self, shape: &Shape, body: &mut Body<'_>) -> Read<()> {
        if shape.is_nullable && body.code()? == Some(code::NULL) {
            body.pass_code()?;
            return self.put(Leaf::Null);
        }
        match &shape.kind {
            Kind::Message(message) => {
                shapes::check_type(body, &message.type_name)?;
                let mut block = body.block()?;
                self.read_message(message, &mut block)
            }
            Kind::List(item) => {
                let mut block = body.block()?;
                self.read_items(item, &mut block)
            }
            _ => self.put(leaf(&shape.kind, body)?),
        }
    }

    /// Reads the fields of a message as one value.
    pub fn read_message(&mut self, message: &Message, body: &mut Body<'_>) -> Read<()> {
        let columns = match &mut self.values {
            Values::Struct(columns) => columns,
            Values::Nothing => return check_message(message, body),
            _ => return Err(Unusual),
        };
        read_fields(message, body, columns)?;
        self.is_there.push(1);
        Ok(())
    }

    fn read_items(&mut self, shape: &Shape, body: &mut Body<'_>) -> Read<()> {
        match &mut self.values {
            Values::List { ends, item } => {
                while body.code()?.is_some() {
                    item.read(shape, body)?;
                }
                ends.push(i32::try_from(item.is_there.len()).map_err(|_| Unusual)?);
                self.is_there.push(1);
                Ok(())
            }
            _ => {
                let mut nothing = Column::nothing();
                while body.code()?.is_some() {
                    nothing.read(shape, body)?;
                }
                Ok(())
            }
        }
    }

    /// Adds the value that a field has where it is not there.
    fn put_default(&mut self, default: &Default) -> Read<()> {
        match default {
            Default::Required => Err(Unusual),
            Default::Null => self.put(Leaf::Null),
            Default::Whole(value) => self.put(Leaf::Whole(*value)),
            Default::Float(value) => self.put(Leaf::Float(*value)),
            Default::Boolean(value) => self.put(Leaf::Flag(*value)),
            Default::Text(value) => self.put(Leaf::Bytes(value.as_bytes())),
            Default::Bytes(value) => self.put(Leaf::Bytes(value)),
            Default::Decimal(value) => self.put(Leaf::Wide(*value)),
            Default::NoItems => match &mut self.values {
                Values::List { ends, item } => {
                    ends.push(i32::try_from(item.is_there.len()).map_err(|_| Unusual)?);
                    self.is_there.push(1);
                    Ok(())
                }
                _ => Ok(()),
            },
        }
    }

    #[inline]
    fn put(&mut self, leaf: Leaf<'_>) -> Read<()> {
        match (&mut self.values, leaf) {
            (Values::Nothing, _) => return Ok(()),
            (_, Leaf::Null) => return self.put_null(),
            (Values::Fixed { width: 4, bytes }, Leaf::Float(value)) => {
                bytes.extend_from_slice(&(value as f32).to_le_bytes());
            }
            (Values::Fixed { bytes, .. }, Leaf::Float(value)) => {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            (Values::Fixed { width, bytes }, Leaf::Whole(value)) => {
                let all = value.to_le_bytes();
                bytes.extend_from_slice(all.get(..*width).ok_or(Unusual)?);
            }
            (Values::Fixed { bytes, .. }, Leaf::Wide(value)) => {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            (Values::Flags(flags), Leaf::Flag(value)) => flags.push(u8::from(value)),
            (Values::Variable { ends, bytes }, Leaf::Bytes(value)) => {
                bytes.extend_from_slice(value);
                ends.push(bytes.len() as i64);
            }
            (Values::Variable { ends, bytes }, Leaf::Uuid(value)) => {
                uuid_text(value, bytes);
                ends.push(bytes.len() as i64);
            }
            _ => return Err(Unusual),
        }
        self.is_there.push(1);
        Ok(())
    }

    fn put_null(&mut self) -> Read<()> {
        match &mut self.values {
            Values::Fixed { width, bytes } => bytes.resize(bytes.len() + *width, 0),
            Values::Flags(flags) => flags.push(0),
            Values::Variable { ends, bytes } => ends.push(bytes.len() as i64),
            Values::Struct(columns) => {
                for column in columns {
                    column.put_null()?;
                }
            }
            Values::List { ends, item } => {
                ends.push(i32::try_from(item.is_there.len()).map_err(|_| Unusual)?);
            }
            Values::Nothing => return Ok(()),
        }
        self.is_there.push(0);
        Ok(())
    }
}

fn uuid_text(value: u128, bytes: &mut Vec<u8>) {
    for (at, byte) in value.to_be_bytes().into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            bytes.push(b'-');
        }
        for digit in [byte >> 4, byte & 15] {
            bytes.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
        }
    }
}

/// The value that stands next, which has no parts.
#[inline]
fn leaf<'a>(kind: &Kind, body: &mut Body<'a>) -> Read<Leaf<'a>> {
    Ok(match kind {
        Kind::Integer { least, greatest, .. } => {
            let value = body.integer()?;
            if value < *least || value > *greatest {
                return Err(Unusual);
            }
            Leaf::Whole(value)
        }
        Kind::Float | Kind::Float32 => Leaf::Float(body.float()?),
        Kind::Decimal => match body.value_code()? {
            code::STRING0..=0xff | code::STRING_ANY => {
                Leaf::Wide(scalars::scaled_decimal(body.text()?)?)
            }
            code::FLOAT32..=code::FLOAT_STOP_6 => return Err(Unusual),
            _ => Leaf::Wide(scalars::scaled_integer(body.integer()?)),
        },
        Kind::Text => match body.value_code()? {
            code::TIME..=code::ZONED_DATE_TIME | code::TYPE_LITERAL => {
                body.pass_code()?;
                Leaf::Bytes(body.prefixed_text()?.as_bytes())
            }
            _ => Leaf::Bytes(body.text()?.as_bytes()),
        },
        Kind::Enum(names) => {
            let name = enum_text(body)?;
            if !names.iter().any(|each| **each == *name) {
                return Err(Unusual);
            }
            Leaf::Bytes(name.as_bytes())
        }
        Kind::OpenEnum => Leaf::Bytes(enum_text(body)?.as_bytes()),
        Kind::Boolean => Leaf::Flag(body.boolean()?),
        Kind::Bytes => Leaf::Bytes(body.bytes()?),
        Kind::Date => {
            if body.value_code()? != code::DATE {
                return Err(Unusual);
            }
            body.pass_code()?;
            Leaf::Whole(i64::from(scalars::epoch_day(body.prefixed_text()?)?))
        }
        Kind::Moment => {
            let has_offset = match body.value_code()? {
                code::DATE_TIME => false,
                code::ZONED_DATE_TIME => true,
                _ => return Err(Unusual),
            };
            body.pass_code()?;
            Leaf::Whole(scalars::epoch_micros(body.prefixed_text()?, has_offset)?)
        }
        Kind::Uuid => Leaf::Uuid(body.uuid()?),
        Kind::Message(_) | Kind::List(_) => return Err(Unusual),
    })
}

/// The name of a member of an enum, whatever type stands in front.
#[inline]
pub fn enum_text<'a>(body: &mut Body<'a>) -> Read<&'a str> {
    if body.value_code()? == code::TYPE_PREFIX {
        body.pass_code()?;
        body.prefixed_text()?;
    }
    body.text()
}

fn read_fields(message: &Message, body: &mut Body<'_>, columns: &mut [Column]) -> Read<()> {
    let mut field = |place: usize, body: &mut Body<'_>| {
        let shape = message.shapes.get(place).ok_or(Unusual)?;
        columns.get_mut(place).ok_or(Unusual)?.read(shape, body)
    };
    let seen = shapes::walk_fields(body, &message.names, &mut field)?;
    for (place, (column, default)) in columns.iter_mut().zip(&message.defaults).enumerate() {
        if seen & (1 << place) == 0 {
            column.put_default(default)?;
        }
    }
    Ok(())
}

fn check_message(message: &Message, body: &mut Body<'_>) -> Read<()> {
    let mut nothing = Column::nothing();
    let field = |place: usize, body: &mut Body<'_>| {
        nothing.read(message.shapes.get(place).ok_or(Unusual)?, body)
    };
    let seen = shapes::walk_fields(body, &message.names, field)?;
    for (place, default) in message.defaults.iter().enumerate() {
        if seen & (1 << place) == 0 && matches!(default, Default::Required) {
            return Err(Unusual);
        }
    }
    Ok(())
}

/// The columns of a batch of messages.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Batch {
    pub columns: Vec<Column>,
    pub rows: usize,
}

impl Batch {
    /// Without rows; the columns of fields that are not wanted are only checked.
    pub fn new(message: &Message, is_wanted: &[bool]) -> Self {
        let columns = message.shapes.iter().zip(is_wanted).map(|(shape, wanted)| {
            if *wanted {
                Column::new(shape)
            } else {
                Column::nothing()
            }
        });
        Batch { columns: columns.collect(), rows: 0 }
    }

    /// Adds a document as a row; nothing of one that is unusual.
    ///
    /// # Errors
    /// The plain codec has to read the document.
    pub fn read(&mut self, message: &Message, event: Option<&[u8]>, data: &[u8]) -> Read<()> {
        let result = self.read_whole(message, event, data);
        if result.is_ok() {
            self.rows += 1;
        } else {
            self.columns.iter_mut().for_each(|column| column.truncate(self.rows));
        }
        result
    }

    fn read_whole(&mut self, message: &Message, event: Option<&[u8]>, data: &[u8]) -> Read<()> {
        if is_framed(data) {
            return Err(Unusual);
        }
        let mut body = Body::new(data);
        let Some(event) = event else {
            return read_fields(message, &mut body, &mut self.columns);
        };
        if shapes::called_method(&mut body)? != event {
            return Err(Unusual);
        }
        shapes::check_type(&mut body, &message.type_name)?;
        let mut block = body.block()?;
        read_fields(message, &mut block, &mut self.columns)?;
        if body.code()?.is_some() {
            Err(Unusual)
        } else {
            Ok(())
        }
    }
}

/// Flags as bits, eight in a byte, and the number of those that are not set.
pub fn packed(flags: &[u8]) -> (Vec<u8>, usize) {
    let bits = flags.chunks(8).map(|chunk| {
        chunk.iter().enumerate().fold(0, |byte, (at, flag)| byte | (u8::from(*flag != 0) << at))
    });
    (bits.collect(), flags.iter().filter(|flag| **flag == 0).count())
}
