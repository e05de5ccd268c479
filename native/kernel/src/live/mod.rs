//! The live pumps of a source and of a sink, and the word watch, each in a thread of its own.
//!
//! ```text
//! source_pump  sends excerpts of mapped files as frames to a socket
//! source_lane  one queue in the pump of a source
//! recorded     what writers recorded, which a lane is held against before anything is sent
//! sink_pump    stores frames from a socket as excerpts, in one queue or several
//! acks         acknowledgements, as a sink writes them and a source takes them in
//! board        how far each host is, and threads that wait for that
//! control      how the event loop calls a pump back, and hands it bytes
//! pauser       how a source waits for the next excerpt
//! words        a look at words again and again, for sources that rest
//! ```

pub mod acks;
pub mod board;
pub mod control;
pub mod pauser;
pub mod recorded;
pub mod sink_pump;
pub mod source_lane;
pub mod source_pump;
pub mod words;
