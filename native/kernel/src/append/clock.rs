//! The clocks of the machine, or the time that is given instead.
//!
//! A laboratory runs several hosts in one thread, each with a time of its own. It gives that time
//! before it lets the kernel work for a host, and everything that is asked here is answered so.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{clock_gettime, ClockId};

static IS_GIVEN: AtomicBool = AtomicBool::new(false);
static GIVEN_NS: AtomicI64 = AtomicI64::new(0);
static GIVEN_MS: AtomicI64 = AtomicI64::new(0);

/// From now on it is that time: nanoseconds of the monotonic clock, milliseconds since 1970.
/// `None` gives the time back to the machine.
pub fn give(time: Option<(i64, i64)>) {
    if let Some((monotonic_ns, wall_ms)) = time {
        GIVEN_NS.store(monotonic_ns, Ordering::Relaxed);
        GIVEN_MS.store(wall_ms, Ordering::Relaxed);
    }
    IS_GIVEN.store(time.is_some(), Ordering::Relaxed);
}

/// The time now on the clock that frames and logs name.
pub fn monotonic_ns() -> i64 {
    if IS_GIVEN.load(Ordering::Relaxed) {
        return GIVEN_NS.load(Ordering::Relaxed);
    }
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// The milliseconds since 1970.
pub fn wall_ms() -> i64 {
    if IS_GIVEN.load(Ordering::Relaxed) {
        return GIVEN_MS.load(Ordering::Relaxed);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
