//! The buffer reservations of classes, and the bursts that they leave room for.

use fairlane_core::Length;
use fairlane_core::Limits;
use fairlane_core::aqm::AqmConfig;
use fairlane_core::bounds::Service;
use fairlane_core::room::Room;

use crate::guarantee::{Guarantee, NoGuarantee};
use crate::site::{Class, ClassKind, Flows, Link, Queue};

impl Link {
    /// Returns the total buffer reservation of all classes: packets and bytes.
    pub fn kept(&self) -> (u64, u64) {
        *(self.found.kept).get_or_init(|| kept(&self.classes))
    }
}

/// Returns the part of a class's reservation in which no packet is dropped, even if all of them belong to one flow.
pub(crate) fn held(flows: &Flows) -> Room {
    let room = flows.room.within(flows.queue.limits);
    let Room { packets, bytes } = flows.aqm_floor;
    match flows.queue.aqm {
        AqmConfig::Codel(_) => room.within(Limits { packets, bytes }),
        _ => room,
    }
}

/// Returns the reservation of a class: packets and bytes.
pub(crate) fn kept_for(class: &Class) -> (u64, u64) {
    let room = match &class.kind {
        ClassKind::Inner(_) => Room::NONE,
        ClassKind::Leaf(queue) => queue.room,
        ClassKind::Flows(flows) => flows.room,
    };
    (room.packets.into(), room.bytes.into())
}

/// Returns the sum of the reservations of classes: packets and bytes.
pub(crate) fn kept<'a>(classes: impl IntoIterator<Item = &'a Class>) -> (u64, u64) {
    let each = classes.into_iter().map(kept_for);
    each.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
}

/// Adds the guarantees that depend on the class's buffer reservation.
pub(crate) fn grant(guarantee: &mut Guarantee, kind: &ClassKind, shortest: Length) {
    let fits = |service: Result<Service, NoGuarantee>, queue: &Queue, room| match queue.aqm {
        // It drops packets of a class that keeps to its guaranteed rate, too.
        AqmConfig::Red(_) => None,
        _ => service.ok()?.burst_within(room, shortest),
    };
    match kind {
        ClassKind::Inner(_) => {}
        ClassKind::Leaf(queue) => guarantee.burst = fits(guarantee.service, queue, queue.room),
        ClassKind::Flows(flows) => {
            guarantee.burst = fits(guarantee.service, &flows.queue, held(flows));
            if let Some(each) = &mut guarantee.each {
                each.burst = fits(each.service, &flows.queue, flows.queue.room);
            }
        }
    }
}
