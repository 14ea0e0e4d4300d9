//! The queues of an interface through AF_XDP, and the memory that its frames are in.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use fairlane_config::{Interfaces, Near};
use fairlane_io::early::Gate;
use fairlane_io::packet::PacketFrame;
use fairlane_io::{
    Arrival, Backend, Budget, PacketBackend, Umem, XdpBackend, XdpFrame, XdpMode, XdpOptions,
    interface, packet,
};

use super::{Device, Losses, Needs};
use crate::error::{Doing, Result, unfit};
use crate::frame::Frame;

/// Bytes of frames in memory shared with the kernel: as many as an Ethernet frame of the usual
/// MTU needs, with the room before it that the kernel wants.
const SHARED_FRAME: u32 = 2_048;
/// Of longer frames.
const LONG_SHARED_FRAME: u32 = 4_096;
/// Of both, the longest frame that fits: 256 bytes before it are the kernel's.
pub(super) const LONGEST_SHARED: u32 = SHARED_FRAME - 256;
const LONGEST_LONG_SHARED: u32 = LONG_SHARED_FRAME - 256;
/// Bytes of an Ethernet header and two VLAN tags.
const HEADER: u32 = 22;
/// Most frames in shared memory: 256 MiB of the shorter ones.
const MOST_SHARED: u32 = 1 << 17;
/// Places of the receive ring of each queue. What comes while this program does not run, for another
/// has the processor, waits there: at a million short frames a second for 4 ms.
const RX_RING: u32 = 4_096;
/// The same at least, where many queues and the frames that may wait share the memory.
const LEAST_RX_RING: u32 = 256;
/// Places to send from, of an interface.
pub(crate) const TX_RING: u32 = 256;
/// Queues of both interfaces at most: as many sockets may have one memory.
const MOST_QUEUES: u32 = 64;
/// Most frames that may wait with one queue at each interface: were there more, they would leave none
/// to receive with, or to send a process's frame in.
const MOST_WAITING: u32 = most_waiting(2, RX_RING);

const _: () = assert!(MOST_WAITING == fairlane_config::XDP_MOST_WAITING);

/// Frames in the rings of so many queues of two interfaces.
const fn in_rings(queues: u32, rx_ring: u32) -> u32 {
    queues * rx_ring + 2 * TX_RING
}

/// How many frames may wait beside the rings of so many queues of two interfaces.
const fn most_waiting(queues: u32, rx_ring: u32) -> u32 {
    MOST_SHARED - in_rings(queues, rx_ring)
}

/// Bytes that an interface may have in flight.
pub(super) const BUDGET: Budget = Budget::from_bytes(128 << 10);

/// The memory of a site, and what of it each interface may receive into.
#[derive(Clone)]
pub(super) struct Memory {
    umem: Umem,
    /// Places of the receive rings of an interface, together, at most.
    rx_places: u32,
    /// Of each.
    rx_ring: u32,
}

/// The places of each receive ring of so many queues of both interfaces while so many frames may wait:
/// as many as fit, if that is enough.
fn rx_ring(queues: u32, waiting: u64) -> Option<u32> {
    let mut ring = RX_RING;
    while ring >= LEAST_RX_RING {
        if waiting + u64::from(in_rings(queues, ring)) <= MOST_SHARED.into() {
            return Some(ring);
        }
        ring /= 2;
    }
    None
}

