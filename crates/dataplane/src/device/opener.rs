//! Opens an interface: for the first time, again, or as one that another process hands over.

use std::io;
use std::sync::Arc;

use fairlane_config::{self as config, Interfaces};
use fairlane_core::Rate;
use fairlane_io::{Budget, Hold, PacketBackend, XdpMode, interface, packet};

use super::worked::Worked;
use super::xdp::{self, Needs, Shared, Threads};
use super::{AnyDevice, ExportedDevice, Opened};
use crate::early::Port;
use crate::error::{Error, Result};
use crate::event::{Event, Notify};
use crate::frame::Frame;
use crate::workers::WorkerOptions;

/// Bytes of an interface's packet socket ring: some 10,000 frames with an MTU of 1,500, whatever their lengths.
const PACKET_RING: usize = 16 << 20;

/// The parameters for opening an interface, the first time or again.
#[derive(Clone)]
pub(super) struct Opener {
    pub(super) name: String,
    /// Where frames are shared with the kernel: AF_XDP instead of packet sockets.
    pub(super) memory: Option<xdp::Memory>,
    pub(super) notify: Notify,
    pub(super) port: Option<Arc<Port>>,
    /// Options of its receive workers, if any.
    pub(super) workers: Option<WorkerOptions>,
    /// The tap device that has its addresses while it is open, if any.
    pub(super) moves_to: Option<String>,
}

impl Opener {
    /// Opens an interface that no other program of this kind has, for frames as they were on the wire. A `paused` device
    /// receives nothing until [`set_receiving`](super::Receive::set_receiving).
    pub(super) fn open(&self, paused: bool) -> Result<Opened> {
        let name = &self.name;
        let mut hold = Hold::take(name)?;
        if let Some(complaint) = hold.complaint() {
            (self.notify)(Event::Warning(complaint.to_owned()));
        }
        let device: AnyDevice = match &self.memory {
            None => {
                let count = self.workers.as_ref().map_or(1, |workers| workers.count);
                let backends = PacketBackend::open_group(name, &of_packets(paused), count)?;
                // GRO by the kernel would have to be undone by segmentation.
                hold.single_frames_of_device(name)?;
                self.received_by(backends)?
            }
            Some(memory) => {
                let (device, mode) = self.shared(memory, paused)?;
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
    fn shared(&self, memory: &xdp::Memory, paused: bool) -> Result<(AnyDevice, XdpMode)> {
        let Some(workers) = &self.workers else {
            let whole = Shared::bind(memory, &self.name, paused)?;
            let mode = whole.mode();
            return Ok((Box::new(whole), mode));
        };
        let transmit = workers.senders();
        let (senders, receivers, mode) =
            Shared::bind_parts(memory, &self.name, paused, transmit, workers.count)?;
        let worked = Worked::new(&self.name, senders, receivers, workers);
        Ok((Box::new(worked), mode))
    }

    /// Reopens the interface while frames pass; its own threads start.
    pub(super) fn open_again(&self) -> Result<Opened> {
        let mut opened = self.open(false)?;
        opened.device.start()?;
        Ok(opened)
    }

    /// Continues with an interface that another process holds until this one owns it.
    pub(super) fn adopt(&self, passed: ExportedDevice) -> Result<Opened> {
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

/// The properties of a backend that others than its devices need: a row for each.
pub struct Properties {
    /// The in-flight budget of an interface.
    pub budget: Budget,
    /// The maximum cost of a frame, by its bytes, against the budget.
    pub cost: fn(usize) -> u64,
    /// Bytes of the longest frame beyond the MTU.
    header_and_tags: usize,
    /// Whether that is at least the frame with its overhead on the wire.
    pub costs_overhead: bool,
    /// The number of an interface's queues that workers may transmit by.
    pub transmit_queues: fn(&str) -> io::Result<u32>,
}

impl Properties {
    /// Returns the cost of the longest frame that an interface sends; of one with the usual MTU, if it does not exist
    /// here.
    pub fn longest_cost(&self, name: &str) -> u64 {
        let mtu = interface::mtu(name).unwrap_or(1_500) as usize;
        (self.cost)(mtu + self.header_and_tags)
    }
}

/// Returns the properties of a backend.
pub fn properties(backend: config::Backend) -> Properties {
    match backend {
        config::Backend::Packet => Properties {
            budget: of_packets(false).budget,
            cost: packet::kernel_memory,
            header_and_tags: 18,
            costs_overhead: true,
            transmit_queues: interface::rx_queues,
        },
        config::Backend::Xdp => Properties {
            budget: xdp::BUDGET,
            cost: |bytes| bytes as u64,
            header_and_tags: 22,
            costs_overhead: false,
            transmit_queues: xdp::transmit_queues,
        },
    }
}

/// Returns the bytes that a link's interface may have in flight, unless two of its longest frames are more: a
/// millisecond of the link.
pub fn short_queue(rate: Rate) -> u64 {
    rate.bps().div_ceil(8_000)
}

/// Returns the memory that the frames of a site share with the kernel, if the backend has any.
pub(super) fn memory(
    interfaces: &Interfaces,
    needs: Needs,
    workers: &[Option<WorkerOptions>; 2],
) -> Result<Option<xdp::Memory>> {
    match interfaces.backend {
        config::Backend::Packet => Ok(None),
        config::Backend::Xdp => xdp::memory(interfaces, needs, Threads::of(workers)).map(Some),
    }
}

/// Checks that the backend has memory for a site.
pub fn check_memory(
    interfaces: &Interfaces,
    needs: Needs,
    workers: &[Option<WorkerOptions>; 2],
) -> Result<()> {
    match interfaces.backend {
        config::Backend::Packet => Ok(()),
        config::Backend::Xdp => xdp::Plan::new(interfaces, needs, Threads::of(workers)).map(drop),
    }
}

/// Returns the options of an interface's packet sockets.
pub(super) fn of_packets(paused: bool) -> packet::Options {
    packet::Options {
        deaf: paused,
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
