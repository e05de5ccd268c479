//! Any bytes as documents that are printed: a text or none, and memory that the input bounds.

#![no_main]

use cqrepl_document::printed::{items_text, Choices};
use cqrepl_document::shown::{document_line, excerpt_line, Form};
use libfuzzer_sys::fuzz_target;

/// A byte is printed as so many at most: at the greatest depth, on a line of its own.
const GROWTH_MAX: usize = 400;

fuzz_target!(|input: (&[u8], bool, bool)| {
    let (data, folds_unused, is_typed) = input;
    let bound = GROWTH_MAX * (data.len() + 1);
    if let Ok(text) = items_text(data, Choices { folds_unused, is_typed }, String::new()) {
        assert!(text.len() <= bound);
    }
    for form in [Form::Flow, Form::Json { is_dense: folds_unused }] {
        for print in [document_line, excerpt_line] {
            let mut out = String::new();
            if print(data, form, &mut out).is_ok() {
                assert!(out.len() <= bound);
                assert!(!out.contains('\n'));
            }
        }
    }
});
