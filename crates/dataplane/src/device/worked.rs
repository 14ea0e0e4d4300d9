//! An interface with receive workers.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fairlane_io::early::Gate;
use fairlane_io::packet::{Position, Sockets};
use fairlane_io::{Arrival, Backend};

use super::entrance::{self, Home};
use super::sent::Sending;
use super::{Device, ExportedDevice, Handover, Lent, Losses, Receive, Replace, Transmit, Workers};
use crate::frame::Frame;
use crate::note::ClassifiedFrame;
use crate::waits::{Poll, Waits};
use crate::worker::Direction;
use crate::workers::{WorkerHandles, WorkerOptions};

/// Devices of one interface: frames leave by some, and arrive at the others, each of which belongs to a worker once
/// these have [started](Workers::start). Until then it behaves as a device without workers.
pub struct Worked<D> {
    name: String,
    /// How frames are exchanged.
    backend: String,
    /// Whether no other receiver hears the arriving frames.
    is_sole_receiver: bool,
    sender: Sending<D>,
    at: At<D>,
    /// The receiver that delivered frames last, if they are here.
    heard: usize,
    /// The receiver's sockets for another process, if there is only one receiver, while a worker has it.
    sockets: Option<Sockets>,
    options: WorkerOptions,
    /// Of workers that have ended.
    former_waits: Option<Waits>,
}

/// Where frames arrive.
enum At<D> {
    /// Here.
    Here(Vec<D>),
    /// At the workers.
    Workers(WorkerHandles<D>),
    /// At the workers, of which there are this many, lent to another thread until they are back.
    Lent(Home<D>, usize),
    /// Nowhere: a worker has panicked. Holds the losses reported by then.
    Nowhere(Losses),
}

impl<D: Device + 'static> Worked<D> {
    /// Creates the device from receivers and senders. Receivers transmit nothing, and nothing arrives at senders. There
    /// is one sender, or one per transmit worker.
    pub fn new(
        name: &str,
        senders: Vec<D>,
        receivers: Vec<D>,
        options: &WorkerOptions,
    ) -> Worked<D> {
        Worked {
            name: name.to_owned(),
            backend: senders.first().map_or(String::new(), D::backend),
            is_sole_receiver: senders.first().is_some_and(D::is_sole_receiver),
            sender: Sending::new(senders, options.transmit.as_ref()),
            at: At::Here(receivers),
            heard: 0,
            sockets: None,
            options: options.clone(),
            former_waits: None,
        }
    }

    /// Replaces the receivers by the workers that have started with them.
    #[cfg(test)]
    pub fn working(mut self, handles: WorkerHandles<D>) -> Worked<D> {
        self.at = At::Workers(handles);
        self
    }

    fn receivers(&self) -> &[D] {
        match &self.at {
            At::Here(receivers) => receivers,
            At::Workers(_) | At::Lent(..) | At::Nowhere(_) => &[],
        }
    }

    /// Returns the receiver, if it is the only one and here.
    fn receiver(&self) -> Option<&D> {
        match self.receivers() {
            [receiver] => Some(receiver),
            _ => None,
        }
    }

    fn take_at(&mut self) -> At<D> {
        std::mem::replace(&mut self.at, At::Nowhere(Losses::default()))
    }

    fn count(&self) -> usize {
        match &self.at {
            At::Here(receivers) => receivers.len(),
            At::Workers(handles) => handles.count(),
            At::Lent(_, count) => *count,
            At::Nowhere(_) => 0,
        }
    }
}

impl<D: Device + 'static> Backend for Worked<D> {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        self.sender.transmit(batch)
    }

    fn receive(&mut self, into: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        match &mut self.at {
            At::Here(receivers) => {
                for (at, receiver) in receivers.iter_mut().enumerate() {
                    let came = receiver.receive(into, max)?;
                    if came > 0 {
                        self.heard = at;
                        return Ok(came);
                    }
                }
                Ok(0)
            }
            At::Workers(_) | At::Lent(..) => self.sender.poll_transmit().map(|()| 0),
            At::Nowhere(_) => Err(Direction::Receive.panicked()),
        }
    }

    fn arrivals(&self) -> &[Arrival] {
        let heard = self.receivers().get(self.heard);
        heard.map_or(&[], |receiver| receiver.arrivals())
    }

    fn in_flight(&self) -> io::Result<u64> {
        self.sender.in_flight()
    }

    fn keep_short(&mut self, bytes: u64) -> u64 {
        self.sender.keep_short(bytes)
    }

    fn most_in_flight(&self) -> u64 {
        self.sender.most_in_flight()
    }

    fn go_on(&mut self) -> io::Result<u64> {
        self.sender.go_on()
    }

    fn refused(&self) -> u64 {
        self.sender.refused()
    }
}

