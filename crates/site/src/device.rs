//! The devices that a site names, each a way for frames in and out.

use std::collections::VecDeque;
use std::io;
use std::ops::AddAssign;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fairlane_config::{Backend as Kind, Interfaces, Near, Site};
use fairlane_io::checksum::complete_checksum;
use fairlane_io::early::Gate;
use fairlane_io::tun::Layer;
use fairlane_io::{
    Arrival, Backend, Budget, Hold, PacketBackend, TunBackend, Umem, XdpBackend, XdpMode,
    XdpOptions, interface, packet,
};
use rustix::event::{EventfdFlags, eventfd};

use crate::daemon::OnLoss;
use crate::early::Port;
use crate::error::{Doing, Result, unfit};
use crate::frame::Frame;
use crate::lasting::{Lasting, Opened};
use crate::notice::{Notice, Notify};

/// A way for frames in and out that can be waited for.
pub(crate) trait Device: Backend<Tx = Frame, Rx = Frame> + AsFd + Send {
    /// What was lost beyond what all backends count.
    fn losses(&mut self) -> io::Result<Losses> {
        Ok(Losses::default())
    }

    /// Whether a good part of the places is taken in which frames wait to be received. O(1).
    fn is_filling(&self) -> bool {
        false
    }

    /// Where frames arrive, if they can be dropped there.
    fn gate(&self) -> Option<Gate> {
        None
    }

    /// How frames are exchanged with the interface.
    fn backend(&self) -> String;
}

/// Frames that arrived and went no further than the device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    /// Not sent, for the interface was away.
    pub(crate) away: u64,
    /// Not taken in time.
    pub(crate) lost: u64,
    /// Segments that their sender has left to be cut, and that cannot be.
    pub(crate) uncut: u64,
}

impl AddAssign for Losses {
    fn add_assign(&mut self, more: Losses) {
        self.away += more.away;
        self.lost += more.lost;
        self.uncut += more.uncut;
    }
}

/// A device of whatever kind.
pub(crate) struct AnyDevice {
    pub(crate) name: String,
    device: Box<dyn Device>,
    /// The interface, where its loss ends the run; after the device, which may still bring frames.
    _hold: Option<Hold>,
}

impl AnyDevice {
    pub(crate) fn losses(&mut self) -> io::Result<Losses> {
        self.device.losses()
    }

    pub(crate) fn backend(&self) -> String {
        self.device.backend()
    }

    pub(crate) fn is_filling(&self) -> bool {
        self.device.is_filling()
    }
}

impl Backend for AnyDevice {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        self.device.transmit(batch)
    }

    fn receive(&mut self, into: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        self.device.receive(into, max)
    }

    fn arrivals(&self) -> &[Arrival] {
        self.device.arrivals()
    }

    fn in_flight(&self) -> io::Result<u64> {
        self.device.in_flight()
    }

    fn refused(&self) -> u64 {
        self.device.refused()
    }
}

impl AsFd for AnyDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Bytes of frames in memory shared with the kernel: as many as an Ethernet frame of the usual
/// MTU needs, with the room before it that the kernel wants.
const SHARED_FRAME: u32 = 2_048;
/// Of longer frames.
const LONG_SHARED_FRAME: u32 = 4_096;
/// Of both, the longest frame that fits: 256 bytes before it are the kernel's.
const LONGEST_SHARED: u32 = SHARED_FRAME - 256;
const LONGEST_LONG_SHARED: u32 = LONG_SHARED_FRAME - 256;
/// Bytes of an Ethernet header and two VLAN tags.
const HEADER: u32 = 22;
/// Most frames in shared memory: 256 MiB of the shorter ones.
const MOST_SHARED: u32 = 1 << 17;
/// Bytes of the ring of an interface through packet sockets: some 10,000 frames of an MTU of 1,500,
/// whatever their lengths.
const PACKET_RING: usize = 16 << 20;
/// Places of the rings of each interface. What comes while this program does not run, for another
/// has the processor, waits in the first: at a million short frames a second for 4 ms.
const RX_RING: u32 = 4_096;
const TX_RING: u32 = 256;
/// Frames in the rings of both.
const IN_RINGS: u32 = 2 * (RX_RING + TX_RING);
/// Most frames that may wait: were there more, they would leave none to receive with, or to send
/// a process's frame in.
const MOST_WAITING: u32 = fairlane_config::XDP_MOST_WAITING;

