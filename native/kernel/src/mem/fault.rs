//! What can be wrong with the arguments.

/// Why a batch cannot be handled. Each is a Python exception in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A number points outside of its buffer, or makes no sense: `ValueError`.
    Value(&'static str),
    /// A number does not fit into 64 bits: `OverflowError`.
    Overflow(&'static str),
    /// No memory for the results: `MemoryError`.
    Memory,
}

impl From<std::collections::TryReserveError> for Fault {
    fn from(_: std::collections::TryReserveError) -> Self {
        Fault::Memory
    }
}

/// An excerpt's offset or length points outside of the data.
pub const EXCERPT_OUTSIDE: Fault = Fault::Value("expected excerpts within the data");
/// `start` and `count` do not name a part of the batch.
pub const PART_OUTSIDE: Fault = Fault::Value("expected a part of the batch");
/// Positions start at 0 and lie within the buffer.
pub const POSITION_OUTSIDE: Fault = Fault::Value("expected a position within the buffer");
/// The header's length field has 30 bits.
pub const TOO_LONG: Fault = Fault::Value("expected a body that a header can tell the length of");

/// A number that Python gave, as an offset.
pub fn offset(number: i64, fault: Fault) -> Result<usize, Fault> {
    usize::try_from(number).map_err(|_| fault)
}

/// Puts one more number at the end; memory that is not there is no panic.
pub fn push<T>(numbers: &mut Vec<T>, number: T) -> Result<(), Fault> {
    if numbers.len() == numbers.capacity() {
        numbers.try_reserve(numbers.len().max(64))?;
    }
    numbers.push(number);
    Ok(())
}
