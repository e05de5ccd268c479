//! The states of a lane, and the moves from one to another: those of `cqrepl.protocol.states`. A test
//! holds the two against each other.
//!
//! A lane notes which moves it has made, as a bit for each pair of a state and a move. The event loop
//! holds them against its own table when a pump is back. A move is made where something changes, not
//! for each excerpt, and by one thread at a time: that of the pump that has the lane, or the event loop's.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};

/// One kind of states, and the moves between them. There are at most 64 pairs of both.
pub trait LaneStates: Copy + 'static {
    /// What leads from one to another.
    type Move: Copy + 'static;
    /// All of them in their order, with their names in Python; the first one is that of a new lane.
    const STATES: &'static [(Self, &'static str)];
    /// All moves in their order, with their names in Python.
    const MOVES: &'static [(Self::Move, &'static str)];

    /// The state after a move; `None` where it is not allowed.
    fn after(self, made: Self::Move) -> Option<Self>;
    /// The place of a state in its order.
    fn nth(self) -> u8;
    /// The place of a move in its order.
    fn nth_move(made: Self::Move) -> u8;
}

/// A queue that goes out, in one live pump after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceLaneState {
    /// No pump has it, and the next one may go on with it.
    Kept,
    /// A pump has it, and frames what appears.
    Live,
    /// A pump has it, and there was more than could be sent when it was looked at last: others go
    /// first.
    Behind,
    /// A pump has it and frames no more: the tailer has to look at what stands there.
    ForTailer,
    /// Its file is not mapped any more.
    LetGo,
}

/// What moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceLaneMove {
    /// A pump gets it, as one that may have nothing to catch up with.
    Lend,
    /// A pump gets it, as one that had more than could be sent.
    LendBehind,
    /// There was more than could be sent.
    FallBehind,
    /// All that was there is sent.
    ComeUp,
    /// Something stands there that is not the business of a pump.
    MeetOther,
    /// The pump is back.
    ComeBack,
    /// Its file is not needed any more.
    LetGo,
}

impl LaneStates for SourceLaneState {
    type Move = SourceLaneMove;

    const STATES: &'static [(Self, &'static str)] = &[
        (SourceLaneState::Kept, "KEPT"),
        (SourceLaneState::Live, "LIVE"),
        (SourceLaneState::Behind, "BEHIND"),
        (SourceLaneState::ForTailer, "FOR_TAILER"),
        (SourceLaneState::LetGo, "LET_GO"),
    ];
    const MOVES: &'static [(SourceLaneMove, &'static str)] = &[
        (SourceLaneMove::Lend, "LEND"),
        (SourceLaneMove::LendBehind, "LEND_BEHIND"),
        (SourceLaneMove::FallBehind, "FALL_BEHIND"),
        (SourceLaneMove::ComeUp, "COME_UP"),
        (SourceLaneMove::MeetOther, "MEET_OTHER"),
        (SourceLaneMove::ComeBack, "COME_BACK"),
        (SourceLaneMove::LetGo, "LET_GO"),
    ];

    fn after(self, made: SourceLaneMove) -> Option<Self> {
        use SourceLaneMove as Move;
        use SourceLaneState::{Behind, ForTailer, Kept, LetGo, Live};
        match (self, made) {
            (Kept, Move::Lend) | (Behind, Move::ComeUp) => Some(Live),
            (Kept, Move::LendBehind) | (Live, Move::FallBehind) => Some(Behind),
            (Live | Behind, Move::MeetOther) => Some(ForTailer),
            (Live | Behind | ForTailer, Move::ComeBack) => Some(Kept),
            (Kept, Move::LetGo) => Some(LetGo),
            _ => None,
        }
    }

    fn nth(self) -> u8 {
        self as u8
    }

    fn nth_move(made: SourceLaneMove) -> u8 {
        made as u8
    }
}

/// A queue that comes in, in one live pump after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkLaneState {
    /// No pump has it.
    Kept,
    /// A pump has it, and what was stored is acknowledged, or is not to be.
    Quiet,
    /// A pump has it, and holds an acknowledgement back.
    Due,
    /// A pump has it and stores no more: the pen refuses what has come.
    Refused,
    /// The same, and an acknowledgement is held back.
    RefusedDue,
    /// The connection broke while a pump had it.
    Lost,
}

