//! The devices that a site names, each a way for frames in and out.

mod entrance;
mod lasting;
mod sent;
mod worked;
mod xdp;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::AddAssign;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use fairlane_config::{self as config, Interfaces, Near, Site};
use fairlane_io::early::Gate;
use fairlane_io::packet::{Position, Sockets};
use fairlane_io::tun::Layer;
use fairlane_io::{Backend, Budget, Hold, PacketBackend, TunBackend, XdpMode, interface, packet};
use fairlane_runtime::bridge::BATCH;
use rustix::event::{EventfdFlags, eventfd};

use crate::daemon::Options;
use crate::early::Port;
use crate::error::{Doing, Error, Result};
use crate::frame::Frame;
use crate::notice::{Notice, Notify};
use crate::workers::{Bell, ClassifiedFrame, Look, Waits, WorkerOptions};
use lasting::Lasting;
pub(crate) use lasting::{ToKeep, ToKeeper};
pub(crate) use sent::Sending;
pub(crate) use worked::Worked;
pub(crate) use xdp::TX_RING;
use xdp::{Shared, Threads};

/// A way for frames in and out that can be waited for.
pub(crate) trait Device: Backend<Tx = Frame, Rx = Frame> + AsFd + Send {
    /// Returns the losses that the counters common to all backends do not include.
    fn losses(&mut self) -> io::Result<Losses> {
        Ok(Losses::default())
    }

    /// Whether a good part of the receive ring is occupied. O(1).
    fn is_filling(&self) -> bool {
        false
    }

    /// Returns the gate where arriving frames can be dropped, if there is one.
    fn gate(&self) -> Option<Gate> {
        None
    }

    /// Starts or stops receiving, for devices that support this.
    fn hear(&self, anything: bool) -> io::Result<()> {
        let _ = anything;
        Ok(())
    }

    /// Whether no other receiver hears the frames that this device hears.
    fn hears_alone(&self) -> bool {
        false
    }

    /// Stops receiving and ends the device's own threads. Returns the number of frames that had arrived and will not be
    /// received; the device still reports its [losses](Self::losses). Takes tens of milliseconds for each of its
    /// sockets.
    fn end(&mut self) -> u64 {
        // A device that is gone receives nothing in any case.
        let _ = self.hear(false);
        forget(self, 1).0
    }

    /// Returns the number of frames given to it for transmission that the kernel has not taken: they are lost once it
    /// is dropped.
    fn untaken(&self) -> u64 {
        0
    }

    /// Returns a description of the backend.
    fn backend(&self) -> String;

    /// Returns the current backend, if it may change. Does not allocate.
    fn backend_now(&self) -> Option<Arc<str>> {
        None
    }

    /// Replaces the open interface by the given one, or by none; the former one is returned through `opened`. O(1);
    /// opens and closes nothing. Has no effect on a device that is no interface.
    fn exchange(&mut self, opened: &mut Option<Opened>) {
        let _ = opened;
    }

    /// Returns the keeper that opens replacements, if permitted.
    fn keeper(&self) -> Option<ToKeeper> {
        None
    }

    /// Returns the state that another process needs to continue with the device, if the device supports that.
    fn to_pass(&self) -> io::Result<Option<ToPass>> {
        Ok(None)
    }

    /// Whether the device is still the one that another process received from [`to_pass`](Self::to_pass).
    fn is_passed(&self) -> bool {
        true
    }

    /// Moves frames that have arrived, and that neither this process nor its successor would receive, to `into`.
    /// Returns how long they have waited.
    fn rest(&mut self, into: &mut Vec<Frame>) -> Duration {
        let _ = into;
        Duration::ZERO
    }

    /// Moves frames that its transmit workers had not sent when they came to [rest](Self::rest) to `into`, oldest first
    /// for each worker.
    fn take_unsent(&mut self, into: &mut VecDeque<Frame>) {
        let _ = into;
    }

    /// Returns the position from which another process continues.
    fn position(&self) -> Position {
        Position::default()
    }

    /// Continues from the position that another process has reached.
    fn go_on_from(&mut self, position: Position) {
        let _ = position;
    }

    /// Notes whether the interface belongs to this process from now on, or to another that has it too.
    fn own(&mut self, ours: bool) {
        let _ = ours;
    }

