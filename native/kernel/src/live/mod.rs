//! The live pumps of a source and of a sink, each in a thread of its own.
//!
//! ```text
//! source_pump  excerpts of mapped files to frames to a socket
//! source_lane  one queue of a source in it
//! sink_pump    frames of a socket to excerpts, with the queues of a sink
//! acks         acknowledgements, written and taken in
//! control      how the event loop calls a pump back, and hands it bytes
//! pauser       how a source waits for the next excerpt
//! ```

pub mod acks;
pub mod control;
pub mod pauser;
pub mod sink_pump;
pub mod source_lane;
pub mod source_pump;
