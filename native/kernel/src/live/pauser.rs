//! How a source waits for the next excerpt: it spins, yields, then sleeps, longer and longer.
//!
//! A sleep of a few microseconds and the wake-up behind it cost more than all the rest of a delay.
//! So a balanced pauser learns how long the gap between excerpts usually is, and stays awake while
//! the next one is due: from half of that gap on, and half of it longer. What comes at no regular
//! time is still found by short sleeps. That takes half a core at most, while excerpts come often,
//! and nothing when they do not.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

/// How much of a core a source may spend on being quick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pausing {
    /// The source never sleeps.
    Busy,
    /// The source stays awake while the next excerpt is due, sleeps briefly while excerpts come,
    /// and long when they do not.
    Balanced,
    /// The source always sleeps long.
    Sleepy,
    /// The source does not wait: it has one look, and the time counts as over.
    Step,
}

impl Pausing {
    /// The way to pause of that number, as `cqrepl.kernel.live` counts them.
    pub fn of(number: u8) -> Option<Self> {
        [Pausing::Busy, Pausing::Balanced, Pausing::Sleepy, Pausing::Step]
            .get(usize::from(number))
            .copied()
    }
}

const SPINS: u32 = 300;
const SPINS_BUSY: u32 = 20;
const SLEEP_MIN: Duration = Duration::from_micros(10);
/// A virtual CPU that wakes costs about 20 us: three hundred times a second is less than 1 % of a
/// core.
const SLEEP_MAX: Duration = Duration::from_millis(3);
const SLEEP_SLEEPY: Duration = Duration::from_millis(8);
/// For so long the sleeps stay short: about two dozen of them cost less than one excerpt that comes
/// late.
const AWAKE: Duration = Duration::from_millis(20);
const TIMER_SLACK_NS: u64 = 1_000;
/// The longest usual gap in whose second half the pauser stays awake.
const GAP_MAX: Duration = Duration::from_millis(2);
/// How much of the usual gap the last one makes: a single odd one is soon forgotten.
const GAP_SHARE: u32 = 4;

/// Has the system wake this thread on time: otherwise a sleep of 10 us takes 60.
///
/// The thread stays so afterwards, which harms no later use of it.
pub fn sleep_to_the_microsecond() {
    let _ = set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
}

/// Counts the looks that have found nothing, and waits between them.
pub struct Pauser {
    pausing: Pausing,
    looks: u32,
    sleep: Duration,
    found_at: Instant,
    gaps: Gaps,
}

/// How long it usually takes until something is found again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gaps {
    last: Option<Instant>,
    usual: Option<Duration>,
}

impl Gaps {
    /// Something was found now.
    pub fn found(&mut self, now: Instant) {
        if let Some(last) = self.last {
            // one long gap is no news of those that follow
            let gap = now.saturating_duration_since(last).min(2 * GAP_MAX);
            let usual = self.usual.unwrap_or(gap);
            self.usual = Some((usual * (GAP_SHARE - 1) + gap) / GAP_SHARE);
        }
        self.last = Some(now);
    }

    /// True while the next one is due, if it comes when it usually does.
    pub fn is_due(&self, now: Instant) -> bool {
        let (Some(last), Some(usual)) = (self.last, self.usual) else {
            return false;
        };
        let since = now.saturating_duration_since(last);
        usual <= GAP_MAX && since >= usual / 2 && since < usual * 3 / 2
    }
}

impl Pauser {
    /// A pauser as if something had been found just now, or with `is_idle` nothing for long.
    pub fn new(pausing: Pausing, is_idle: bool) -> Self {
        let (looks, sleep) =
            if is_idle { (SPINS.max(SPINS_BUSY), SLEEP_MAX) } else { (0, SLEEP_MIN) };
        Pauser { pausing, looks, sleep, found_at: Instant::now(), gaps: Gaps::default() }
    }

    /// Begins again with the shortest pause, as something was found.
    pub fn reset(&mut self) {
        self.looks = 0;
        self.sleep = SLEEP_MIN;
        if self.pausing == Pausing::Balanced {
            self.gaps.found(Instant::now());
        }
    }

    /// True while something was found not long ago.
    pub fn is_awake(&self, now: Instant) -> bool {
        let was_found = now.saturating_duration_since(self.found_at) <= 2 * AWAKE;
        self.looks < SPINS_BUSY || (self.sleep < SLEEP_MAX && was_found)
    }

    /// Waits before the next look, for longer times by `sleep`; the answer is the time now, if the
    /// pause has asked for it.
    pub fn pause(&mut self, sleep: impl FnOnce(Duration)) -> Option<Instant> {
        self.looks = self.looks.saturating_add(1);
        let spins = match self.pausing {
            Pausing::Busy => SPINS_BUSY,
            Pausing::Step => 0,
            Pausing::Balanced | Pausing::Sleepy => SPINS,
        };
        if self.looks < spins {
            std::hint::spin_loop();
            return None;
        }
        let now = Instant::now();
        if self.looks == spins {
            self.found_at = now;
        }
        match self.pausing {
            Pausing::Busy => rustix::thread::sched_yield(),
            Pausing::Balanced if self.gaps.is_due(now) => rustix::thread::sched_yield(),
            Pausing::Balanced => {
                sleep(self.sleep);
                if now.saturating_duration_since(self.found_at) > AWAKE {
                    self.sleep = (self.sleep * 3 / 2).min(SLEEP_MAX);
                }
            }
            Pausing::Sleepy => sleep(SLEEP_SLEEPY),
            Pausing::Step => {}
        }
        Some(now)
    }
}
