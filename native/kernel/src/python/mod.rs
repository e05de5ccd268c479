//! What Python sees: arguments go in, results come out, and the GIL is released in between.
//!
//! ```text
//! extension      the module itself, with the names of all functions and classes
//! functions      the functions on batches
//! atomic_words   words that processes share
//! pen_class      the pen
//! board_classes  how far each host is, and threads that wait for that
//! lane_tables    the states of lanes, and the moves between them
//! live_classes   the live pumps, and what they share with the event loop
//! word_looks     a look at words, again and again, until one changes
//! ```

mod atomic_words;
mod board_classes;
mod extension;
mod functions;
mod lane_tables;
mod live_classes;
mod pen_class;
mod word_looks;