const _: () = assert!(MOST_WAITING == MOST_SHARED - IN_RINGS);

/// What the frames of a site need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Frames that may wait in all links.
    pub(crate) frames: u64,
    /// Bytes of the longest.
    pub(crate) longest: u32,
}

impl Needs {
    /// Those of all links of a site.
    pub(crate) fn of(site: &Site) -> Needs {
        let links = || site.links.iter();
        let longest = links().map(|link| link.longest.get() - link.overhead);
        Needs {
            frames: links().map(|link| u64::from(link.limits.packets)).sum(),
            longest: longest.max().unwrap_or(0),
        }
    }

    /// Whether what was made for these needs serves those of `other` too.
    pub(crate) fn cover(self, other: Needs) -> bool {
        other.frames <= self.frames && other.longest <= self.longest.max(LONGEST_SHARED)
    }
}

/// The early drop at each of both devices, where there is to be one.
pub(crate) type Ports = [Option<Arc<Port>>; 2];

/// The near device and the one outside. Nothing is open after an error.
pub(crate) fn open(
    interfaces: &Interfaces,
    needs: Needs,
    on_loss: OnLoss,
    notify: &Notify,
    ports: &Ports,
) -> Result<[AnyDevice; 2]> {
    let outside = &interfaces.outside;
    if (&interfaces.near, interfaces.backend) == (&Near::Nothing, Kind::Xdp) {
        return unfit(format!(
            "with the backend xdp nobody but Fairlane hears {outside}: name inside or tap in \
             [interfaces], or use the backend packet"
        ));
    }
    if interfaces.backend == Kind::Xdp && needs.frames > MOST_WAITING.into() {
        return unfit(format!(
            "with the backend xdp at most {MOST_WAITING} packets may wait in all links, and their \
             limits add up to {}: lower 'limit', or use the backend packet",
            needs.frames
        ));
    }
    let umem = match interfaces.backend {
        Kind::Packet => None,
        Kind::Xdp => Some(umem(interfaces, needs)?),
    };
    let [near_port, port] = ports;
    let near = match &interfaces.near {
        Near::Inside(name) => open_interface(name, umem.as_ref(), on_loss, notify, near_port)?,
        Near::Tap(name) => tap(name)?,
        Near::Nothing => nothing()?,
    };
    Ok([
        near,
        open_interface(outside, umem.as_ref(), on_loss, notify, port)?,
    ])
}

fn open_interface(
    name: &str,
    umem: Option<&Umem>,
    on_loss: OnLoss,
    notify: &Notify,
    port: &Option<Arc<Port>>,
) -> Result<AnyDevice> {
    if on_loss == OnLoss::Wait {
        let (kept, umem, says) = (name.to_owned(), umem.cloned(), Notify::clone(notify));
        let port = port.clone();
        let open = move || hold_and_open(&kept, umem.as_ref(), &says, port.as_deref());
        let device = Lasting::open(name, Notify::clone(notify), open)?;
        return Ok(AnyDevice {
            name: name.to_owned(),
            device: Box::new(device),
            _hold: None,
        });
    }
    let opened = hold_and_open(name, umem, notify, port.as_deref())?;
    Ok(AnyDevice {
        name: name.to_owned(),
        device: opened.device,
        _hold: opened.hold,
    })
}

/// Opens an interface that no other program of this kind has, for frames as they were on the wire.
fn hold_and_open(
    name: &str,
    umem: Option<&Umem>,
    notify: &Notify,
    port: Option<&Port>,
) -> Result<Opened> {
    let mut hold = Hold::take(name)?;
    if let Some(complaint) = hold.complaint() {
        notify(Notice::Warning(complaint.to_owned()));
    }
    let device: Box<dyn Device> = match umem {
        None => {
            let options = packet::Options {
                // Somebody may wait for a lone frame: in a block it would wait a millisecond.
                prompt: true,
                promiscuous: true,
                ring: PACKET_RING,
                ..packet::Options::default()
            };
            let backend = PacketBackend::open(name, &options)?;
            // What the kernel joins is cut again.
            hold.single_frames_of_device(name)?;
            Box::new(Plain(backend))
        }
        Some(umem) => {
            let shared = Shared::bind(umem, name)?;
            match shared.backend.mode() {
                XdpMode::Generic => hold.single_frames(name)?,
                // Frames come before anybody may join them.
                XdpMode::ZeroCopy | XdpMode::Native => {}
            }
            Box::new(shared)
        }
    };
    if let (Some(port), Some(gate)) = (port, device.gate()) {
        port.opened(gate);
    }
    Ok(Opened {
        device,
        hold: Some(hold),
    })
}

