//! The live pump of a connection, and the word watch, each in a thread of its own.
//!
//! ```text
//! pump         sends, receives and waits, for all the queues of a connection in both directions
//! outflow      what goes out: frames, and documents behind them
//! inflow       what comes in, and which lane takes it
//! source_lane  one queue that goes out: excerpts of a mapped file become frames
//! found_runs   runs that a lane has found, for the lanes of the same file to other sinks
//! recorded     what writers recorded, which a source's lane is held against before anything is sent
//! sink_lane    one queue that comes in: frames become excerpts
//! lane_moves   the states of both kinds of lanes, and the moves that one has made
//! stored_bell  tells a thread what was stored, with no event loop on the way
//! others       what comes besides, and whether the pump can run on meanwhile
//! acks         acknowledgements, as a sink writes them and a source takes them in
//! board        how far each host is, and threads that wait for that
//! control      how the event loop calls a pump back, and hands it bytes
//! pauser       how a source waits for the next excerpt
//! send_budget  how much all queues together may have sent that is not acknowledged
//! token_bucket how much may go out, where a connection has a limit
//! words        a look at words again and again, for sources that rest
//! ```

pub mod acks;
pub mod board;
pub mod control;
pub mod found_runs;
pub mod inflow;
pub mod lane_moves;
pub mod others;
pub mod outflow;
pub mod pauser;
pub mod pump;
pub mod recorded;
pub mod safe_word;
pub mod send_budget;
pub mod sink_lane;
pub mod source_lane;
pub mod stored_bell;
pub mod token_bucket;
pub mod words;
