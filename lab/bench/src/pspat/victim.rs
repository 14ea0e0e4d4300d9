//! A client that sends little, whose packets' delay is measured.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use fairlane_core::{FlowId, Nanos, Packet, Weight};
use fairlane_runtime::{Clock, Outlet, Release};
use hdrhistogram::Histogram;

/// Longest delay that is resolved, in nanoseconds: ten seconds.
const LONGEST: u64 = 10_000_000_000;

/// How much and with which weight.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    pub packets_per_second: u32,
    pub weight: Weight,
}

impl Victim {
    /// Calls `push` as often as it says, each time in time or late, never in a hurry to
    /// catch up.
    pub fn pace(
        &self,
        clock: Clock,
        done: &AtomicBool,
        mut push: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let interval = Nanos(1_000_000_000 / u64::from(self.packets_per_second));
        let mut next = clock.now();
        while !done.load(Ordering::Relaxed) {
            let now = clock.now();
            if now < next {
                thread::sleep(next.since(now).into());
                continue;
            }
            next = next.max(now - interval) + interval;
            push()?;
        }
        Ok(())
    }
}

/// When its packets were pushed that were not released yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Pushes(Arc<Mutex<VecDeque<Nanos>>>);

impl Pushes {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Nanos>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// About to push at `now`.
    pub(super) fn started(&self, now: Nanos) {
        self.lock().push_back(now);
    }

    /// It was not taken.
    pub(super) fn refused(&self) {
        self.lock().pop_back();
    }

    fn released(&self) -> Option<Nanos> {
        self.lock().pop_front()
    }
}

/// The delays of one flow's packets, from their push to their release.
pub(super) struct Watch {
    pub flow: FlowId,
    pub pushes: Pushes,
    pub clock: Clock,
    delays: Histogram<u64>,
}

impl Watch {
    pub(super) fn new(flow: FlowId, clock: Clock) -> Result<Watch> {
        Ok(Watch {
            flow,
            pushes: Pushes::default(),
            clock,
            delays: Histogram::new_with_bounds(1, LONGEST, 3).context("a histogram of delays")?,
        })
    }

    #[cold]
    pub(super) fn released(&mut self) {
        if let Some(pushed) = self.pushes.released() {
            self.delays
                .saturating_record(self.clock.now().since(pushed).0);
        }
    }

    /// Resets the measurements.
    pub(super) fn forget(&mut self) {
        self.delays.reset();
    }

    pub(super) fn delays(&self) -> &Histogram<u64> {
        &self.delays
    }
}

/// An output that watches one flow.
pub(super) struct Watched<R> {
    inner: R,
    watch: Option<Watch>,
    /// Released and perhaps not on its way.
    released: u32,
}

impl<R> Watched<R> {
    pub(super) fn new(inner: R, watch: Option<Watch>) -> Watched<R> {
        Watched {
            inner,
            watch,
            released: 0,
        }
    }

    pub(super) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    pub(super) fn watch_mut(&mut self) -> Option<&mut Watch> {
        self.watch.as_mut()
    }

    /// Marks the released packet as in flight.
    #[inline]
    fn sent(&mut self) {
        if let Some(watch) = &mut self.watch {
            for _ in 0..std::mem::take(&mut self.released) {
                watch.released();
            }
        }
    }
}

impl<P, R: Release<P>> Release<P> for Watched<R> {
    fn joined(&mut self, flow: FlowId, outlet: Option<Outlet>) {
        self.inner.joined(flow, outlet);
    }

    fn left(&mut self, flow: FlowId) {
        self.inner.left(flow);
    }

    fn dropped(&mut self, flow: FlowId, position: u64) {
        self.inner.dropped(flow, position);
    }

    #[inline]
    fn release(&mut self, packet: Packet<P>) {
        if let Some(watch) = &self.watch
            && watch.flow == packet.owner
        {
            self.released += 1;
        }
        self.inner.release(packet);
    }

    #[inline]
    fn visit(&mut self, flow: FlowId) -> usize {
        let told = self.inner.visit(flow);
        if told > 0 && self.watch.as_ref().is_some_and(|watch| watch.flow == flow) {
            self.sent();
        }
        told
    }

    #[inline]
    fn flush(&mut self, more: bool) -> io::Result<usize> {
        let sent = self.inner.flush(more)?;
        if sent > 0 {
            self.sent();
        }
        Ok(sent)
    }

    fn waiting(&self) -> usize {
        self.inner.waiting()
    }
}
