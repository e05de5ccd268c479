//! What Python sees: arguments in, results out, and the GIL released in between.

pub mod functions;
pub mod live_classes;
pub mod pen_class;
