//! What can be wrong with the arguments of a call.

/// Why a batch cannot be handled. Python sees each of these as an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A number points outside of its buffer, or makes no sense. Python gets a `ValueError`.
    Value(&'static str),
    /// A number does not fit into 64 bits. Python gets an `OverflowError`.
    Overflow(&'static str),
    /// There is no memory for the results. Python gets a `MemoryError`.
    Memory,
}

impl From<std::collections::TryReserveError> for Fault {
    fn from(_: std::collections::TryReserveError) -> Self {
        Fault::Memory
    }
}

/// The offset or length of an excerpt points outside of the data.
pub const EXCERPT_OUTSIDE: Fault = Fault::Value("expected excerpts within the data");
/// `start` and `count` do not name a part of the batch.
pub const PART_OUTSIDE: Fault = Fault::Value("expected a part of the batch");
/// An alignment is neither that of today's documents nor that of older ones.
pub const ALIGNMENT_UNKNOWN: Fault = Fault::Value("expected an alignment of 1 or 4 bytes");
/// A position is negative, or does not lie within the buffer.
pub const POSITION_OUTSIDE: Fault = Fault::Value("expected a position within the buffer");
/// A body is longer than the 30 bits of a header's length field can tell.
pub const TOO_LONG: Fault = Fault::Value("expected a body that a header can tell the length of");

/// The number that Python gave as an offset; the fault if it is below 0.
pub fn offset(number: i64, fault: Fault) -> Result<usize, Fault> {
    usize::try_from(number).map_err(|_| fault)
}

/// Puts a number behind the others. A lack of memory is a fault, and no panic.
pub fn push<T>(numbers: &mut Vec<T>, number: T) -> Result<(), Fault> {
    if numbers.len() == numbers.capacity() {
        numbers.try_reserve(numbers.len().max(64))?;
    }
    numbers.push(number);
    Ok(())
}