/// Memory for the frames of a site, if AF_XDP serves its interfaces.
pub(super) fn memory(interfaces: &Interfaces, needs: Needs) -> Result<Memory> {
    if interfaces.near == Near::Nothing {
        return unfit(format!(
            "with the backend xdp nobody but Fairlane hears {}: name inside or tap in \
             [interfaces], or use the backend packet",
            interfaces.outside
        ));
    }
    if needs.frames > MOST_WAITING.into() {
        return unfit(format!(
            "with the backend xdp at most {MOST_WAITING} packets may wait in all links, and their \
             limits add up to {}: lower 'limit', or use the backend packet",
            needs.frames
        ));
    }
    let near = match &interfaces.near {
        Near::Inside(name) => Some(name),
        Near::Tap(_) | Near::Nothing => None,
    };
    let mut longest = needs.longest;
    let mut queues = Vec::new();
    for name in near.into_iter().chain([&interfaces.outside]) {
        // One that is not there is named by who opens it.
        let mtu = interface::mtu(name).unwrap_or(0);
        if mtu > LONGEST_LONG_SHARED - HEADER {
            return unfit(format!(
                "with the backend xdp an MTU is at most {}, and {name} has {mtu}: lower it \
                 (ip link set {name} mtu {0}), or use the backend packet",
                LONGEST_LONG_SHARED - HEADER
            ));
        }
        longest = longest.max(mtu + HEADER);
        queues.push((name, interface::rx_queues(name).unwrap_or(1)));
    }
    let bytes = match longest {
        ..=LONGEST_SHARED => SHARED_FRAME,
        _ => LONG_SHARED_FRAME,
    };
    let (queues, rx_ring) = rx_ring_of(&queues, needs)?;
    let rx_places = queues * rx_ring;
    // No more than MOST_WAITING wait.
    let frames = needs.frames as u32 + in_rings(2 * queues, rx_ring);
    let umem = Umem::new(frames, bytes).doing("memory for AF_XDP")?;
    Ok(Memory {
        umem,
        rx_places,
        rx_ring,
    })
}

/// The queues of these interfaces, of that which has more, and the places of each receive ring: either
/// interface is given as many, for it may come back with other queues.
fn rx_ring_of(interfaces: &[(&String, u32)], needs: Needs) -> Result<(u32, u32)> {
    let told: Vec<_> = interfaces
        .iter()
        .map(|(name, queues)| format!("{name} has {queues}"))
        .collect();
    let told = told.join(" and ");
    let queues = interfaces.iter().map(|&(_, queues)| queues).sum::<u32>();
    let most_each = MOST_QUEUES / interfaces.len().max(1) as u32;
    if queues > MOST_QUEUES {
        return unfit(format!(
            "with the backend xdp the interfaces have at most {MOST_QUEUES} receive queues together, \
             and {told}: leave each at most {most_each} (ethtool -L <interface> combined \
             {most_each}), or use the backend packet"
        ));
    }
    let most = interfaces.iter().map(|&(_, queues)| queues).max();
    let most = most.unwrap_or(1);
    match rx_ring(2 * most, needs.frames) {
        Some(ring) => Ok((most, ring)),
        None => unfit(format!(
            "with the backend xdp and so many receive queues ({told}) at most {} packets may wait in \
             all links, and their limits add up to {}: lower 'limit', give the interfaces fewer \
             queues (ethtool -L), or use the backend packet",
            most_waiting(2 * most, LEAST_RX_RING),
            needs.frames
        )),
    }
}

/// The queues of an interface through AF_XDP.
pub(super) struct Shared {
    backend: XdpBackend,
    umem: Umem,
    arrived: Vec<XdpFrame>,
    /// On their way into the backend; empty between two calls.
    batch: VecDeque<XdpFrame>,
    /// Frames that will never fit into one of the shared memory.
    refused: u64,
    /// A socket of another kind that keeps the interface listening to all addresses.
    _promiscuous: PacketBackend<Frame>,
}

impl Shared {
    pub(super) fn bind(memory: &Memory, name: &str, deaf: bool) -> Result<Shared> {
        let Memory {
            umem,
            rx_places,
            rx_ring,
        } = memory;
        let queues = interface::rx_queues(name).unwrap_or(1);
        let rx_ring = (rx_places / queues).min(*rx_ring);
        if rx_ring < LEAST_RX_RING {
            return unfit(format!(
                "{name} has {queues} receive queues, and there is memory for {}, as when Fairlane was \
                 started: start it again, or give {name} fewer (ethtool -L {name} combined {0})",
                rx_places / LEAST_RX_RING
            ));
        }
        let promiscuous = PacketBackend::open(
            name,
            &packet::Options {
                promiscuous: true,
                // Frames go to AF_XDP instead.
                ring: 0,
                ..packet::Options::default()
            },
        )?;
        let options = XdpOptions {
            rx_ring: 1 << rx_ring.ilog2(),
            tx_ring: TX_RING,
            budget: BUDGET,
            deaf,
            ..XdpOptions::default()
        };
        Ok(Shared {
            backend: XdpBackend::bind_all(umem, name, &options)?,
            umem: umem.clone(),
            arrived: Vec::new(),
            batch: VecDeque::new(),
            refused: 0,
            _promiscuous: promiscuous,
        })
    }

