//! The queues of an interface through AF_XDP, and the memory that its frames are in.

use super::{Device, Handover, Losses, Receive, Replace, Transmit, Workers};
use crate::error::{Context, Result, unfit};
use crate::frame::{Emptied, Frame};
use crate::interfaces::named;
use crate::transmitting;
use crate::workers::{HELD, SLOTS, WorkerOptions};
use fairlane_config::{Interfaces, Near, Site};
use fairlane_io::early::Gate;
use fairlane_io::packet::PacketFrame;
use fairlane_io::{
    Arrival, Backend, Budget, PacketBackend, Umem, XdpBackend, XdpFrame, XdpMode, XdpOptions,
    XdpReceiver, XdpSender, interface, packet,
};
use fairlane_mailbox::most_waiting as most_in_mailbox;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes per frame in memory shared with the kernel: enough for an Ethernet frame of the usual MTU and the headroom
/// that the kernel requires.
const SHARED_FRAME: u32 = 2_048;

/// Of longer frames.
const LONG_SHARED_FRAME: u32 = 4_096;

/// Of both, the longest frame that fits: 256 bytes before it are the kernel's.
pub(super) const LONGEST_SHARED: u32 = SHARED_FRAME - 256;
const LONGEST_LONG_SHARED: u32 = LONG_SHARED_FRAME - 256;

/// Bytes of an Ethernet header and two VLAN tags.
const HEADER: u32 = 22;

/// Most frames in shared memory: 256 MiB of the shorter ones, or 264 where they are unaligned.
const MOST_SHARED: u32 = 1 << 17;

/// Places of the receive ring of each queue. Frames that arrive while another process has the CPU queue there: at a
/// million short frames per second, for 4 ms.
const RX_RING: u32 = 4_096;

/// The minimum of the same, if many queues and queued frames share the memory.
const LEAST_RX_RING: u32 = 256;

/// Places to send from, of each queue that sends.
pub const TX_RING: u32 = 256;

/// The most queues of both interfaces: the limit on sockets that share one memory.
const MOST_QUEUES: u32 = 64;

/// The most frames that may be queued with one queue at each interface: more would leave none to receive with, or to
/// send a process's frame in.
const MOST_WAITING: u32 = most_waiting(2, RX_RING);
const _: () = assert!(MOST_WAITING == fairlane_config::XDP_MOST_WAITING);

/// Returns the number of frames in the rings of this many queues of two interfaces, each with one transmit ring.
const fn in_rings(queues: u32, rx_ring: u32) -> u32 {
    queues * rx_ring + 2 * TX_RING
}

/// Returns the number of frames that may be queued in addition to the rings of this many queues of two interfaces.
const fn most_waiting(queues: u32, rx_ring: u32) -> u32 {
    MOST_SHARED - in_rings(queues, rx_ring)
}

/// Requirements of a site's frames.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// The most frames queued in all links.
    pub frames: u64,
    /// Bytes of the longest.
    pub longest: u32,
}

impl Needs {
    /// Returns the needs of all links of a site.
    pub fn of(site: &Site) -> Needs {
        let links = || site.links.iter();
        let longest = links().map(|link| link.longest.get() - link.overhead);
        Needs {
            frames: links().map(|link| u64::from(link.limits.packets)).sum(),
            longest: longest.max().unwrap_or(0),
        }
    }

    /// Whether a device opened for these needs also serves `other`.
    pub fn cover(self, other: Needs) -> bool {
        other.frames <= self.frames && other.longest <= self.longest.max(LONGEST_SHARED)
    }
}

/// Threads at both interfaces together that hold frames in addition to the forwarding threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threads {
    receive: usize,
    transmit: usize,
}

impl Threads {
    /// Returns the workers at these interfaces.
    pub(super) fn of(workers: &[Option<WorkerOptions>; 2]) -> Threads {
        let each = || workers.iter().flatten();
        let transmit = each().filter_map(|workers| workers.transmit.as_ref());
        Threads {
            receive: each().map(|workers| workers.count).sum(),
            transmit: transmit.map(|transmit| transmit.count).sum(),
        }
    }

