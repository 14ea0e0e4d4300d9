//! Opens the devices of a site.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fairlane_config::{Interfaces, Near};
use fairlane_io::tun::Layer;
use fairlane_io::{Backend, PacketBackend, TunBackend, interface};
use rustix::event::{EventfdFlags, eventfd};

use super::lasting::{Lasting, OnLoss};
use super::opener::{Opener, memory, of_packets};
use super::xdp::Needs;
use super::{AnyDevice, Device, ExportedDevice, Handover, Receive, Replace, Transmit, Workers};
use crate::early::Port;
use crate::error::{Context, Error, Result};
use crate::event::Notify;
use crate::frame::Frame;
use crate::workers::WorkerOptions;

/// The early drop at each of both devices, if enabled.
pub type Ports = [Option<Arc<Port>>; 2];

/// Opens the near device and the outside one, and returns them with their names. Nothing is open after an error.
pub fn open(
    interfaces: &Interfaces,
    needs: Needs,
    (on_loss, paused): (OnLoss, bool),
    notify: &Notify,
    ports: &Ports,
    workers: &[Option<WorkerOptions>; 2],
) -> Result<[(String, AnyDevice); 2]> {
    let outside = &interfaces.outside;
    let memory = memory(interfaces, needs, workers)?;
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
        let lasting = Lasting::open(opener, on_loss, paused)?;
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

/// The same two, of another process that is to hand them over.
pub fn adopt(
    names: [String; 2],
    passed: [ExportedDevice; 2],
    on_loss: OnLoss,
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
            let opened = opener.adopt(passed)?;
            let device: AnyDevice = Box::new(Lasting::over(opened, opener, on_loss)?);
            Ok::<_, Error>((name, device))
        };
    let ([near, outside], [of_near, of_outside]) = (names, passed);
    let [near_port, port] = ports;
    Ok([
        go_on(near, of_near, near_port, near_workers)?,
        go_on(outside, of_outside, port, workers)?,
    ])
}

/// Opens an interface that receives nothing until [`set_receiving`](super::Receive::set_receiving). It is not held: another program may have it.
pub fn unheld(name: &str) -> Result<AnyDevice> {
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

impl Receive for Nothing {}

impl Transmit for Nothing {}

impl Handover for Nothing {}

impl Workers for Nothing {}

impl Replace for Nothing {}

impl Device for Nothing {
    fn backend(&self) -> String {
        "none".to_owned()
    }
}