    pub(super) fn mode(&self) -> XdpMode {
        self.backend.mode()
    }
}

impl Backend for Shared {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        while let Some(frame) = batch.pop_front() {
            match frame {
                Frame::Shared(frame) => self.batch.push_back(frame),
                Frame::Bytes(mut bytes) => {
                    bytes.complete();
                    match self.umem.frame_from(&bytes) {
                        Some(frame) => self.batch.push_back(frame),
                        None if bytes.len() > self.umem.frame_size() as usize => self.refused += 1,
                        None => {
                            // All are taken: they come back.
                            batch.push_front(Frame::Bytes(bytes));
                            break;
                        }
                    }
                }
            }
        }
        let sent = self.backend.transmit(&mut self.batch);
        while let Some(frame) = self.batch.pop_back() {
            batch.push_front(Frame::Shared(frame));
        }
        sent
    }

    fn receive(&mut self, into: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let came = self.backend.receive(&mut self.arrived, max)?;
        into.extend(self.arrived.drain(..).map(|mut frame| {
            // AF_XDP does not say what a sender on this machine left to hardware.
            frame.find_unsummed();
            Frame::Shared(frame)
        }));
        Ok(came)
    }

    fn arrivals(&self) -> &[Arrival] {
        self.backend.arrivals()
    }

    fn in_flight(&self) -> io::Result<u64> {
        self.backend.in_flight()
    }

    fn most_in_flight(&self) -> u64 {
        self.backend.most_in_flight()
    }

    fn refused(&self) -> u64 {
        self.backend.refused() + self.refused
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.backend.as_fd()
    }
}

impl Device for Shared {
    fn losses(&mut self) -> io::Result<Losses> {
        Ok(Losses {
            // The kernel counts those that are too long among them.
            lost: self.backend.dropped()?,
            ..Losses::default()
        })
    }

    fn is_filling(&self) -> bool {
        self.backend.is_filling()
    }

    fn gate(&self) -> Option<Gate> {
        Some(self.backend.gate())
    }

    fn hear(&self, anything: bool) -> io::Result<()> {
        self.backend.hear(anything)
    }

    fn hears_alone(&self) -> bool {
        true
    }

    fn backend(&self) -> String {
        let mode = self.backend.mode();
        match self.backend.queues() {
            1 => format!("xdp, {mode}"),
            queues => format!("xdp, {mode}, {queues} queues"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_and_all_that_may_wait_fit_the_memory_for_as_many_queues_as_it_has_sockets() {
        for queues in 2..2 * MOST_QUEUES {
            for waiting in [0, 1_000, 50_000, u64::from(MOST_WAITING)] {
                let Some(ring) = rx_ring(queues, waiting) else {
                    let least = most_waiting(queues, LEAST_RX_RING);
                    assert!(waiting > least.into(), "{queues} queues, {waiting} wait");
                    continue;
                };
                assert!((LEAST_RX_RING..=RX_RING).contains(&ring) && ring.is_power_of_two());
                let frames = u64::from(in_rings(queues, ring)) + waiting;
                assert!(
                    frames <= MOST_SHARED.into(),
                    "{queues} queues, {waiting} wait"
                );
            }
        }
        assert_eq!(rx_ring(2, MOST_WAITING.into()), Some(RX_RING));
        assert_eq!(rx_ring(8, 10_000), Some(RX_RING));
        assert_eq!(rx_ring(64, 10_000), Some(1_024));
        assert_eq!(rx_ring(64, MOST_WAITING.into()), None);
    }
}
