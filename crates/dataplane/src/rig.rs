//! A link of a site between two devices in memory, for tests.

use std::cell::Cell;
use std::sync::Arc;

use fairlane_classify::Origin;
use fairlane_config::Link;
use fairlane_core::{Dequeue, FlowConfig, FlowId, Length, Nanos, Weight};
use fairlane_io::{MemoryBackend, memory};
use fairlane_runtime::bridge::Side;
use fairlane_runtime::{Arbiter, Queue, Straight};

use crate::bridge::Shaped;
use crate::frame::{Frame, Received};
use crate::plan::Plan;
use crate::steps::run_so_far;

/// The arbiter of a link with devices in memory.
pub type InMemory = Arbiter<Shaped, Straight<MemoryBackend<Frame>>>;

/// Returns an idle link, and the port of its frames.
pub fn start(link: &Arc<Link>) -> (Plan, InMemory, FlowId) {
    let (device, _) = memory::pair(1);
    let (plan, mut arbiter) = Plan::start(link, Side::Right, device, 0, None, Nanos::ZERO);
    let port = FlowConfig::new(Weight::ONE, Length::MAX);
    let port = arbiter.queue_mut().add_flow(port).unwrap();
    (plan, arbiter, port)
}

/// Returns a frame of `bytes` bytes in all from 10.x.x.x.
pub fn frame(source: u32, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; bytes];
    frame[12] = 8;
    let length = bytes as u16 - 14;
    let ip = &mut frame[14..];
    (ip[0], ip[8], ip[9]) = (0x45, 64, 1);
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip[12..16].copy_from_slice(&(0x0a00_0000 | source).to_be_bytes());
    frame
}

/// Returns a frame that arrived at this time.
pub fn received(bytes: Vec<u8>, came: Nanos) -> Received {
    Received {
        frame: bytes.into(),
        origin: Origin::default(),
        came,
        losing: false,
        verdict: Cell::default(),
    }
}

/// Enqueues a frame that arrives by a port.
pub fn put(queue: &mut Shaped, port: FlowId, bytes: Vec<u8>, now: Nanos) {
    let len = Length::new(bytes.len() as u32).unwrap();
    assert!((queue.enqueue(port, len, received(bytes, now), now, drop)).is_ok());
}

/// Enqueues a frame that arrives by a port, and dequeues it.
pub fn pass(queue: &mut Shaped, port: FlowId, bytes: Vec<u8>, now: Nanos) {
    put(queue, port, bytes, now);
    assert!(matches!(queue.dequeue(now, drop), Dequeue::Packet(_)));
}

/// A link that is idle, and the port that its frames arrive by.
pub struct Rig {
    pub plan: Plan,
    pub arbiter: InMemory,
    pub port: FlowId,
}

/// Returns the CPU time of each step.
pub fn ran(mut step: impl FnMut() -> bool) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let before = run_so_far();
        let done = step();
        all.push(run_so_far() - before);
        if done {
            return all;
        }
    }
}

impl Rig {
    /// Creates the link.
    pub fn new(link: &Arc<Link>) -> Rig {
        let (plan, arbiter, port) = start(link);
        Rig {
            plan,
            arbiter,
            port,
        }
    }

    /// Switches to another link, as the control thread does. Returns the time of each step.
    pub fn apply(&mut self, link: &Arc<Link>) -> Vec<u64> {
        let next = self.plan.running().becomes(Arc::clone(link));
        if let Some(mut changing) = self.plan.changing(&next) {
            let all = ran(|| changing.step(&mut self.arbiter, Nanos::ZERO));
            self.plan.describe(next);
            return all;
        }
        let mut all = Vec::new();
        let ids = self.plan.adding(&next).map(|mut adding| {
            all = ran(|| adding.step(self.arbiter.queue_mut()));
            assert!(adding.error.is_none());
            adding.ids
        });
        let (mut taking, mut after) = self.plan.taking(next, ids);
        all.extend(ran(|| taking.step(&mut self.arbiter, Nanos::ZERO)));
        assert!(taking.error.is_none());
        after.inherit(&self.plan, &taking);
        self.plan = after;
        all
    }
}
