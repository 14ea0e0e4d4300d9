//! The room that a guarantee needs.

use super::Service;
use crate::room::Room;
use crate::units::Length;

impl Service {
    /// Returns the room in which a class loses nothing that keeps to its guaranteed rate, and to bursts of `burst`
    /// bytes.
    ///
    /// # The theorem
    ///
    /// Let a class have this service: at any time t, with its arrivals A and departures D,
    ///
    /// ```text
    /// D(t) >= A(t0) + rate (t - t0) - lag          for some t0 <= t
    /// ```
    ///
    /// Let it send, over any time t, `burst + rate t` at most, where each packet counts for no less than
    /// `shortest`. Then it never holds more than
    ///
    /// ```text
    /// B = burst + lag          bytes, and          B / shortest          packets
    /// ```
    ///
    /// and since no packet of a class within its own [room](crate::room) is evicted, with that much room of its own it
    /// *has no drops, whatever the others send*, if its queue may hold that much: no limit of its own is below B.
    ///
    /// # Its proof
    ///
    /// A [strict](Service::is_strict) service has that t0: the time at which the class last began to hold
    /// something, before which all that arrived was handed out. Under WF2Q it is
    /// [another](Service#wf2q). Let A' and D' be arrivals and departures with each packet counted for
    /// `shortest` at least, so that D' - D grows with every packet that leaves. At t the class holds
    ///
    /// ```text
    /// A'(t) - D'(t) <= A'(t) - A'(t0) - rate (t - t0) + lag <= burst + lag
    /// ```
    ///
    /// which is B at most, and no less than its packets' lengths, nor than `shortest` for each. So
    /// it is when a packet has just arrived, and a packet is dropped only then, for one of two reasons.
    ///
    /// * *The limit of its own queue* would be exceeded. A queue of the class holds no more than the
    ///   class does, so a limit of B in bytes and B / shortest in packets is never exceeded.
    /// * *The link is full.* While the class holds no more than B it is within its room. When a class within
    ///   its room needs space in a full link, another class is beyond its own, since all rooms add up
    ///   to no more than the link holds.
    ///
    /// # Scope
    ///
    /// * *Down the tree*: the lag of a class is the sum of its own and those of the classes above it
    ///   ([`child`](Service::child)); classes with others below them hold nothing themselves.
    /// * *Flows*: the theorem holds of a class of flows in all, in whatever order its packets leave
    ///   and to whichever of its flows they belong, if the limit of *one* flow is B or more: all that the
    ///   class holds may be of one flow. With lower limits the class has the burst for which B is the
    ///   smaller of its room and those limits ([`Room::within`]). The theorem holds
    ///   with the service of a flow of each that has room
    ///   ([`FlowsConfig::room`](crate::tree::FlowsConfig::room)) and is never silent for so long
    ///   that a new one may take its place
    ///   ([`FlowsConfig::keeps_place`](crate::tree::FlowsConfig::keeps_place)): of as many as
    ///   [`FlowsConfig::roomy`](crate::tree::FlowsConfig::roomy) at a time. One without room has
    ///   a flow's service, and no space reserved. Where flows have ceilings, those
    ///   must be kept to as well: a flow that is held by its own holds up the class.
    /// * *Ceilings*: a class that is held by its ceiling has a longer lag
    ///   ([`below_ceiling`](Service::below_ceiling)), and no more than the ceiling for a rate.
    /// * *Strict priority*: as [`behind`](Service::behind) has it; without a service there is no
    ///   room that would do.
    /// * *A transmit queue of Q* costs no room: packets it took have left the tree, and while the class is backlogged,
    ///   the amount taken and not yet sent is Q all the time, except for a packet, which the link's lag includes. A
    ///   late wake-up of the program does: packets that arrive meanwhile must fit into the burst.
    /// * *Queue management*: CoDel drops nothing while a queue holds no more than its room, or its class of flows no
    ///   more than [`FlowsConfig::aqm_floor`](crate::tree::FlowsConfig::aqm_floor), which the theorem says of the
    ///   class in all. RED drops by design, also from a class within its bounds.
    /// * *CBQ* has no bound, so no amount of room would suffice: a reservation there has no guarantee.
    pub fn room(self, burst: u64, shortest: Length) -> Room {
        let bytes = burst as f64 + self.lag().bytes();
        // One byte for the truncation, one for the rounding.
        let bytes = (bytes as u64).saturating_add(2).min(MOST);
        let packets = bytes / u64::from(shortest.get());
        Room {
            packets: (packets as u32).max(1),
            bytes: bytes as u32,
        }
    }

    /// Returns the longest burst with which [`room`](Service::room) needs no more than this; `None` where it is not
    /// enough without any.
    #[doc(hidden)]
    pub fn burst_within(self, room: Room, shortest: Length) -> Option<u64> {
        let packets = (u64::from(room.packets) + 1) * u64::from(shortest.get()) - 1;
        let bytes = packets.min(room.bytes.into());
        let needed = (self.lag().bytes() as u64).saturating_add(2);
        bytes.checked_sub(needed)
    }
}

/// Room counts in 31 bits, as limits do.
const MOST: u64 = i32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;

    fn length(bytes: u32) -> Length {
        Length::new(bytes).unwrap()
    }

    #[test]
    fn room_is_the_burst_and_what_the_class_may_be_behind() {
        let rate = Rate::from_bps(8_000_000).unwrap();
        let service = Service::of_link(rate, length(1500));
        // 1500 of the packet on the wire, 2500 of its own, in packets of 100 bytes.
        let room = service.room(2500, length(100));
        assert_eq!((room.packets, room.bytes), (40, 4002));
        assert_eq!(service.room(0, length(1500)).packets, 1);
        assert_eq!(service.room(u64::MAX, length(1)).bytes, i32::MAX as u32);
    }

    #[test]
    fn the_burst_that_fits_is_the_longest_that_does() {
        let rate = Rate::from_bps(8_000_000).unwrap();
        let service = Service::of_link(rate, length(1500));
        for (packets, bytes) in [(40, 4002), (40, 9000), (25, 4002), (16, 1600), (15, 9000)] {
            let room = Room { packets, bytes };
            let burst = service.burst_within(room, length(100));
            let fits = |burst| {
                let needed = service.room(burst, length(100));
                needed.packets <= packets && needed.bytes <= bytes
            };
            match burst {
                Some(burst) => assert!(fits(burst) && !fits(burst + 1), "{room:?} {burst}"),
                None => assert!(!fits(0), "{room:?}"),
            }
        }
    }
}
