//! The runs that the lanes of a source have found last: what goes to many sinks is found once.
//!
//! A lane that has walked over the headers of a run, and held them against what is recorded, keeps
//! what it has found here. Another lane of the same file that comes to one of these excerpts sends
//! the rest of that run without a walk, and is then where the first one was. Only so many runs are
//! kept: sinks that stand far from one another find their own. So does a lane that comes while
//! another thread looks or keeps something here: none waits for a thread that may not be running.
//!
//! The bytes are never kept. A lane sends those of the file as it has mapped it, after a look at the
//! first and the last header; the sink walks over all of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::batch::documents::HEADER_BYTES;
use crate::batch::runs::gap_behind;
use crate::mem::Source;

/// The number of an open queue, see `FoundRuns::next_queue`, and that of a file of it.
pub type File = (u64, u64);

/// So many runs are kept,
const RUNS_MAX: usize = 1024;
/// with the lengths of so many excerpts in all: 2 MiB. Sinks that catch up
/// together were found to be several megabytes apart.
const EXCERPTS_MAX: usize = 512 << 10;

/// A run, and where a lane is behind it.
pub struct FoundRun {
    /// The index of the first excerpt.
    pub index: i64,
    /// The position of the first header.
    pub start: usize,
    /// The position behind the last payload.
    pub end: usize,
    /// The lengths of the payloads.
    pub lengths: Vec<u32>,
    /// The position of the header that comes next, or of a document before it.
    pub position: i64,
    /// The position of the last header.
    pub position_last: i64,
    /// All documents before this position agree with what is recorded.
    pub certain_end: i64,
    /// The bytes from one slot to the next, as a lane has them.
    pub stretch_bytes: usize,
}

/// What is left of a run from one of its excerpts on.
pub struct RestOfRun {
    /// The run.
    pub run: Arc<FoundRun>,
    /// How many excerpts come before the rest.
    pub skipped: usize,
    /// The position of the first header of the rest.
    pub start: usize,
}

impl RestOfRun {
    /// The lengths of its payloads.
    pub fn lengths(&self) -> &[u32] {
        self.run.lengths.get(self.skipped..).unwrap_or_default()
    }

    /// The bytes from its first header to the end of the last payload.
    pub fn size(&self) -> usize {
        self.run.end.saturating_sub(self.start)
    }

    /// True when the first and the last header stand in the file as they were found, and no payload
    /// is longer than allowed.
    pub fn stands_in(&self, store: Source, payload_max: i64) -> bool {
        let lengths = self.lengths();
        let stands = |at: usize, length: Option<&u32>| {
            length.is_some() && store.header(at).as_ref() == length
        };
        stands(self.start, lengths.first())
            && usize::try_from(self.run.position_last).is_ok_and(|at| stands(at, lengths.last()))
            && lengths.iter().max().is_some_and(|&longest| i64::from(longest) <= payload_max)
    }
}

/// Where a run begins: its file, and the index of its first excerpt.
type Start = (File, i64);

#[derive(Default)]
struct Kept {
    runs: BTreeMap<Start, Arc<FoundRun>>,
    /// The same, the oldest first.
    in_order: VecDeque<Start>,
    excerpts: usize,
}

/// The runs found last. Any lane in any thread may look, and keep what it has found.
#[derive(Default)]
pub struct FoundRuns {
    kept: Mutex<Kept>,
    queues: AtomicU64,
}

impl FoundRuns {
    /// A number for a queue that is opened now. Another one each time: until then the queue's tail
    /// may have been cut off, and other excerpts may stand there in the same file.
    pub fn next_queue(&self) -> u64 {
        self.queues.fetch_add(1, Ordering::Relaxed)
    }

    /// What is known of a file from the excerpt with this index on.
    pub fn from(&self, file: File, index: i64) -> Option<RestOfRun> {
        let run = {
            let kept = self.kept.try_lock().ok()?;
            let (_, run) = kept.runs.range((file, i64::MIN)..=(file, index)).next_back()?;
            Arc::clone(run)
        };
        let skipped = usize::try_from(index - run.index).ok()?;
        let before = run.lengths.get(..skipped).filter(|_| skipped < run.lengths.len())?;
        let bytes = |&length: &u32| HEADER_BYTES + length as usize + gap_behind(length as usize);
        let start = run.start + before.iter().map(bytes).sum::<usize>();
        Some(RestOfRun { run, skipped, start })
    }

    /// Keeps a run of a file, and lets the oldest ones go. Nothing when one is kept that begins with
    /// the same excerpt.
    pub fn keep(&self, file: File, run: FoundRun) {
        let (start, count) = ((file, run.index), run.lengths.len());
        let Ok(mut kept) = self.kept.try_lock() else {
            return;
        };
        if kept.runs.contains_key(&start) {
            return;
        }
        kept.excerpts += count;
        kept.in_order.push_back(start);
        kept.runs.insert(start, Arc::new(run));
        while kept.runs.len() > RUNS_MAX || kept.excerpts > EXCERPTS_MAX {
            let Some(oldest) = kept.in_order.pop_front() else { break };
            kept.excerpts -= kept.runs.remove(&oldest).map_or(0, |run| run.lengths.len());
        }
    }
}