fn tap(name: &str) -> Result<AnyDevice> {
    let tap = TunBackend::open(name, Layer::Ethernet)?;
    tap.set_up()
        .doing(format_args!("setting up the tap device {name}"))?;
    Ok(AnyDevice {
        name: tap.name().to_owned(),
        device: Box::new(Plain(tap)),
        _hold: None,
    })
}

fn nothing() -> Result<AnyDevice> {
    let never = eventfd(0, EventfdFlags::CLOEXEC).doing("making a device without an interface")?;
    Ok(AnyDevice {
        name: String::new(),
        device: Box::new(Nothing(never)),
        _hold: None,
    })
}

fn umem(interfaces: &Interfaces, needs: Needs) -> Result<Umem> {
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

/// A device whose backend receives plain bytes.
struct Plain<B>(B);

impl<B: Backend<Tx = Frame, Rx = Vec<u8>>> Backend for Plain<B> {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        self.0.transmit(batch)
    }

    fn receive(&mut self, into: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let mut arrived = Vec::new();
        let came = self.0.receive(&mut arrived, max)?;
        into.extend(arrived.into_iter().map(Frame::Bytes));
        Ok(came)
    }

    fn arrivals(&self) -> &[Arrival] {
        self.0.arrivals()
    }

    fn in_flight(&self) -> io::Result<u64> {
        self.0.in_flight()
    }

    fn refused(&self) -> u64 {
        self.0.refused()
    }
}

impl<B: AsFd> AsFd for Plain<B> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An interface through packet sockets.
impl Device for Plain<PacketBackend<Frame>> {
    fn losses(&mut self) -> io::Result<Losses> {
        Ok(Losses {
            lost: self.0.lost()? + self.0.discarded(),
            uncut: self.0.uncut(),
            ..Losses::default()
        })
    }

    fn is_filling(&self) -> bool {
        self.0.is_filling()
    }

    fn gate(&self) -> Option<Gate> {
        Some(self.0.gate())
    }

    fn backend(&self) -> String {
        "packet".to_owned()
    }
}

/// A virtual interface that the host uses in place of the one outside.
impl Device for Plain<TunBackend<Frame>> {
    fn backend(&self) -> String {
        "tap".to_owned()
    }
}

/// Where processes alone send: nothing comes, and what is sent there is refused.
struct Nothing(OwnedFd);

impl Backend for Nothing {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        batch.clear();
        Ok(0)
    }

    fn receive(&mut self, _: &mut Vec<Frame>, _: usize) -> io::Result<usize> {
        Ok(0)
    }

    fn in_flight(&self) -> io::Result<u64> {
        Ok(0)
    }

    /// What arrives outside is for the host's own network, which has it too.
    fn refused(&self) -> u64 {
        0
    }
}

impl AsFd for Nothing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Device for Nothing {
    fn backend(&self) -> String {
        "none".to_owned()
    }
}

/// A queue of an interface through AF_XDP.
struct Shared {
    backend: XdpBackend,
    umem: Umem,
    arrived: Vec<fairlane_io::XdpFrame>,
    /// On their way into the backend; empty between two calls.
    batch: VecDeque<fairlane_io::XdpFrame>,
    /// Frames that will never fit into one of the shared memory.
    refused: u64,
    /// A socket of another kind that keeps the interface listening to all addresses.
    _promiscuous: PacketBackend<Frame>,
}

impl Shared {
    fn bind(umem: &Umem, name: &str) -> Result<Shared> {
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
                Frame::Bytes(bytes) => match self.umem.frame_from(&bytes) {
                    Some(frame) => self.batch.push_back(frame),
                    None if bytes.len() > self.umem.frame_size() as usize => self.refused += 1,
                    None => {
                        // All are taken: they come back.
                        batch.push_front(Frame::Bytes(bytes));
                        break;
                    }
                },
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
            complete_checksum(frame.bytes_mut());
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

    fn backend(&self) -> String {
        format!("xdp, {}", self.backend.mode())
    }
}