    /// Starts its workers, if it is to have any.
    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Continues transmitting the frames it was given, while its receive side is lent. Called in every round then.
    fn attend(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Appends at most `most` frames received by its workers, oldest first for each, and returns their number.
    fn take_classified(
        &mut self,
        into: &mut Vec<ClassifiedFrame>,
        most: usize,
    ) -> io::Result<usize> {
        let _ = (into, most);
        Ok(0)
    }

    /// Returns emptied buffers to its workers.
    fn give_back(&mut self) {}

    /// Starts a round: polls its workers' mailboxes.
    fn look(&mut self, look: Look) {
        let _ = look;
    }

    /// Returns how long frames have waited with its receive workers, if any.
    fn waits(&self) -> Option<Waits> {
        None
    }

    /// Returns the same for transmit workers.
    fn transmit_waits(&self) -> Option<Waits> {
        None
    }

    /// Whether no frame is queued at those threads, so that the descriptor signals the next one.
    fn may_wait(&mut self) -> bool {
        true
    }

    /// Whether its receive side may be [lent](Self::lend) now.
    fn may_lend(&self) -> bool {
        false
    }

    /// Lends out its receive side, if permitted. From then on no frame arrives here, and only transmission may be
    /// requested until [`have_back`](Self::have_back).
    fn lend(&mut self) -> Option<Lent> {
        None
    }

    /// Receives again: the lent part was dropped.
    fn have_back(&mut self) {}

    /// Whether the lent part must be returned first, because the interface is gone.
    fn is_to_go_home(&self) -> bool {
        false
    }
}

/// The lent part of a device. Dropping it returns it.
pub(crate) struct Lent {
    /// Where frames arrive.
    pub(crate) entrance: AnyDevice,
    /// Ends a wait for frames.
    pub(crate) bell: Arc<Bell>,
}

/// Most batches that are forgotten at once: more than any ring holds.
const MOST_FORGOTTEN: usize = 1 << 14;

/// Receives and drops the frames that have arrived at a device, until a batch has fewer than `least` frames. Returns
/// the number of frames, and the result.
pub(crate) fn forget<D: Backend<Rx = Frame> + ?Sized>(
    device: &mut D,
    least: usize,
) -> (u64, io::Result<()>) {
    let (mut arrived, mut forgotten) = (Vec::new(), 0);
    for _ in 0..MOST_FORGOTTEN {
        match device.receive(&mut arrived, BATCH) {
            Ok(came) => {
                forgotten += came as u64;
                if came < least {
                    break;
                }
            }
            Err(error) => return (forgotten, Err(error)),
        }
        arrived.clear();
    }
    (forgotten, Ok(()))
}

/// The state that another process needs to continue with a device.
pub(crate) struct ToPass {
    pub(crate) sockets: Sockets,
    /// The file in which the holder notes changes of the interface's settings.
    pub(crate) note: Option<File>,
}

/// Frames that arrived and went no further than the device, or were to leave and did not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    /// Frames not sent because the interface was absent, or was released first.
    pub(crate) away: u64,
    /// Frames accepted for transmission and not sent, or not yet; not counting those rejected, dropped as absent, or
    /// handed over.
    pub(crate) unsent: u64,
    /// Frames not received in time, or before the interface was released.
    pub(crate) lost: u64,
    /// Segments that their sender has left to be cut, and that cannot be.
    pub(crate) uncut: u64,
}

impl Losses {
    /// Returns the increase since `before`.
    fn since(self, before: Losses) -> Losses {
        Losses {
            away: self.away.saturating_sub(before.away),
            // Decreases when frames were sent since.
            unsent: self.unsent.wrapping_sub(before.unsent),
            lost: self.lost.saturating_sub(before.lost),
            uncut: self.uncut.saturating_sub(before.uncut),
        }
    }
}

impl AddAssign for Losses {
    fn add_assign(&mut self, more: Losses) {
        self.away += more.away;
        self.unsent = self.unsent.wrapping_add(more.unsent);
        self.lost += more.lost;
        self.uncut += more.uncut;
    }
}

/// Any device.
pub(crate) type AnyDevice = Box<dyn Device>;

/// Bytes of an interface's packet socket ring: some 10,000 frames with an MTU of 1,500, whatever their lengths.
const PACKET_RING: usize = 16 << 20;

