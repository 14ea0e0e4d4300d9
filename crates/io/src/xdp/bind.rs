//! Binding: its steps, the modes to try, and its errors.

use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::{
    Bound, HEADER, MOST_TAGS, TAG, Umem, XdpBackend, XdpMode, XdpOptions, XdpReceiver, XdpSender,
};
use crate::interface::no_ethernet;
use crate::sys::bpf::{AttachPoint, Program};
use crate::sys::interface::Interface;
use crate::sys::xdp::{Copying, HEADROOM, QUEUES, Receiving, Sending, Socket, unroute};

/// The kernel takes down a socket and a program some time after they are closed. Until then their
/// queue is busy.
const TEARDOWN: Duration = Duration::from_secs(1);

/// The fewest places of a ring.
const LEAST_RING: u32 = 64;

/// The programs that this process has on interfaces: one serves all queues.
static PROGRAMS: Mutex<Vec<Attached>> = Mutex::new(Vec::new());

struct Attached {
    /// `None` where the kernel has no number for it (before Linux 5.14): then nothing is shared.
    namespace: Option<u64>,
    interface: u32,
    place: AttachPoint,
    program: Weak<Program>,
}

/// The step at which an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Open,
    Attach,
    Bind,
}

impl XdpBackend {
    /// Takes over all receive queues of the interface with the name `interface`, as [`bind`](Self::bind) does one: a
    /// socket on each, with rings of its own, all over `umem`. Packets arrive once all are bound; if one cannot be,
    /// those before it are closed again. A queue that the interface is given later (`ethtool -L`) goes to the kernel's
    /// own stack; the kernel lets none be taken away that has a socket.
    ///
    /// A memory has at most 64 sockets, of all its backends; each counts the whole memory once against
    /// the limit of pinned memory.
    ///
    /// # Errors
    ///
    /// As for [`bind`](Self::bind); `QuotaExceeded` where the memory would have more sockets.
    pub fn bind_all(umem: &Umem, interface: &str, options: &XdpOptions) -> io::Result<Self> {
        Self::bind_queues(umem, interface, None, options)
    }

    /// Takes over `queue` of the interface with the name `interface`, in the calling thread's network namespace.
    /// Blocks for up to a second while the queue is busy, since the kernel releases a closed socket only some time
    /// later.
    ///
    /// Backends of this process may share an interface, each with a queue of its own.
    ///
    /// # Errors
    ///
    /// Each is a message that names the interface and the remedy: `NotFound` if there is none, `ResourceBusy` if its
    /// queue has a socket or it has another XDP program, `PermissionDenied` without the privilege, `OutOfMemory` above
    /// the limit of pinned memory, `Unsupported` if it does not offer the mode, `InvalidInput` for options out of
    /// range, for an interface that carries no Ethernet frames, for a queue that it does not have, for an MTU larger
    /// than a frame, and for zero-copy with [unaligned](Umem::unaligned) memory.
    pub fn bind(
        umem: &Umem,
        interface: &str,
        queue: u32,
        options: &XdpOptions,
    ) -> io::Result<Self> {
        Self::bind_queues(umem, interface, Some(queue), options)
    }

