//! The schema that columns are made by. The reference is `wire/objects/shapes.py`.

use std::collections::HashMap;

use crate::items::{code, Body, Read, Unusual};

/// A message has so many fields at most that the native codec reads.
pub const MEMBERS_MAX: usize = 128;
/// The event that Java's services write in front of a call.
pub const HISTORY_NUMBER: i64 = -1;
/// Its name.
pub const HISTORY_NAME: &[u8] = b"history";

/// Names of fields, found fastest in the order of the schema.
#[derive(Debug, Default)]
pub struct Names {
    names: Vec<Box<[u8]>>,
    places: HashMap<Box<[u8]>, usize>,
}

impl Names {
    /// These names.
    pub fn new(names: Vec<Box<[u8]>>) -> Read<Self> {
        if names.len() > MEMBERS_MAX {
            return Err(Unusual);
        }
        let places: HashMap<_, _> =
            names.iter().enumerate().map(|(at, name)| (name.clone(), at)).collect();
        if places.len() < names.len() || places.contains_key(&[] as &[u8]) {
            return Err(Unusual);
        }
        Ok(Names { names, places })
    }

    /// The place of a name; `hint` is where it is expected.
    #[inline]
    pub fn place(&self, name: &[u8], hint: usize) -> Option<usize> {
        match self.names.get(hint) {
            Some(expected) if **expected == *name => Some(hint),
            _ => self.places.get(name).copied(),
        }
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Goes over the fields of a message: `take` reads the value of each that the schema has, the first
/// of each name. The result has a bit for each field that was there.
#[inline]
pub fn walk_fields<'a, E: From<Unusual>>(
    body: &mut Body<'a>,
    names: &Names,
    mut take: impl FnMut(usize, &mut Body<'a>) -> Result<(), E>,
) -> Result<u128, E> {
    let mut seen: u128 = 0;
    let mut hint = 0;
    let mut is_begun = false;
    while body.code()?.is_some() {
        let name = body.name()?;
        if name.is_empty() {
            return Err(Unusual.into()); // it answers to any question
        }
        is_begun = true;
        match names.place(name, hint) {
            Some(place) if seen & (1 << place) == 0 => {
                seen |= 1 << place;
                hint = place + 1;
                take(place, body)?;
            }
            _ => body.step_over()?,
        }
    }
    if is_begun && seen == 0 {
        return Err(Unusual.into()); // this is another message
    }
    Ok(seen)
}

/// Steps over a history, and reads the name of the method that is called; nothing where the body
/// begins otherwise.
pub fn called_method<'a>(body: &mut Body<'a>) -> Read<&'a [u8]> {
    let mut after = *body;
    let is_history = match after.code()? {
        Some(code::FIELD_NUMBER) => after.name_number()? == HISTORY_NUMBER,
        Some(_) => after.name()? == HISTORY_NAME,
        None => return Err(Unusual),
    };
    if is_history {
        after.code()?.ok_or(Unusual)?;
        after.step_over()?;
        *body = after;
    }
    body.name()
}

/// The kind of a value; the names of kinds are those of the reference.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Integer { least: i64, greatest: i64, bytes: usize },
    Float,
    Float32,
    Decimal,
    Text,
    Enum(Vec<Box<str>>),
    OpenEnum,
    Boolean,
    Bytes,
    Date,
    Moment,
    Uuid,
    Message(Box<Message>),
    List(Box<Shape>),
}

/// A kind, and whether null is a value of it.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Shape {
    pub kind: Kind,
    pub is_nullable: bool,
}

/// The value of a field that is not there.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Default {
    Required,
    Null,
    Whole(i64),
    Float(f64),
    Boolean(bool),
    Text(Box<str>),
    Bytes(Box<[u8]>),
    Decimal(i128),
    NoItems,
}

/// The fields of a message.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Message {
    pub names: Names,
    pub type_name: Box<str>,
    pub shapes: Vec<Shape>,
    pub defaults: Vec<Default>,
}

/// Steps over a type name in front of a message, which must be that of its class.
#[inline]
pub fn check_type(body: &mut Body<'_>, type_name: &str) -> Read<()> {
    if body.code()? == Some(code::TYPE_PREFIX) {
        body.pass_code()?;
        if body.prefixed_text()? != type_name {
            return Err(Unusual);
        }
    }
    Ok(())
}