/// Requirements of a site's frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// The most frames queued in all links.
    pub(crate) frames: u64,
    /// Bytes of the longest.
    pub(crate) longest: u32,
}

impl Needs {
    /// Returns the needs of all links of a site.
    pub(crate) fn of(site: &Site) -> Needs {
        let links = || site.links.iter();
        let longest = links().map(|link| link.longest.get() - link.overhead);
        Needs {
            frames: links().map(|link| u64::from(link.limits.packets)).sum(),
            longest: longest.max().unwrap_or(0),
        }
    }

    /// Whether a device opened for these needs also serves `other`.
    pub(crate) fn cover(self, other: Needs) -> bool {
        other.frames <= self.frames && other.longest <= self.longest.max(xdp::LONGEST_SHARED)
    }
}

/// Returns the interfaces that a site names, the near one first.
pub(crate) fn named(interfaces: &Interfaces) -> impl Iterator<Item = &String> {
    let near = match &interfaces.near {
        Near::Inside(name) => Some(name),
        Near::Tap(_) | Near::Nothing => None,
    };
    near.into_iter().chain([&interfaces.outside])
}

/// The early drop at each of both devices, if enabled.
pub(crate) type Ports = [Option<Arc<Port>>; 2];

/// Opens the near device and the outside one, and returns them with their names. Nothing is open after an error.
pub(crate) fn open(
    interfaces: &Interfaces,
    needs: Needs,
    options: &Options,
    notify: &Notify,
    ports: &Ports,
    workers: &[Option<WorkerOptions>; 2],
) -> Result<[(String, AnyDevice); 2]> {
    let outside = &interfaces.outside;
    let memory = match interfaces.backend {
        config::Backend::Packet => None,
        config::Backend::Xdp => Some(xdp::memory(interfaces, needs, Threads::of(workers))?),
    };
    let open = |name: &str,
                port: &Option<Arc<Port>>,
                workers: &Option<WorkerOptions>,
                tap: Option<&str>| {
        let opener = Opener {
            name: name.to_owned(),
            memory: memory.clone(),
            notify: Arc::clone(notify),
            port: port.clone(),
            workers: workers.clone(),
            moves_to: tap.map(str::to_owned),
        };
        let lasting = Lasting::open(opener, options.on_loss, options.deaf)?;
        let device: AnyDevice = Box::new(lasting);
        Ok::<_, Error>((name.to_owned(), device))
    };
    let [near_port, port] = ports;
    let [near_workers, workers] = workers;
    let near = match &interfaces.near {
        Near::Inside(name) => open(name, near_port, near_workers, None)?,
        Near::Tap(name) => tap(name, outside)?,
        Near::Nothing => (String::new(), nothing()?),
    };
    let tap = interfaces.move_addresses.then_some(&*near.0);
    let outside = open(outside, port, workers, tap)?;
    Ok([near, outside])
}

/// Checks that the backend has memory for a site.
pub(crate) fn check_memory(
    interfaces: &Interfaces,
    needs: Needs,
    workers: &[Option<WorkerOptions>; 2],
) -> Result<()> {
    match interfaces.backend {
        config::Backend::Packet => Ok(()),
        config::Backend::Xdp => xdp::Plan::new(interfaces, needs, Threads::of(workers)).map(drop),
    }
}

/// The same two, of another process that is to hand them over.
pub(crate) fn go_on_with(
    names: [String; 2],
    passed: [ToPass; 2],
    options: &Options,
    notify: &Notify,
    ports: &Ports,
    [near_workers, workers]: &[Option<WorkerOptions>; 2],
) -> Result<[(String, AnyDevice); 2]> {
    let go_on =
        |name: String, passed, port: &Option<Arc<Port>>, workers: &Option<WorkerOptions>| {
            let opener = Opener {
                name: name.clone(),
                memory: None,
                notify: Arc::clone(notify),
                port: port.clone(),
                workers: workers.clone(),
                moves_to: None,
            };
            let opened = opener.go_on_with(passed)?;
            let device: AnyDevice = Box::new(Lasting::over(opened, opener, options.on_loss)?);
            Ok::<_, Error>((name, device))
        };
    let ([near, outside], [of_near, of_outside]) = (names, passed);
    let [near_port, port] = ports;
    Ok([
        go_on(near, of_near, near_port, near_workers)?,
        go_on(outside, of_outside, port, workers)?,
    ])
}