    /// Takes over one queue, or all.
    fn bind_queues(
        umem: &Umem,
        interface: &str,
        queue: Option<u32>,
        options: &XdpOptions,
    ) -> io::Result<Self> {
        let device = Interface::find(interface).map_err(|error| no_interface(interface, error))?;
        let carries_ethernet = device.carries_ethernet();
        if !carries_ethernet.map_err(|error| no_interface(interface, error))? {
            return Err(no_ethernet(interface));
        }
        let mtu = device
            .mtu()
            .map_err(|error| no_interface(interface, error))?;
        let queues = match queue {
            Some(queue) => queue..queue + 1,
            None => {
                let all = device.rx_queues();
                0..all.map_err(|error| no_interface(interface, error))?
            }
        };
        check(umem, interface, queues.end - 1, mtu, options)?;
        // A queue by which nothing can be sent receives.
        let sending_queues = device.tx_queues();
        let sending_queues = sending_queues.map_err(|error| no_interface(interface, error))?;
        let Opened {
            receiving,
            first,
            beside,
            mode,
        } = open_all(umem, &device, interface, queues, options)?;
        let bound = Arc::new(Bound {
            name: interface.to_owned(),
            device,
            mode,
            gone: AtomicBool::new(false),
        });
        let send = |socket| XdpSender::new(socket, Arc::clone(&bound), options.budget, mtu);
        let most_beside = sending_queues.saturating_sub(1) as usize;
        let mut backend = Self {
            receiver: XdpReceiver::new(receiving, Arc::clone(&bound))?,
            sender: send(first),
            beside: beside.into_iter().take(most_beside).map(send).collect(),
        };
        backend.receiver.fill();
        if !options.deaf {
            backend.hear(true)?;
        }
        Ok(backend)
    }
}

/// The halves of sockets on some queues, by queue.
struct Opened {
    /// Sockets that do not receive yet.
    receiving: Vec<Receiving>,
    /// The transmitting half of the first queue, and those of the others.
    first: Sending,
    beside: Vec<Sending>,
    /// The slowest.
    mode: XdpMode,
}

/// Sockets on each of these queues, at least one.
fn open_all(
    umem: &Umem,
    device: &Interface,
    interface: &str,
    queues: Range<u32>,
    options: &XdpOptions,
) -> io::Result<Opened> {
    let patience = Instant::now() + TEARDOWN;
    let mut opener = Opener {
        umem,
        device,
        options,
        attached: None,
    };
    let mut open = |queue| {
        // Those that are bound stay so while a later one is busy, for they would be busy themselves.
        loop {
            let error = match opener.open(queue) {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            let busy = matches!(error.1.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
            if !busy || Instant::now() >= patience {
                return Err(explain(interface, queue, options.mode, error));
            }
            thread::sleep(Duration::from_millis(20));
        }
    };
    let (receiving, first, mode) = open(queues.start)?;
    let mut all = Opened {
        receiving: vec![receiving],
        first,
        beside: Vec::new(),
        mode,
    };
    for queue in queues.skip(1) {
        match open(queue) {
            Ok((receiving, sending, mode)) => {
                if mode != XdpMode::ZeroCopy {
                    all.mode = mode;
                }
                all.receiving.push(receiving);
                all.beside.push(sending);
            }
            Err(error) => {
                unroute(&all.receiving);
                return Err(error);
            }
        }
    }
    Ok(all)
}

/// How the queues of an interface are opened.
struct Opener<'a> {
    umem: &'a Umem,
    device: &'a Interface,
    options: &'a XdpOptions,
    /// The program on the interface, once there is one.
    attached: Option<(Arc<Program>, AttachPoint)>,
}

impl Opener<'_> {
    /// Opens both halves of a bound socket, which do not receive yet.
    fn open(&mut self, queue: u32) -> Result<(Receiving, Sending, XdpMode), (Step, io::Error)> {
        let (device, options) = (self.device, self.options);
        let at = |step| move |error| (step, error);
        // A driver that reads frames itself takes those bytes for metadata, whether a descriptor says so or not; and
        // some devices bypass it on transmission (virtio-net, before Linux 6.19).
        let to_be_told = device.is_cable().unwrap_or(false);
        let mut socket = Socket::open(self.umem, options.rx_ring, options.tx_ring, to_be_told)
            .map_err(at(Step::Open))?;
        let (program, place) = match &self.attached {
            Some(attached) => attached.clone(),
            None => attach(&socket, device, options.mode).map_err(at(Step::Attach))?,
        };
        let copying = copying(options.mode, place, self.umem.is_unaligned());
        socket
            .bind(device.index(), queue, copying)
            .map_err(at(Step::Bind))?;
        self.attached = Some((Arc::clone(&program), place));
        let mode = match place {
            _ if socket.is_zero_copy() => XdpMode::ZeroCopy,
            AttachPoint::Driver => XdpMode::Native,
            AttachPoint::Stack => XdpMode::Generic,
        };
        let (receiving, sending) = socket.cut(program, queue);
        Ok((receiving, sending, mode))
    }
}

