//! What is gathered are the payloads, or there is an error.

#![no_main]

use cqrepl_kernel::batch::columns;
use cqrepl_kernel::mem::{Longs, Source, Target};
use cqrepl_kernel_fuzz::{Batch, Room};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Batch, Room)| {
    let (batch, Room(mut room)) = input;
    let data = Source::from(&*batch.data);
    let (offsets, lengths) = (Longs::from(&*batch.offsets), Longs::from(&*batch.lengths));
    let _ = columns::gather(data, offsets, lengths, Target::from(&mut *room));
    let Ok(ends) = columns::ends(data, offsets, lengths) else { return };
    assert_eq!(ends.len(), batch.lengths.len() + 1);
    let total = ends.last().map_or(0, |&end| end as usize);
    let mut out = vec![0; total];
    assert_eq!(columns::gather(data, offsets, lengths, Target::from(&mut *out)), Ok(total));
    for nth in 0..batch.lengths.len() {
        let (start, end) = (ends[nth] as usize, ends[nth + 1] as usize);
        assert_eq!(Some(&out[start..end]), batch.payload(nth));
    }
});