/// The parameters for opening an interface, the first time or again.
#[derive(Clone)]
struct Opener {
    name: String,
    /// Where frames are shared with the kernel: AF_XDP instead of packet sockets.
    memory: Option<xdp::Memory>,
    notify: Notify,
    port: Option<Arc<Port>>,
    /// Options of its receive workers, if any.
    workers: Option<WorkerOptions>,
    /// The tap device that has its addresses while it is open, if any.
    moves_to: Option<String>,
}

/// A device that is open, and its interface, held. Dropping it takes a while.
pub(crate) struct Opened {
    pub(crate) device: AnyDevice,
    /// How frames are exchanged with it.
    backend: Arc<str>,
    /// After the device, which may still bring frames.
    hold: Hold,
    /// Its losses that were counted when it was taken out of use.
    told: Losses,
    /// Its rejected frames that were counted when it was taken out of use.
    told_refused: u64,
}

impl Opened {
    fn new(device: AnyDevice, hold: Hold) -> Opened {
        Opened {
            backend: device.backend().into(),
            device,
            hold,
            told: Losses::default(),
            told_refused: 0,
        }
    }

    /// Closes the device and releases the interface. Returns the losses not counted before.
    fn end(mut self) -> Losses {
        let left = self.device.end();
        let losses = self.device.losses().unwrap_or(self.told);
        let mut more = losses.since(self.told);
        more.lost += left;
        let untaken = self.device.untaken();
        more.away += untaken;
        // The rejected count is not read again after this.
        more.away += self.device.refused().saturating_sub(self.told_refused);
        more
    }
}

impl Opener {
    /// Opens an interface that no other program of this kind has, for frames as they were on the wire. A `deaf` device
    /// receives nothing until [`Device::hear`].
    fn open(&self, deaf: bool) -> Result<Opened> {
        let name = &self.name;
        let mut hold = Hold::take(name)?;
        if let Some(complaint) = hold.complaint() {
            (self.notify)(Notice::Warning(complaint.to_owned()));
        }
        let device: AnyDevice = match &self.memory {
            None => {
                let count = self.workers.as_ref().map_or(1, |workers| workers.count);
                let backends = PacketBackend::open_group(name, &of_packets(deaf), count)?;
                // GRO by the kernel would have to be undone by segmentation.
                hold.single_frames_of_device(name)?;
                self.received_by(backends)?
            }
            Some(memory) => {
                let (device, mode) = self.shared(memory, deaf)?;
                if mode == XdpMode::Generic {
                    // In the other modes frames arrive before GRO.
                    hold.single_frames(name)?;
                }
                device
            }
        };
        if let (Some(port), Some(gate)) = (&self.port, device.gate()) {
            port.opened(name, gate);
        }
        if let Some(tap) = &self.moves_to {
            hold.move_addresses(name, tap)?;
        }
        Ok(Opened::new(device, hold))
    }

    /// Returns a device that receives by these backends: one for each worker, or the only one.
    fn received_by(&self, backends: Vec<PacketBackend<Frame>>) -> Result<AnyDevice> {
        let Some(workers) = &self.workers else {
            return Ok(Box::new(backends.into_iter().next().ok_or(Error::Ended)?));
        };
        let open = |_| PacketBackend::open(&self.name, &sending());
        let senders: io::Result<Vec<_>> = (0..workers.senders()).map(open).collect();
        let worked = Worked::new(&self.name, senders?, backends, workers);
        Ok(Box::new(worked))
    }

    /// Opens a device with frames in this memory. Its queues are divided among the workers, if any: as many receive
    /// workers, and transmit workers, as there are queues for. Also returns the mode that the interface offers.
    fn shared(&self, memory: &xdp::Memory, deaf: bool) -> Result<(AnyDevice, XdpMode)> {
        let Some(workers) = &self.workers else {
            let whole = Shared::bind(memory, &self.name, deaf)?;
            let mode = whole.mode();
            return Ok((Box::new(whole), mode));
        };
        let transmit = workers.senders();
        let (senders, receivers, mode) =
            Shared::bind_parts(memory, &self.name, deaf, transmit, workers.count)?;
        let worked = Worked::new(&self.name, senders, receivers, workers);
        Ok((Box::new(worked), mode))
    }