/// Returns whether the kernel may copy for a backend that is to have this mode, with its program in this place. Of
/// frames that are not aligned, a driver that reads and writes them itself would take those alone whose pages lie side
/// by side.
fn copying(mode: Option<XdpMode>, place: AttachPoint, is_unaligned: bool) -> Copying {
    match (mode, place) {
        (Some(XdpMode::ZeroCopy), _) => Copying::Never,
        (None, AttachPoint::Driver) if !is_unaligned => Copying::IfNeeded,
        _ => Copying::Always,
    }
}

/// Returns the program on the device: this process's, if there is one in a place that `mode`
/// allows, or a new one.
fn attach(
    socket: &Socket,
    device: &Interface,
    mode: Option<XdpMode>,
) -> io::Result<(Arc<Program>, AttachPoint)> {
    let places: &[AttachPoint] = match mode {
        None => &[AttachPoint::Driver, AttachPoint::Stack],
        Some(XdpMode::ZeroCopy | XdpMode::Native) => &[AttachPoint::Driver],
        Some(XdpMode::Generic) => &[AttachPoint::Stack],
    };
    let namespace = socket.namespace().ok();
    // A panic of another holder leaves a list that is whole.
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    programs.retain(|attached| attached.program.strong_count() > 0);
    let ours = programs
        .iter()
        .filter(|attached| namespace.is_some() && attached.namespace == namespace)
        .filter(|attached| attached.interface == device.index())
        .filter(|attached| places.contains(&attached.place))
        .find_map(|attached| Some((attached.program.upgrade()?, attached.place)));
    if let Some(ours) = ours {
        return Ok(ours);
    }
    let mut result = Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    for &place in places {
        result = Program::attach(device.index(), place).map(|program| (Arc::new(program), place));
        match &result {
            Err(error) if !is_final(error) => {}
            _ => break,
        }
    }
    let (program, place) = result?;
    programs.push(Attached {
        namespace,
        interface: device.index(),
        place,
        program: Arc::downgrade(&program),
    });
    Ok((program, place))
}

/// Returns whether another place would meet the same error.
fn is_final(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EACCES | libc::EBUSY | libc::EEXIST | libc::ENODEV)
    )
}

/// Checks options and interface for validity.
fn check(
    umem: &Umem,
    interface: &str,
    last: u32,
    mtu: usize,
    options: &XdpOptions,
) -> io::Result<()> {
    let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    for (name, ring) in [("receive", options.rx_ring), ("transmit", options.tx_ring)] {
        if !ring.is_power_of_two() || !(LEAST_RING..=32_768).contains(&ring) {
            return invalid(format!(
                "a {name} ring of {ring} places is not possible: it has a power of two, 64 to 32768"
            ));
        }
    }
    if options.mode == Some(XdpMode::ZeroCopy) && umem.is_unaligned() {
        return invalid(format!(
            "the frames for interface {interface} are unaligned, and a device that reads and writes frames itself \
             wants each within a page: take memory of aligned ones, or leave the mode open"
        ));
    }
    if last >= QUEUES {
        return invalid(format!(
            "interface {interface} has no queue {last}: only queues below {QUEUES} are served"
        ));
    }
    let most = umem.frame_size() as usize - HEADROOM - HEADER - MOST_TAGS * TAG;
    if mtu > most {
        return invalid(format!(
            "interface {interface} has an MTU of {mtu}, and frames of {} bytes serve one of up to \
             {most}: take larger frames, or lower the MTU (`ip link set {interface} mtu {most}`)",
            umem.frame_size()
        ));
    }
    let longest = mtu + HEADER + MOST_TAGS * TAG;
    if options.budget.as_bytes() < longest as u64 {
        return invalid(format!(
            "a transmit budget of {} bytes is less than a frame of interface {interface} may \
             have: take at least {longest}",
            options.budget.as_bytes()
        ));
    }
    Ok(())
}

