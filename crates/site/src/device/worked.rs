//! An interface at which a thread of its own receives.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fairlane_io::early::Gate;
use fairlane_io::packet::{Position, Sockets};
use fairlane_io::{Arrival, Backend};

use super::{Device, Losses, ToPass};
use crate::frame::Frame;
use crate::workers::{Hired, Hiring, Sorted, hire};

/// Two devices of one interface: frames leave by the one, and arrive at the other, which is a worker's once
/// that has [started](Device::start). Until then it is as a device without workers.
pub(crate) struct Worked<D> {
    name: String,
    sender: D,
    at: At<D>,
    /// What another process needs of the receiver, while that is a worker's.
    sockets: Option<Sockets>,
    hiring: Hiring,
}

/// Where frames arrive.
enum At<D> {
    /// Here.
    Here(D),
    /// At the worker.
    Worker(Box<Hired<D>>),
    /// Nowhere: the worker could not start, or has panicked.
    Nowhere,
}

impl<D: Device + 'static> Worked<D> {
    /// What is sent by the receiver, and arrives at the sender, is nothing.
    pub(crate) fn new(name: &str, sender: D, receiver: D, hiring: &Hiring) -> Worked<D> {
        Worked {
            name: name.to_owned(),
            sender,
            at: At::Here(receiver),
            sockets: None,
            hiring: hiring.clone(),
        }
    }

    /// What is had of the worker that has started.
    #[cfg(test)]
    pub(crate) fn working(mut self, hired: Hired<D>) -> Worked<D> {
        self.at = At::Worker(Box::new(hired));
        self
    }

    fn receiver(&self) -> Option<&D> {
        match &self.at {
            At::Here(receiver) => Some(receiver),
            At::Worker(_) | At::Nowhere => None,
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
            At::Here(receiver) => receiver.receive(into, max),
            At::Worker(_) => Ok(0),
            At::Nowhere => Err(io::Error::other("a thread that receives has ended")),
        }
    }

    fn arrivals(&self) -> &[Arrival] {
        self.receiver().map_or(&[], |receiver| receiver.arrivals())
    }

    fn in_flight(&self) -> io::Result<u64> {
        self.sender.in_flight()
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
            At::Here(receiver) => receiver.as_fd(),
            At::Worker(hired) => hired.bell(),
            At::Nowhere => self.sender.as_fd(),
        }
    }
}

impl<D: Device + 'static> Device for Worked<D> {
    fn losses(&mut self) -> io::Result<Losses> {
        match &mut self.at {
            At::Here(receiver) => receiver.losses(),
            At::Worker(hired) => Ok(hired.losses()),
            At::Nowhere => Ok(Losses::default()),
        }
    }

    fn is_filling(&self) -> bool {
        match &self.at {
            At::Here(receiver) => receiver.is_filling(),
            At::Worker(hired) => hired.is_filling(),
            At::Nowhere => false,
        }
    }

    fn gate(&self) -> Option<Gate> {
        self.receiver()?.gate()
    }

    fn hear(&self, anything: bool) -> io::Result<()> {
        self.receiver().map_or(Ok(()), |it| it.hear(anything))
    }

    fn backend(&self) -> String {
        format!("{}, 1 worker", self.sender.backend())
    }

    fn to_pass(&self) -> io::Result<Option<ToPass>> {
        let Some(sockets) = &self.sockets else {
            return self.receiver().map_or(Ok(None), |it| it.to_pass());
        };
        Ok(Some(ToPass {
            sockets: Sockets {
                sender: sockets.sender.try_clone()?,
                receiver: sockets.receiver.try_clone()?,
                ring: sockets.ring,
            },
            note: None,
        }))
    }

    /// Ends the worker: from here on frames arrive here.
    fn rest(&mut self, into: &mut Vec<Frame>) -> Duration {
        let mut waited = Duration::ZERO;
        self.at = match std::mem::replace(&mut self.at, At::Nowhere) {
            At::Worker(hired) => match hired.end() {
                Some((receiver, sorted)) => {
                    let now = self.hiring.clock.now();
                    let oldest = sorted.first().map(|sorted| now.since(sorted.came().at));
                    waited = oldest.map_or(Duration::ZERO, Duration::from);
                    into.extend(sorted.into_iter().map(|sorted| sorted.frame));
                    At::Here(receiver)
                }
                None => At::Nowhere,
            },
            at => at,
        };
        match &mut self.at {
            At::Here(receiver) => waited.max(receiver.rest(into)),
            At::Worker(_) | At::Nowhere => waited,
        }
    }

    fn position(&self) -> Position {
        let receiver = self.receiver();
        receiver.map_or_else(Position::default, |receiver| receiver.position())
    }

    fn go_on_from(&mut self, position: Position) {
        if let At::Here(receiver) = &mut self.at {
            receiver.go_on_from(position);
        }
    }

    fn start(&mut self) -> io::Result<()> {
        let receiver = match std::mem::replace(&mut self.at, At::Nowhere) {
            At::Here(receiver) => receiver,
            other => {
                self.at = other;
                return Ok(());
            }
        };
        self.sockets = receiver.to_pass()?.map(|passed| passed.sockets);
        let (worker, mut hired) = hire(receiver, &self.hiring)?;
        hired.start(worker, &self.hiring, format!("receive {}", self.name))?;
        self.at = At::Worker(Box::new(hired));
        Ok(())
    }

    fn take_sorted(&mut self, into: &mut Vec<Sorted>, most: usize) -> io::Result<usize> {
        match &mut self.at {
            At::Worker(hired) => hired.take(into, most),
            At::Here(_) | At::Nowhere => Ok(0),
        }
    }

    fn give_back(&mut self) {
        if let At::Worker(hired) = &mut self.at {
            hired.give_back();
        }
    }

    fn may_wait(&mut self) -> bool {
        match &mut self.at {
            At::Worker(hired) => hired.may_wait(),
            At::Here(_) | At::Nowhere => true,
        }
    }
}
