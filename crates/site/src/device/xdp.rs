//! A queue of an interface through AF_XDP, and the memory that its frames are in.

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
/// Places of the rings of each interface. What comes while this program does not run, for another
/// has the processor, waits in the first: at a million short frames a second for 4 ms.
const RX_RING: u32 = 4_096;
const TX_RING: u32 = 256;
/// Frames in the rings of both.
const IN_RINGS: u32 = 2 * (RX_RING + TX_RING);
/// Most frames that may wait: were there more, they would leave none to receive with, or to send
/// a process's frame in.
const MOST_WAITING: u32 = MOST_SHARED - IN_RINGS;

const _: () = assert!(MOST_WAITING == fairlane_config::XDP_MOST_WAITING);

/// Memory for the frames of a site, if AF_XDP serves its interfaces.
pub(super) fn umem(interfaces: &Interfaces, needs: Needs) -> Result<Umem> {
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
    }
    let bytes = match longest {
        ..=LONGEST_SHARED => SHARED_FRAME,
        _ => LONG_SHARED_FRAME,
    };
    // No more than MOST_WAITING wait.
    let frames = needs.frames as u32 + IN_RINGS;
    Umem::new(frames, bytes).doing("memory for AF_XDP")
}

/// A queue of an interface through AF_XDP.
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
    pub(super) fn bind(umem: &Umem, name: &str, deaf: bool) -> Result<Shared> {
        let queues = queues(name);
        if queues > 1 {
            return unfit(format!(
                "{name} has {queues} receive queues, and frames are taken from one with xdp: \
                 leave it one (ethtool -L {name} combined 1), or use the backend packet"
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
            rx_ring: RX_RING,
            tx_ring: TX_RING,
            budget: Budget::from_bytes(128 << 10),
            deaf,
            ..XdpOptions::default()
        };
        Ok(Shared {
            backend: XdpBackend::bind(umem, name, 0, &options)?,
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

/// Receive queues of an interface; 1 if nobody says.
fn queues(name: &str) -> usize {
    let folder = std::fs::read_dir(format!("/sys/class/net/{name}/queues"));
    let entries = folder.into_iter().flatten().flatten();
    let receiving = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-"));
    receiving.count().max(1)
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
        format!("xdp, {}", self.backend.mode())
    }
}