impl<D: Device + 'static> AsFd for Worked<D> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.at {
            At::Workers(handles) => handles.bell().as_fd(),
            At::Here(receivers) => {
                let first = receivers.first().map(D::as_fd);
                first.unwrap_or_else(|| self.sender.as_fd())
            }
            At::Lent(..) | At::Nowhere(_) => self.sender.as_fd(),
        }
    }
}

impl<D: Device + 'static> Receive for Worked<D> {
    fn losses(&mut self) -> io::Result<Losses> {
        let mut losses = Losses {
            away: self.sender.away(),
            unsent: self.sender.unsent(),
            ..Losses::default()
        };
        match &mut self.at {
            At::Here(receivers) => {
                for receiver in receivers {
                    losses += receiver.losses()?;
                }
            }
            At::Workers(handles) => losses += handles.losses(),
            At::Lent(..) => {}
            At::Nowhere(told) => losses += *told,
        }
        Ok(losses)
    }

    fn is_filling(&self) -> bool {
        match &self.at {
            At::Here(receivers) => receivers.iter().any(Receive::is_filling),
            At::Workers(handles) => handles.is_filling(),
            At::Lent(..) | At::Nowhere(_) => false,
        }
    }

    fn gate(&self) -> Option<Gate> {
        let gates: Option<Vec<Gate>> = self.receivers().iter().map(Receive::gate).collect();
        Some(Gate::of_all(gates.filter(|gates| !gates.is_empty())?))
    }

    fn set_receiving(&self, anything: bool) -> io::Result<()> {
        let mut receivers = self.receivers().iter();
        receivers.try_for_each(|receiver| receiver.set_receiving(anything))
    }

    fn is_sole_receiver(&self) -> bool {
        self.is_sole_receiver
    }
}

impl<D: Device + 'static> Transmit for Worked<D> {
    fn untaken(&self) -> u64 {
        self.sender.untaken()
    }
}

impl<D: Device + 'static> Handover for Worked<D> {
    fn export(&self) -> io::Result<Option<ExportedDevice>> {
        let count = self.count();
        if count > 1 {
            return Err(io::Error::other(format!(
                "{count} threads receive at {}, and one alone can be handed over: stop the running \
                 process and start the new one, or have [workers] receive = 1 there",
                self.name
            )));
        }
        let Some(sockets) = &self.sockets else {
            return self.receiver().map_or(Ok(None), |it| it.export());
        };
        Ok(Some(ExportedDevice {
            sockets: Sockets {
                sender: sockets.sender.try_clone()?,
                receiver: sockets.receiver.try_clone()?,
                ring: sockets.ring,
            },
            note: None,
        }))
    }

    /// Ends the workers: from here on frames arrive here. The frames they had for transmission are sent, or returned
    /// here.
    fn quiesce(&mut self, into: &mut Vec<Frame>) -> Duration {
        self.sender.quiesce();
        let mut waited = Duration::ZERO;
        self.at = match self.take_at() {
            At::Workers(handles) => {
                let told = handles.losses();
                self.former_waits = Waits::of_both(self.former_waits, Some(handles.waits()));
                handles.end().map_or(At::Nowhere(told), |ended| {
                    let now = self.options.clock.now();
                    let receivers = ended.into_iter().map(|(receiver, frames)| {
                        let oldest = frames.first().map(|frame| now.since(frame.came().at));
                        waited = waited.max(oldest.map_or(Duration::ZERO, Duration::from));
                        into.extend(frames.into_iter().map(|classified| classified.frame));
                        receiver
                    });
                    At::Here(receivers.collect())
                })
            }
            at => at,
        };
        if let At::Here(receivers) = &mut self.at {
            for receiver in receivers {
                waited = waited.max(receiver.quiesce(into));
            }
        }
        waited
    }

    fn position(&self) -> Position {
        let receiver = self.receiver();
        receiver.map_or_else(Position::default, |receiver| receiver.position())
    }

    fn resume_from(&mut self, position: Position) {
        if let At::Here(receivers) = &mut self.at
            && let [receiver] = &mut receivers[..]
        {
            receiver.resume_from(position);
        }
    }

    fn take_unsent(&mut self, into: &mut VecDeque<Frame>) {
        self.sender.take_left(into);
    }
}