fn no_interface(interface: &str, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENODEV) => io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "there is no interface {interface} in this network namespace: `ip link` lists \
                 those that there are"
            ),
        ),
        _ => io::Error::new(
            error.kind(),
            format!("the interface {interface} cannot be used: {error}"),
        ),
    }
}

/// Returns the error as a message that names the remedy.
fn explain(
    interface: &str,
    queue: u32,
    mode: Option<XdpMode>,
    (step, error): (Step, io::Error),
) -> io::Error {
    use io::ErrorKind::{
        InvalidInput, NotFound, OutOfMemory, PermissionDenied, ResourceBusy, Unsupported,
    };
    let (kind, what) = match (error.raw_os_error(), step) {
        (Some(libc::EPERM | libc::EACCES), _) => (
            PermissionDenied,
            format!(
                "no privilege for AF_XDP on interface {interface}: run as root, or with the \
                 capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"
            ),
        ),
        (Some(libc::ENOBUFS | libc::ENOMEM), Step::Open) => (
            OutOfMemory,
            format!(
                "the memory for interface {interface} cannot be pinned: raise the limit (`ulimit \
                 -l`), take fewer frames, or run with the capability CAP_IPC_LOCK; each queue counts it"
            ),
        ),
        (Some(libc::EAFNOSUPPORT), Step::Open) => (
            Unsupported,
            format!(
                "this kernel has no AF_XDP for interface {interface}: it was built without \
                 CONFIG_XDP_SOCKETS"
            ),
        ),
        (Some(libc::EBUSY | libc::EEXIST), Step::Attach) => (
            ResourceBusy,
            format!(
                "interface {interface} is busy: it has an XDP program already (`ip link show \
                 {interface}`); stop the program that uses it, or take it off (`ip link set \
                 {interface} xdp off`)"
            ),
        ),
        (Some(libc::EBUSY), _) => (
            ResourceBusy,
            format!(
                "queue {queue} of interface {interface} is busy: it has an AF_XDP socket already; \
                 stop the program that uses it, or take another queue"
            ),
        ),
        (Some(libc::EINVAL), Step::Bind) => (
            InvalidInput,
            format!(
                "interface {interface} has no queue {queue}: `ethtool -l {interface}` shows how \
                 many it has, counted from 0"
            ),
        ),
        (Some(libc::ENODEV), _) => (
            NotFound,
            format!("interface {interface} was removed while it was being bound to"),
        ),
        _ if mode.is_some_and(|mode| mode != XdpMode::Generic) && step != Step::Open => (
            Unsupported,
            format!(
                "interface {interface} does not offer the mode that was asked for at queue {queue} \
                 ({error}): leave the mode open, or take generic"
            ),
        ),
        _ => (
            error.kind(),
            format!("AF_XDP on queue {queue} of interface {interface} failed: {error}"),
        ),
    };
    io::Error::new(kind, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_frames_are_copied_though_the_driver_may_offer_to_do_without() {
        let copying = |mode, is_unaligned| copying(mode, AttachPoint::Driver, is_unaligned);
        assert_eq!(copying(None, false), Copying::IfNeeded);
        for mode in [None, Some(XdpMode::Native), Some(XdpMode::Generic)] {
            assert_eq!(copying(mode, true), Copying::Always, "{mode:?}");
        }
        assert_eq!(copying(Some(XdpMode::Native), false), Copying::Always);
        assert_eq!(copying(Some(XdpMode::ZeroCopy), false), Copying::Never);
    }
}
