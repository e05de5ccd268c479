//! Tells a thread what live pumps have stored, with no event loop on the way.

use std::collections::BTreeMap;
use std::io;
use std::mem::take;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::event::{eventfd, EventfdFlags};

use crate::live::control::locked;

/// One bell for any number of lanes; one thread waits for it.
pub struct StoredBell {
    /// The last index of what was stored, by the number of its lane.
    news: Mutex<BTreeMap<u64, i64>>,
    /// Its counter is more than 0 when there may be news.
    rung: OwnedFd,
}

impl StoredBell {
    /// A bell that has not rung.
    pub fn new() -> io::Result<Self> {
        let rung = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(StoredBell { news: Mutex::default(), rung })
    }

    /// Everything up to this index was stored in the lane of this number.
    pub fn tell(&self, number: u64, index: i64) {
        locked(&self.news).insert(number, index);
        self.ring();
    }

    /// Wakes who waits.
    pub fn ring(&self) {
        // it fails only at a signal, and blocks only behind 2^64 rings that were not heard
        let _ = rustix::io::write(&self.rung, &1_u64.to_ne_bytes());
    }

    /// Waits until it rings, or a signal comes, and takes what there is to tell.
    pub fn wait(&self) -> Vec<(u64, i64)> {
        let _ = rustix::io::read(&self.rung, &mut [0; 8]);
        take(&mut *locked(&self.news)).into_iter().collect()
    }
}
