//! A backend that measures what passes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairlane_core::Nanos;
use fairlane_io::{Backend, Datagram, UdpBackend};
use fairlane_runtime::Clock;
use hdrhistogram::Histogram;

use crate::flow::{Flow, Flows, Outgoing};

/// Longest delay that is resolved, in nanoseconds: a minute.
const LONGEST: u64 = 60_000_000_000;

/// How often percentiles are made visible to other threads.
const PERIOD: Nanos = Nanos::from_millis(100);

/// A socket, with a histogram of delays for each flow that leaves by it.
pub(crate) struct Metered {
    socket: UdpBackend<Box<Outgoing>>,
    clock: Clock,
    flows: Flows,
    /// By the flow's number.
    meters: Vec<Option<Meter>>,
    /// Of the batch that is being transmitted: flow, payload length, push time.
    passing: Vec<(u32, usize, Nanos)>,
    publish_at: Nanos,
}

struct Meter {
    flow: Arc<Flow>,
    delays: Histogram<u64>,
}

impl Metered {
    pub(crate) fn new(socket: UdpBackend<Box<Outgoing>>, clock: Clock, flows: Flows) -> Self {
        Metered {
            socket,
            clock,
            flows,
            meters: Vec::new(),
            passing: Vec::new(),
            publish_at: Nanos::ZERO,
        }
    }

    fn publish(&self) {
        for Meter { flow, delays } in self.meters.iter().flatten() {
            let delay = &flow.delay;
            delay
                .p50
                .store(delays.value_at_quantile(0.5), Ordering::Relaxed);
            delay
                .p99
                .store(delays.value_at_quantile(0.99), Ordering::Relaxed);
            delay.max.store(delays.max(), Ordering::Relaxed);
        }
    }

    fn meter(&mut self, number: u32) -> io::Result<&mut Meter> {
        let index = number as usize;
        if index >= self.meters.len() {
            self.meters.resize_with(index + 1, || None);
        }
        match &mut self.meters[index] {
            Some(meter) => Ok(meter),
            none => {
                let flow = self.flows.all().get(index).cloned();
                let unknown = || io::Error::other(format!("flow {number} was never added"));
                Ok(none.insert(Meter {
                    flow: flow.ok_or_else(unknown)?,
                    delays: Histogram::new_with_bounds(1, LONGEST, 3).map_err(io::Error::other)?,
                }))
            }
        }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        self.publish();
    }
}

impl Backend for Metered {
    type Tx = Box<Outgoing>;
    type Rx = Datagram;

    fn transmit(&mut self, batch: &mut VecDeque<Box<Outgoing>>) -> io::Result<usize> {
        self.passing.clear();
        let datagrams = batch.iter();
        self.passing
            .extend(datagrams.map(|p| (p.flow, p.payload.len(), p.pushed_at)));
        let accepted = self.socket.transmit(batch)?;
        let now = self.clock.now();
        let passing = std::mem::take(&mut self.passing);
        // Should the socket refuse one, which is left open: as many are counted as were
        // accepted.
        for &(flow, payload, pushed_at) in &passing[..accepted] {
            let meter = self.meter(flow)?;
            meter.flow.sent.add(payload);
            meter.delays.saturating_record(now.since(pushed_at).0);
        }
        self.passing = passing;
        if now >= self.publish_at {
            self.publish_at = now + PERIOD;
            self.publish();
        }
        Ok(accepted)
    }

    fn receive(&mut self, into: &mut Vec<Datagram>, max: usize) -> io::Result<usize> {
        self.socket.receive(into, max)
    }

    fn in_flight(&self) -> io::Result<u64> {
        self.socket.in_flight()
    }

    fn refused(&self) -> u64 {
        self.socket.refused()
    }
}