    /// Returns the number of frames that may be with these threads and on their way back, in addition to queued frames
    /// and those in rings: the frames that each holds, its return ring, its spare buffers and its transmit ring; and
    /// the spare buffers of the forwarding threads.
    fn frames(self) -> u32 {
        const KEPT: usize = XdpFrame::MOST_KEPT;
        if self.receive == 0 {
            return 0;
        }
        let receiving = HELD + most_in_mailbox::<Emptied>(SLOTS) + KEPT;
        let sending = transmitting::HELD
            + most_in_mailbox::<Emptied>(transmitting::SLOTS)
            + KEPT
            + TX_RING as usize;
        // At most 32 of each.
        (self.receive * receiving + self.transmit * sending + 2 * KEPT) as u32
    }

    /// Returns their description in an error message.
    fn told(self) -> String {
        match (self.receive, self.transmit) {
            (0, _) => String::new(),
            (receive, 0) => format!(" in addition to those of receive workers ({receive})"),
            (receive, transmit) => format!(
                " in addition to those of receive ({receive}) and transmit workers ({transmit})"
            ),
        }
    }
}

/// Returns the most queues that an interface transmits by: only those that it receives from.
pub fn transmit_queues(name: &str) -> io::Result<u32> {
    Ok(interface::tx_queues(name)?.min(interface::rx_queues(name)?))
}

/// Bytes that an interface may have in flight.
pub(super) const BUDGET: Budget = Budget::from_bytes(128 << 10);

/// The memory of a site, and the part into which each interface may receive.
#[derive(Clone)]
pub(super) struct Memory {
    umem: Umem,
    /// Places of the receive rings of an interface, together, at most.
    rx_places: u32,
    /// Of each.
    rx_ring: u32,
}

/// Returns the size of each receive ring of this many queues of both interfaces, while this many frames may be queued:
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

/// Memory for the frames of a site, if AF_XDP serves its interfaces, with these workers there in all.
pub(super) fn memory(interfaces: &Interfaces, needs: Needs, workers: Threads) -> Result<Memory> {
    let Plan {
        frames,
        bytes,
        rx_places,
        rx_ring,
    } = Plan::new(interfaces, needs, workers)?;
    let umem = umem(interfaces, frames, bytes).doing("memory for AF_XDP")?;
    Ok(Memory {
        umem,
        rx_places,
        rx_ring,
    })
}

/// The sizes of a memory.
pub(super) struct Plan {
    frames: u32,
    /// Of each frame.
    bytes: u32,
    rx_places: u32,
    rx_ring: u32,
}