    /// Reopens the interface while frames pass; its own threads start.
    fn open_again(&self) -> Result<Opened> {
        let mut opened = self.open(false)?;
        opened.device.start()?;
        Ok(opened)
    }

    /// Continues with an interface that another process holds until this one owns it.
    fn go_on_with(&self, passed: ToPass) -> Result<Opened> {
        let name = &self.name;
        let hold = Hold::share(name, passed.note)?;
        let backend = PacketBackend::from_sockets(name, of_packets(false).budget, passed.sockets)?;
        let device = self.received_by(vec![backend])?;
        if let (Some(port), Some(gate)) = (&self.port, device.gate()) {
            port.opened(name, gate);
        }
        Ok(Opened::new(device, hold))
    }
}

/// Returns the in-flight budget of a site's interface.
pub(crate) fn budget(backend: config::Backend) -> Budget {
    match backend {
        config::Backend::Packet => of_packets(false).budget,
        config::Backend::Xdp => xdp::BUDGET,
    }
}

/// Returns the function that gives the maximum cost of a frame, by its bytes, against that budget.
pub(crate) fn cost(backend: config::Backend) -> fn(usize) -> u64 {
    match backend {
        config::Backend::Packet => packet::kernel_memory,
        config::Backend::Xdp => |bytes| bytes as u64,
    }
}

/// Returns the options of an interface's packet sockets.
fn of_packets(deaf: bool) -> packet::Options {
    packet::Options {
        deaf,
        // Deliver a single frame at once: a block would delay it by up to a millisecond.
        prompt: true,
        promiscuous: true,
        ring: PACKET_RING,
        ..packet::Options::default()
    }
}

/// The same where frames arrive elsewhere.
fn sending() -> packet::Options {
    packet::Options {
        ring: 0,
        promiscuous: false,
        ..of_packets(true)
    }
}

/// Opens an interface that receives nothing until [`Device::hear`]. It is not held: another program may have it.
pub(crate) fn unheld(name: &str) -> Result<AnyDevice> {
    Ok(Box::new(PacketBackend::open(name, &of_packets(true))?))
}

/// Opens the tap device, with the same Ethernet address at each start. A persistent device keeps its own.
fn tap(name: &str, outside: &str) -> Result<(String, AnyDevice)> {
    let persists = interface::mtu(name).is_ok();
    let tap = TunBackend::open(name, Layer::Ethernet)?;
    if !persists {
        tap.follow(outside)
            .doing(format_args!("giving the tap device {name} an address"))?;
    }
    tap.set_up()
        .doing(format_args!("setting up the tap device {name}"))?;
    Ok((tap.name().to_owned(), Box::new(tap)))
}

fn nothing() -> Result<AnyDevice> {
    let never = eventfd(0, EventfdFlags::CLOEXEC);
    let never = never.doing("making a device without an interface")?;
    Ok(Box::new(Nothing(never)))
}

/// An interface through packet sockets.
impl Device for PacketBackend<Frame> {
    fn losses(&mut self) -> io::Result<Losses> {
        Ok(Losses {
            lost: self.lost()? + self.discarded(),
            uncut: self.uncut(),
            ..Losses::default()
        })
    }

    fn is_filling(&self) -> bool {
        PacketBackend::is_filling(self)
    }

    fn gate(&self) -> Option<Gate> {
        Some(PacketBackend::gate(self))
    }

    fn hear(&self, anything: bool) -> io::Result<()> {
        PacketBackend::hear(self, anything)
    }

    fn backend(&self) -> String {
        "packet".to_owned()
    }

    fn to_pass(&self) -> io::Result<Option<ToPass>> {
        let sockets = self.sockets()?;
        Ok(sockets.map(|sockets| ToPass {
            sockets,
            note: None,
        }))
    }

    fn rest(&mut self, into: &mut Vec<Frame>) -> Duration {
        PacketBackend::rest(self, into)
    }

    fn position(&self) -> Position {
        PacketBackend::position(self)
    }

    fn go_on_from(&mut self, position: Position) {
        PacketBackend::go_on_from(self, position);
    }
}

/// A virtual interface that the host uses instead of the outside one.
impl Device for TunBackend<Frame> {
    fn backend(&self) -> String {
        "tap".to_owned()
    }
}

/// A device without an interface, for sites where only processes send: it receives nothing and rejects all frames.
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

    /// Frames that arrive outside also reach the host's own network stack, so none is lost.
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
