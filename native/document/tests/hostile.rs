//! Lengths that lie and values that nest: an answer at once, and no memory for what is not there.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use cqrepl_document::columns::{Batch, Values};
use cqrepl_document::items::{is_framed, Body, Unusual};
use cqrepl_document::scalars;
use cqrepl_document::shapes::{Default, Kind, Message, Names, Shape};

fn message() -> Message {
    let names = ["sym", "qty", "legs"].map(|name| name.as_bytes().into());
    let item = Shape { kind: Kind::Text, is_nullable: true };
    let integer = Kind::Integer { least: i64::MIN, greatest: i64::MAX, bytes: 8 };
    Message {
        names: Names::new(names.to_vec()).expect("three names"),
        type_name: "Order".into(),
        shapes: vec![
            Shape { kind: Kind::Text, is_nullable: false },
            Shape { kind: integer, is_nullable: false },
            Shape { kind: Kind::List(Box::new(item)), is_nullable: false },
        ],
        defaults: vec![Default::Required, Default::Whole(7), Default::NoItems],
    }
}

#[test]
fn a_length_beyond_the_end_is_unusual() {
    for operand in [
        &[0x80, 0xff][..],
        &[0x81, 0xff, 0xff],
        &[0x82, 0xff, 0xff, 0xff, 0x7f],
        &[0x8e, 0xff, 0xff, 0xff, 0xff],
        &[0xb8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[0xbe, 0x80, 0x00],
        &[0xb6, 0xff, 0x01],
        &[0xa7, 1, 2, 3],
        &[0x8d, 0xff, 0xff, 0xff, 0xff],
        &[0xff],
    ] {
        assert_eq!(Body::new(operand).step_over(), Err(Unusual), "{operand:x?}");
    }
}

#[test]
fn a_row_that_breaks_off_leaves_no_value() {
    let message = message();
    let mut batch = Batch::new(&message, &[true, true, true]);
    let good = b"\xc3sym\xe1A\xc4legs\x82\x03\x00\x00\x00\xe1x\xbb";
    assert_eq!(batch.read(&message, None, good), Ok(()));
    for end in 1..good.len() {
        let _ = batch.read(&message, None, &good[..end]);
        let _ = batch.read(&message, None, &[&good[..end], b"\xc3qty\xe1x"].concat());
    }
    assert_eq!(batch.read(&message, None, b"\xc3sym\xe1B\xc3qty\xa1\x05"), Ok(()));
    for column in &batch.columns {
        assert_eq!(column.is_there.len(), batch.rows);
    }
    // of the shorter ones those are whole that end behind a field
    let Values::Variable { ends, bytes } = &batch.columns[0].values else { panic!("texts") };
    assert_eq!((ends.len(), bytes.len()), (batch.rows + 1, batch.rows));
    assert_eq!(bytes.last(), Some(&b'B'));
}

#[test]
fn framed_documents_are_told_in_time_of_their_count() {
    assert!(is_framed(b"\x01\x00\x00\x00\x05"));
    assert!(!is_framed(b"\xff\xff\xff\x3f\x05"));
    assert!(!is_framed(b""));
    assert!(is_framed(&b"\x00\x00\x00\x40".repeat(1000)));
}

#[test]
fn texts_of_decimals_and_times_keep_within_their_types() {
    assert_eq!(scalars::scaled_decimal(&"9".repeat(100)), Err(Unusual));
    assert_eq!(
        scalars::scaled_decimal("-99999999999999999999.5"),
        Ok(-99_999_999_999_999_999_999_500_000_000_000_000_000)
    );
    assert!(scalars::epoch_micros("9000-12-31T23:59:59.999999-18:00", true).is_ok());
    assert_eq!(scalars::epoch_day("1970-01-01"), Ok(0));
    assert_eq!(scalars::epoch_day("2024-02-30"), Err(Unusual));
}
