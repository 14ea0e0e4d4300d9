//! An interface at which a thread of its own receives.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use fairlane_io::early::Gate;
use fairlane_io::{Arrival, Backend};

use super::{Device, Losses};
use crate::error::Result;
use crate::frame::Frame;
use crate::workers::{Hired, Hiring, Sorted, hire};

/// Two devices of one interface: frames leave by the one, and arrive at the other, which is a worker's once
/// that has [started](Device::start). Until then it is as a device without workers.
pub(crate) struct Worked<D> {
    name: String,
    sender: D,
    at: At<D>,
    hiring: Hiring,
}

/// Where frames arrive.
enum At<D> {
    /// Here.
    Here(D),
    /// At the worker.
    Worker(Hired),
    /// Nowhere: there is no worker after all.
    Nowhere,
}

impl<D: Device + 'static> Worked<D> {
    /// What is sent by the receiver, and arrives at the sender, is nothing.
    pub(crate) fn new(name: &str, sender: D, receiver: D, hiring: &Hiring) -> Worked<D> {
        Worked {
            name: name.to_owned(),
            sender,
            at: At::Here(receiver),
            hiring: hiring.clone(),
        }
    }

    /// What is had of the worker that has started.
    #[cfg(test)]
    pub(crate) fn working(mut self, hired: Hired) -> Worked<D> {
        self.at = At::Worker(hired);
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
            At::Worker(_) | At::Nowhere => Ok(0),
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

    fn start(&mut self) -> Result<()> {
        let receiver = match std::mem::replace(&mut self.at, At::Nowhere) {
            At::Here(receiver) => receiver,
            other => {
                self.at = other;
                return Ok(());
            }
        };
        let (worker, mut hired) = hire(receiver, &self.hiring)?;
        hired.start(worker, &self.hiring, format!("receive {}", self.name))?;
        self.at = At::Worker(hired);
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
