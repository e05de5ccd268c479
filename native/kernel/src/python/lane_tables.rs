//! The states of lanes for Python, which holds its own tables against these.

use pyo3::prelude::*;

use crate::live::lane_moves::{LaneStates, SinkLaneState, SourceLaneState};

type Names = Vec<&'static str>;
/// The states, the moves, and each move that is allowed: places of a state, a move and the next state.
type Table = (Names, Names, Vec<(usize, usize, u8)>);

/// The states of the lanes of a source, and of those of a sink.
#[pyfunction]
pub fn lane_tables() -> (Table, Table) {
    (table::<SourceLaneState>(), table::<SinkLaneState>())
}

fn table<S: LaneStates>() -> Table {
    let mut allowed = Vec::new();
    for (nth, &(state, _)) in S::STATES.iter().enumerate() {
        for (nth_move, &(made, _)) in S::MOVES.iter().enumerate() {
            if let Some(after) = state.after(made) {
                allowed.push((nth, nth_move, after.nth()));
            }
        }
    }
    let states = S::STATES.iter().map(|&(_, name)| name).collect();
    (states, S::MOVES.iter().map(|&(_, name)| name).collect(), allowed)
}