impl<D: Device + 'static> Workers for Worked<D> {
    fn start(&mut self) -> io::Result<()> {
        self.sender.start(&self.name)?;
        if let Some(receiver) = self.receiver() {
            self.sockets = receiver.export()?.map(|passed| passed.sockets);
        }
        let receivers = match self.take_at() {
            At::Here(receivers) => receivers,
            other => {
                self.at = other;
                return Ok(());
            }
        };
        match WorkerHandles::start(receivers, &self.options, &self.name) {
            Ok(handles) => {
                self.at = At::Workers(handles);
                Ok(())
            }
            Err((error, receivers)) => {
                self.at = At::Here(receivers);
                let name = &self.name;
                let sentence = format!("cannot start a receive worker at {name}: {error}");
                Err(io::Error::new(error.kind(), sentence))
            }
        }
    }

    fn take_classified(
        &mut self,
        into: &mut Vec<ClassifiedFrame>,
        most: usize,
    ) -> io::Result<usize> {
        match &mut self.at {
            At::Workers(handles) => handles.take(into, most),
            At::Here(_) | At::Lent(..) | At::Nowhere(_) => Ok(0),
        }
    }

    fn return_buffers(&mut self) {
        if let At::Workers(handles) = &mut self.at {
            handles.return_buffers();
        }
    }

    fn begin_round(&mut self, poll: Poll) {
        if let At::Workers(handles) = &mut self.at {
            handles.begin_round(poll);
        }
    }

    fn receive_waits(&self) -> Option<Waits> {
        let waits = match &self.at {
            At::Workers(handles) => Some(handles.waits()),
            At::Here(_) | At::Lent(..) | At::Nowhere(_) => None,
        };
        Waits::of_both(self.former_waits, waits)
    }

    fn transmit_waits(&self) -> Option<Waits> {
        self.sender.waits()
    }

    fn arm_wakeup(&mut self) -> bool {
        match &mut self.at {
            At::Workers(handles) => handles.arm_wakeup(),
            At::Here(_) | At::Lent(..) | At::Nowhere(_) => true,
        }
    }

    fn can_lend(&self) -> bool {
        matches!(self.at, At::Workers(_))
    }

    fn lend(&mut self) -> Option<Lent> {
        let backend = self.backend();
        match self.take_at() {
            At::Workers(handles) => {
                let count = handles.count();
                let (lent, home) = entrance::lend(handles, backend);
                self.at = At::Lent(home, count);
                Some(lent)
            }
            at => {
                self.at = at;
                None
            }
        }
    }

    fn reclaim(&mut self) {
        if let At::Lent(home, _) = &self.at
            && let Some(handles) = home.take()
        {
            self.at = At::Workers(handles);
        }
    }
}

impl<D: Device + 'static> Replace for Worked<D> {}

impl<D: Device + 'static> Device for Worked<D> {
    fn end(&mut self) -> u64 {
        let mut left = Vec::new();
        self.quiesce(&mut left);
        self.sender.end();
        let receivers = match &mut self.at {
            At::Here(receivers) => &mut receivers[..],
            At::Workers(_) | At::Lent(..) | At::Nowhere(_) => &mut [],
        };
        left.len() as u64 + receivers.iter_mut().map(Device::end).sum::<u64>()
    }

    fn backend(&self) -> String {
        let workers = match self.count() {
            1 => "1 worker".to_owned(),
            count => format!("{count} workers"),
        };
        let backend = &self.backend;
        match self.sender.workers() {
            0 => format!("{backend}, {workers}"),
            1 => format!("{backend}, {workers}, 1 transmit worker"),
            count => format!("{backend}, {workers}, {count} transmit workers"),
        }
    }
}
