//! Any bytes as documents of one schema: a row is whole or is not there, and nothing is read outside.

#![no_main]

use cqrepl_document::columns::{Batch, Column, Values};
use cqrepl_document::shapes::{Default, Kind, Message, Names, Shape};
use libfuzzer_sys::fuzz_target;

fn shape(kind: Kind, is_nullable: bool) -> Shape {
    Shape { kind, is_nullable }
}

fn message(inner: Option<Message>) -> Message {
    let integer = Kind::Integer { least: -128, greatest: 127, bytes: 1 };
    let mut fields = vec![
        ("i", shape(integer, false), Default::Whole(1)),
        ("f", shape(Kind::Float, true), Default::Null),
        ("g", shape(Kind::Float32, false), Default::Float(0.5)),
        ("d", shape(Kind::Decimal, true), Default::Decimal(1)),
        ("s", shape(Kind::Text, false), Default::Text("x".into())),
        ("e", shape(Kind::Enum(vec!["A".into(), "B".into()]), true), Default::Null),
        ("o", shape(Kind::OpenEnum, false), Default::Text("A".into())),
        ("b", shape(Kind::Boolean, false), Default::Boolean(true)),
        ("y", shape(Kind::Bytes, true), Default::Bytes((*b"ab").into())),
        ("t", shape(Kind::Date, true), Default::Null),
        ("m", shape(Kind::Moment, true), Default::Null),
        ("u", shape(Kind::Uuid, true), Default::Null),
    ];
    let items = Kind::List(Box::new(shape(Kind::Text, true)));
    fields.push(("l", shape(items, true), Default::NoItems));
    if let Some(inner) = inner {
        fields.push(("n", shape(Kind::Message(Box::new(inner)), true), Default::Null));
    }
    let names = fields.iter().map(|(name, ..)| name.as_bytes().into()).collect();
    let (mut shapes, mut defaults) = (Vec::new(), Vec::new());
    for (_, shape, default) in fields {
        shapes.push(shape);
        defaults.push(default);
    }
    Message { names: Names::new(names).expect("few"), type_name: "T".into(), shapes, defaults }
}

fn check(column: &Column, count: usize) {
    if let Values::Nothing = column.values {
        return;
    }
    assert_eq!(column.is_there.len(), count);
    match &column.values {
        Values::Fixed { width, bytes } => assert_eq!(bytes.len(), width * count),
        Values::Flags(flags) => assert_eq!(flags.len(), count),
        Values::Variable { ends, bytes } => {
            assert_eq!(ends.len(), count + 1);
            assert_eq!(ends.last().copied(), Some(bytes.len() as i64));
        }
        Values::Struct(columns) => columns.iter().for_each(|each| check(each, count)),
        Values::List { ends, item } => {
            assert_eq!(ends.len(), count + 1);
            check(item, ends.last().copied().expect("one") as usize);
        }
        Values::Nothing => {}
    }
}

fuzz_target!(|input: (Vec<&[u8]>, bool, u16)| {
    let (documents, is_called, wanted) = input;
    let message = message(Some(message(None)));
    let is_wanted: Vec<bool> = (0..message.shapes.len()).map(|at| wanted >> at & 1 != 0).collect();
    let mut batch = Batch::new(&message, &is_wanted);
    let event = is_called.then_some(&b"e"[..]);
    let mut rows = 0;
    for document in documents {
        rows += usize::from(batch.read(&message, event, document).is_ok());
        assert_eq!(batch.rows, rows);
        batch.columns.iter().for_each(|column| check(column, rows));
    }
});