impl Plan {
    /// Those of a site, if AF_XDP serves its interfaces.
    pub(super) fn new(interfaces: &Interfaces, needs: Needs, workers: Threads) -> Result<Plan> {
        if interfaces.near == Near::Nothing {
            return unfit(format!(
                "with the backend xdp no other program receives from {}: name inside or tap in \
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
        let mut longest = needs.longest;
        let mut queues = Vec::new();
        for name in named(interfaces) {
            // A missing interface is an error when it is opened.
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
        let (queues, rx_ring) = rx_ring_of(&queues, needs, workers)?;
        let rx_places = queues * rx_ring;
        // At most MOST_WAITING frames are queued.
        let frames = needs.frames as u32 + workers.frames() + in_rings(2 * queues, rx_ring);
        Ok(Plan {
            frames,
            bytes,
            rx_places,
            rx_ring,
        })
    }
}

/// Frames that are aligned where a device may offer to read and write them itself: not between virtual cables.
fn umem(interfaces: &Interfaces, frames: u32, bytes: u32) -> io::Result<Umem> {
    let is_cable = |name: &String| interface::is_virtual_cable(name).unwrap_or(false);
    match named(interfaces).all(is_cable) {
        true => Umem::unaligned(frames, bytes),
        false => Umem::new(frames, bytes),
    }
}

/// Returns the queues of the interface with more of them, and the size of each receive ring: both interfaces get the
/// same, since either may return with another number of queues.
fn rx_ring_of(interfaces: &[(&String, u32)], needs: Needs, workers: Threads) -> Result<(u32, u32)> {
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
    let beside = workers.frames();
    match rx_ring(2 * most, needs.frames + u64::from(beside)) {
        Some(ring) => Ok((most, ring)),
        None => unfit(format!(
            "with the backend xdp and so many receive queues ({told}) at most {} packets may wait in \
             all links{}, and their limits add up to {}: lower 'limit', give the interfaces fewer \
             queues (ethtool -L), or use the backend packet",
            most_waiting(2 * most, LEAST_RX_RING).saturating_sub(beside),
            workers.told(),
            needs.frames
        )),
    }
}

/// An AF_XDP interface, or a part of it.
pub(super) struct Shared {
    part: Part,
    umem: Umem,
    mode: XdpMode,
    /// Of the interface.
    queues: usize,
    arrived: Vec<XdpFrame>,
    /// On their way into the backend; empty between two calls.
    batch: VecDeque<XdpFrame>,
    /// Frames that will never fit into one of the shared memory.
    refused: u64,
    /// A socket of another kind that keeps the interface listening to all addresses.
    _promiscuous: Option<PacketBackend<Frame>>,
}

/// An interface's sockets, or a part of them.
enum Part {
    Whole(XdpBackend),
    /// Transmits by one of its queues.
    Sender(XdpSender),
    /// Receives from some of its queues.
    Receiver(XdpReceiver),
}

impl Part {
    fn receiver(&self) -> Option<&XdpReceiver> {
        match self {
            Part::Whole(backend) => Some(backend.receiver()),
            Part::Receiver(receiver) => Some(receiver),
            Part::Sender(_) => None,
        }
    }

    fn sender(&self) -> Option<&XdpSender> {
        match self {
            Part::Whole(backend) => Some(backend.sender()),
            Part::Sender(sender) => Some(sender),
            Part::Receiver(_) => None,
        }
    }
}

impl Shared {
    /// Binds one device that transmits by the interface and receives from all of its queues.
    pub(super) fn bind(memory: &Memory, name: &str, deaf: bool) -> Result<Shared> {
        let (backend, promiscuous) = bind(memory, name, deaf)?;
        let (mode, queues) = (backend.mode(), backend.queues());
        Ok(Shared {
            _promiscuous: Some(promiscuous),
            ..Shared::of(Part::Whole(backend), &memory.umem, mode, queues)
        })
    }

    /// Binds transmit parts, one per queue, and receive parts, which share the interface's queues: this many of each,
    /// as far as there are as many queues. Returns them with the mode that the interface offers.
    pub(super) fn bind_parts(
        memory: &Memory,
        name: &str,
        deaf: bool,
        senders: usize,
        receivers: usize,
    ) -> Result<(Vec<Shared>, Vec<Shared>, XdpMode)> {
        let (backend, promiscuous) = bind(memory, name, deaf)?;
        let (mode, queues) = (backend.mode(), backend.queues());
        let senders = senders.clamp(1, backend.tx_queues());
        let (senders, receivers) = backend.split(senders, receivers.clamp(1, queues))?;
        let of = |part| Shared::of(part, &memory.umem, mode, queues);
        let mut promiscuous = Some(promiscuous);
        let senders = senders.into_iter().map(|sender| Shared {
            _promiscuous: promiscuous.take(),
            ..of(Part::Sender(sender))
        });
        let receivers = receivers.into_iter().map(Part::Receiver);
        Ok((senders.collect(), receivers.map(of).collect(), mode))
    }

    fn of(part: Part, umem: &Umem, mode: XdpMode, queues: usize) -> Shared {
        Shared {
            part,
            umem: umem.clone(),
            mode,
            queues,
            arrived: Vec::new(),
            batch: VecDeque::new(),
            refused: 0,
            _promiscuous: None,
        }
    }

    pub(super) fn mode(&self) -> XdpMode {
        self.mode
    }
}

/// Opens an interface, with a socket that keeps it in promiscuous mode.
fn bind(memory: &Memory, name: &str, deaf: bool) -> Result<(XdpBackend, PacketBackend<Frame>)> {
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
    Ok((XdpBackend::bind_all(umem, name, &options)?, promiscuous))
}

impl Backend for Shared {
    type Tx = Frame;
    type Rx = Frame;

    /// A receive-only part takes no frames.
    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        let backend: &mut dyn Backend<Tx = XdpFrame, Rx = XdpFrame> = match &mut self.part {
            Part::Whole(backend) => backend,
            Part::Sender(sender) => sender,
            Part::Receiver(_) => return Ok(0),
        };
        while let Some(frame) = batch.pop_front() {
            match frame {
                Frame::Shared(frame) => self.batch.push_back(frame),
                Frame::Bytes(mut bytes) => {
                    bytes.complete();
                    match self.umem.frame_from(&bytes) {
                        Some(frame) => self.batch.push_back(frame),
                        None if bytes.len() > self.umem.frame_size() as usize => self.refused += 1,
                        None => {
                            // All buffers are in use: the frame stays in the batch.
                            batch.push_front(Frame::Bytes(bytes));
                            break;
                        }
                    }
                }
            }
        }
        let sent = backend.transmit(&mut self.batch);
        while let Some(frame) = self.batch.pop_back() {
            batch.push_front(Frame::Shared(frame));
        }
        sent
    }

    /// A transmit-only part receives nothing; [`Transmit::poll_transmit`] drives it instead.
    fn receive(&mut self, into: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let arrived = &mut self.arrived;
        let came = match &mut self.part {
            Part::Whole(backend) => backend.receive(arrived, max),
            Part::Sender(sender) => sender.receive(arrived, max),
            Part::Receiver(receiver) => receiver.receive(arrived, max),
        }?;
        into.extend(self.arrived.drain(..).map(|mut frame| {
            // AF_XDP does not report the checksums that a local sender left to hardware.
            frame.find_unsummed();
            Frame::Shared(frame)
        }));
        Ok(came)
    }

    fn arrivals(&self) -> &[Arrival] {
        self.part.receiver().map_or(&[], XdpReceiver::arrivals)
    }

    fn in_flight(&self) -> io::Result<u64> {
        self.part.sender().map_or(Ok(0), |it| it.in_flight())
    }

    fn most_in_flight(&self) -> u64 {
        self.part.sender().map_or(0, |it| it.most_in_flight())
    }

    fn keep_short(&mut self, bytes: u64) -> u64 {
        match &mut self.part {
            Part::Whole(backend) => backend.keep_short(bytes),
            Part::Sender(sender) => sender.keep_short(bytes),
            Part::Receiver(_) => u64::MAX,
        }
    }

    fn refused(&self) -> u64 {
        self.refused + self.part.sender().map_or(0, |it| it.refused())
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.part {
            Part::Whole(backend) => backend.as_fd(),
            Part::Sender(sender) => sender.as_fd(),
            Part::Receiver(receiver) => receiver.as_fd(),
        }
    }
}

impl Receive for Shared {
    fn losses(&mut self) -> io::Result<Losses> {
        Ok(Losses {
            // The kernel counts those that are too long among them.
            lost: self.part.receiver().map_or(Ok(0), XdpReceiver::dropped)?,
            unsent: self.untaken(),
            ..Losses::default()
        })
    }

    fn is_filling(&self) -> bool {
        self.part.receiver().is_some_and(XdpReceiver::is_filling)
    }

    fn gate(&self) -> Option<Gate> {
        self.part.receiver().map(XdpReceiver::gate)
    }

    fn set_receiving(&self, anything: bool) -> io::Result<()> {
        let receiver = self.part.receiver();
        receiver.map_or(Ok(()), |receiver| receiver.hear(anything))
    }

    fn is_sole_receiver(&self) -> bool {
        true
    }
}

impl Transmit for Shared {
    fn untaken(&self) -> u64 {
        let sender = self.part.sender();
        sender.map_or(0, |it| it.untaken().into())
    }

    fn poll_transmit(&mut self) -> io::Result<()> {
        match &mut self.part {
            Part::Sender(sender) => sender.receive(&mut self.arrived, 1).map(drop),
            Part::Whole(_) | Part::Receiver(_) => Ok(()),
        }
    }
}

impl Handover for Shared {}

impl Workers for Shared {}

impl Replace for Shared {}

impl Device for Shared {
    fn backend(&self) -> String {
        match (self.mode, self.queues) {
            (mode, 1) => format!("xdp, {mode}"),
            (mode, queues) => format!("xdp, {mode}, {queues} queues"),
        }
    }
}

#[cfg(test)]
mod tests {
    use fairlane_netlab::{cable, or_skip};

    use super::*;

    fn threads(receive: usize, transmit: usize) -> Threads {
        Threads { receive, transmit }
    }

    #[test]
    fn what_workers_hold_is_in_the_memory_and_where_it_does_not_fit_the_sentence_has_them() {
        let [inside, outside] = ["inside", "outside"].map(str::to_owned);
        let interfaces = [(&inside, 4), (&outside, 2)];
        let needs = Needs {
            frames: MOST_WAITING.into(),
            longest: 1_514,
        };
        let ring = |receive, transmit| rx_ring_of(&interfaces, needs, threads(receive, transmit));
        assert_eq!(ring(0, 0).unwrap(), (4, 1_024));
        assert_eq!(ring(1, 0).unwrap(), (4, 512));
        for (transmit, most, hold) in [
            (0, 106_400, "those of receive workers (8)"),
            (2, 103_688, "those of receive (8) and transmit workers (2)"),
        ] {
            assert_eq!(
                ring(8, transmit).unwrap_err().to_string(),
                format!(
                    "with the backend xdp and so many receive queues (inside has 4 and outside has 2) at most \
                     {most} packets may wait in all links in addition to {hold}, and their limits add up to \
                     122368: lower 'limit', give the interfaces fewer queues (ethtool -L), or use the \
                     backend packet"
                )
            );
        }
    }

    #[test]
    fn between_virtual_cables_frames_are_unaligned() {
        let Some((near, _far)) = or_skip("unaligned frames", cable(1_500)) else {
            return;
        };
        let umem = |inside: &str, outside: &str| {
            let interfaces = Interfaces {
                outside: outside.to_owned(),
                near: Near::Inside(inside.to_owned()),
                move_addresses: false,
                allow_bypass: false,
                backend: fairlane_config::Backend::Xdp,
                speed: None,
                longest_round: Interfaces::LONGEST_ROUND,
            };
            umem(&interfaces, 8, SHARED_FRAME).unwrap().is_unaligned()
        };
        near.namespace().run(|| {
            assert!(umem(near.name(), near.name()));
            assert!(!umem(near.name(), "lo") && !umem("lo", near.name()));
            assert!(!umem(near.name(), "nosuch0"));
        });
    }

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
        let frames = |receive, transmit| threads(receive, transmit).frames();
        assert_eq!(frames(0, 0), 0);
        assert_eq!(frames(3, 0) - frames(2, 0), 2_636, "as the pages say");
        assert_eq!(frames(2, 2) - frames(2, 1), 1_356, "as the pages say");
        assert_eq!(rx_ring(2, MOST_WAITING.into()), Some(RX_RING));
        assert_eq!(rx_ring(8, 10_000), Some(RX_RING));
        assert_eq!(rx_ring(64, 10_000), Some(1_024));
        assert_eq!(rx_ring(64, MOST_WAITING.into()), None);
    }
}
