//! Orders of the control thread to the forwarding thread, carried out in small steps between rounds.

use fairlane_core::Nanos;
use fairlane_runtime::bridge::Side;

use crate::hand_over::give::{DeviceState, Transferring};
use fairlane_dataplane::bridge::SiteBridge;
use fairlane_dataplane::device::Opened;
use fairlane_dataplane::steps::{StepKind, Work};
use fairlane_dataplane::walk::Walking;
use fairlane_dataplane::work::{Adding, Counting, Draining, Flushing, Taking, keep_short};

/// One thing to do between rounds.
pub(crate) enum Order {
    /// Report the counts.
    Count(Box<Counting>),
    /// Add classes to a link.
    Add(Box<Adding>),
    /// Check whether classes to be removed have drained.
    Drain(Box<Draining>),
    /// Apply another configuration of a link.
    Take(Box<Taking>),
    /// Report the flows' counts.
    Walk(Box<Walking>),
    /// Turn shaping of a device's egress on or off.
    Shape(Side, bool),
    /// Drop the backlog of some classes.
    Flush(Box<Flushing>),
    /// Exchange the interface on a side for another, or for none; then the former one.
    Exchange(Side, Box<Option<Opened>>),
    /// Report the state that another process needs to continue with the devices.
    ExportState(Box<DeviceState>),
    /// Hand over to that process.
    HandOver(Box<Transferring>),
}

impl Work for Order {
    fn kind(&self) -> StepKind {
        match self {
            Order::Count(_) | Order::Drain(_) => StepKind::Count,
            Order::Add(_) => StepKind::Add,
            Order::Take(taking) => taking.kind(),
            Order::Walk(_) => StepKind::Flows,
            Order::Shape(..) => StepKind::Shape,
            Order::Flush(_) => StepKind::Flush,
            Order::Exchange(..) => StepKind::Attach,
            Order::ExportState(_) | Order::HandOver(_) => StepKind::HandOver,
        }
    }

    fn is_routine(&self) -> bool {
        matches!(self, Order::Count(_))
    }

    fn step(&mut self, bridge: &mut SiteBridge, now: Nanos) -> bool {
        match self {
            Order::Count(counting) => counting.step(bridge),
            Order::Add(adding) => match bridge.arbiter_mut(adding.side) {
                Some(arbiter) => adding.step(arbiter.queue_mut()),
                None => true,
            },
            Order::Drain(draining) => match bridge.arbiter(draining.side) {
                Some(arbiter) => draining.step(arbiter.queue()),
                None => true,
            },
            Order::Take(taking) => match bridge.arbiter_mut(taking.side) {
                Some(arbiter) => taking.step(arbiter, now),
                None => true,
            },
            Order::Walk(walking) => walking.step(bridge, now),
            Order::Shape(side, shaped) => {
                bridge.set_shaped(*side, *shaped);
                if let Some(arbiter) = bridge.arbiter_mut(*side) {
                    keep_short(arbiter);
                }
                true
            }
            Order::Exchange(side, opened) => {
                bridge.device_mut(*side).exchange(opened);
                true
            }
            Order::ExportState(give) => {
                give.step(bridge);
                true
            }
            Order::HandOver(handing) => {
                handing.step(bridge, now);
                true
            }
            Order::Flush(flushing) => match bridge.arbiter_mut(flushing.side) {
                Some(arbiter) => flushing.step(arbiter, now),
                None => true,
            },
        }
    }
}