/// What moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkLaneMove {
    /// A pump gets it.
    Lend,
    /// The first excerpts behind an acknowledgement are stored.
    Store,
    /// What was stored is acknowledged, or the source does not want to hear of it.
    Acknowledge,
    /// What was stored is in a file that has no name any more: it is never acknowledged.
    Disown,
    /// The pen refuses.
    Refuse,
    /// The pump is back.
    ComeBack,
    /// The connection breaks.
    Lose,
}

impl LaneStates for SinkLaneState {
    type Move = SinkLaneMove;

    const STATES: &'static [(Self, &'static str)] = &[
        (SinkLaneState::Kept, "KEPT"),
        (SinkLaneState::Quiet, "QUIET"),
        (SinkLaneState::Due, "DUE"),
        (SinkLaneState::Refused, "REFUSED"),
        (SinkLaneState::RefusedDue, "REFUSED_DUE"),
        (SinkLaneState::Lost, "LOST"),
    ];
    const MOVES: &'static [(SinkLaneMove, &'static str)] = &[
        (SinkLaneMove::Lend, "LEND"),
        (SinkLaneMove::Store, "STORE"),
        (SinkLaneMove::Acknowledge, "ACKNOWLEDGE"),
        (SinkLaneMove::Disown, "DISOWN"),
        (SinkLaneMove::Refuse, "REFUSE"),
        (SinkLaneMove::ComeBack, "COME_BACK"),
        (SinkLaneMove::Lose, "LOSE"),
    ];

    fn after(self, made: SinkLaneMove) -> Option<Self> {
        use SinkLaneMove as Move;
        use SinkLaneState::{Due, Kept, Lost, Quiet, Refused, RefusedDue};
        match (self, made) {
            (Kept, Move::Lend) | (Due, Move::Acknowledge | Move::Disown) => Some(Quiet),
            (Quiet, Move::Store) => Some(Due),
            (Quiet, Move::Refuse) => Some(Refused),
            (Due, Move::Refuse) => Some(RefusedDue),
            (RefusedDue, Move::Acknowledge | Move::Disown) => Some(Refused),
            (Quiet | Refused, Move::ComeBack) => Some(Kept),
            (Quiet | Due | Refused | RefusedDue, Move::Lose) => Some(Lost),
            _ => None,
        }
    }

    fn nth(self) -> u8 {
        self as u8
    }

    fn nth_move(made: SinkLaneMove) -> u8 {
        made as u8
    }
}

/// The state of one lane, and the moves that it has made.
pub struct LaneMoves<S> {
    state: AtomicU8,
    made: AtomicU64,
    states: PhantomData<S>,
}

impl<S: LaneStates> LaneMoves<S> {
    /// Of a new lane.
    pub fn new() -> Self {
        LaneMoves { state: AtomicU8::new(0), made: AtomicU64::new(0), states: PhantomData }
    }

    /// Makes a move. One that is not allowed leads nowhere, and is noted like the others.
    pub fn make(&self, made: S::Move) {
        let nth = usize::from(self.state.load(Ordering::Relaxed));
        let pair = nth * S::MOVES.len() + usize::from(S::nth_move(made));
        let before = self.made.load(Ordering::Relaxed); // no other thread has the lane
        self.made.store(before | (1 << pair), Ordering::Relaxed);
        let after = S::STATES.get(nth).and_then(|&(state, _)| state.after(made));
        debug_assert!(after.is_some(), "a move that is in the table");
        if let Some(after) = after {
            self.state.store(after.nth(), Ordering::Relaxed);
        }
    }

    /// The place of its state in their order.
    pub fn nth(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    /// The moves since the last call, as a bit for each pair of a state and a move.
    pub fn take(&self) -> u64 {
        self.made.swap(0, Ordering::Relaxed)
    }
}

impl<S: LaneStates> Default for LaneMoves<S> {
    fn default() -> Self {
        Self::new()
    }
}
