//! A walk over documents looks at nothing outside of the store, and does not depend on where it is
//! interrupted.

#![no_main]

use cqrepl_kernel::batch::documents::{Limits, Walk, WalkStop};
use cqrepl_kernel::mem::Source;
use cqrepl_kernel_fuzz::{Number, Store};
use libfuzzer_sys::fuzz_target;

type Found = (u64, WalkStop, Vec<i64>, Vec<i64>);

fn walk(store: &[u8], position: i64, end: i64, limits: Limits, step: usize) -> Option<Found> {
    let mut walk = Walk::new(Source::from(store), position, end, limits).ok()?;
    loop {
        if let Some(stop) = walk.step(step).expect("there is memory") {
            return Some((walk.position, stop, walk.offsets, walk.lengths));
        }
    }
}

fuzz_target!(|input: (Store, Number, Option<Number>, [Option<Number>; 3])| {
    let (Store(store), Number(position), end, limits) = input;
    let end = end.map_or(store.len() as i64, |number| number.0);
    let [count, bytes, payload] = limits.map(|limit| limit.map_or(i64::MAX, |number| number.0));
    let limits = Limits { count, bytes, payload };
    let found = walk(&store, position, end, limits, usize::MAX);
    assert_eq!(found, walk(&store, position, end, limits, 1));
    assert_eq!(found.is_none(), position < 0 || end > store.len() as i64);
    let Some((_, _, offsets, lengths)) = found else { return };
    assert!(offsets.len() as i64 <= count.max(0));
    assert!(lengths.len() <= 1 || lengths.iter().sum::<i64>() <= bytes);
    for (&offset, &length) in offsets.iter().zip(&lengths) {
        assert!(0 < length && length <= payload && 4 <= offset && offset + length <= end);
    }
});
