//! The receive side of an interface, for use on another thread than the interface's own.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use fairlane_io::{Arrival, Backend};

use super::{Device, Handover, Lent, Receive, Replace, Transmit, Workers};
use crate::frame::Frame;
use crate::note::ClassifiedFrame;
use crate::threads::Bell;
use crate::waits::Poll;
use crate::workers::WorkerHandles;

/// The place where the workers of an interface return to.
pub(super) struct Home<D>(Arc<Mutex<Option<WorkerHandles<D>>>>);

impl<D> Home<D> {
    /// Takes the workers if they have returned.
    pub(super) fn take(&self) -> Option<WorkerHandles<D>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn give(&self, workers: Option<WorkerHandles<D>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = workers;
    }
}

/// The workers of an interface while they are lent: frames arrive there, and none leave. Dropped, it gives them
/// back.
struct Entrance<D> {
    /// `Some` until it is dropped.
    workers: Option<WorkerHandles<D>>,
    home: Home<D>,
    bell: Arc<Bell>,
    /// The workers have ended; the lender gets their error.
    has_ended: bool,
    backend: String,
}

/// Lends workers; the receive side has the name of this backend.
pub(super) fn lend<D: Device + 'static>(
    workers: WorkerHandles<D>,
    backend: String,
) -> (Lent, Home<D>) {
    let home = Arc::new(Mutex::new(None));
    let bell = Arc::clone(workers.bell());
    let entrance = Entrance {
        workers: Some(workers),
        home: Home(Arc::clone(&home)),
        bell: Arc::clone(&bell),
        has_ended: false,
        backend,
    };
    let lent = Lent {
        entrance: Box::new(entrance),
        bell,
    };
    (lent, Home(home))
}

impl<D> Drop for Entrance<D> {
    fn drop(&mut self) {
        self.home.give(self.workers.take());
    }
}

/// Frames cannot be sent by it.
impl<D> Backend for Entrance<D> {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, _: &mut VecDeque<Frame>) -> io::Result<usize> {
        Ok(0)
    }

    fn receive(&mut self, _: &mut Vec<Frame>, _: usize) -> io::Result<usize> {
        Ok(0)
    }

    fn arrivals(&self) -> &[Arrival] {
        &[]
    }

    fn in_flight(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn refused(&self) -> u64 {
        0
    }
}

impl<D> AsFd for Entrance<D> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl<D: Device + 'static> Receive for Entrance<D> {
    fn is_filling(&self) -> bool {
        self.workers.as_ref().is_some_and(WorkerHandles::is_filling)
    }
}

impl<D: Device + 'static> Transmit for Entrance<D> {}

impl<D: Device + 'static> Handover for Entrance<D> {}

impl<D: Device + 'static> Workers for Entrance<D> {
    fn take_classified(
        &mut self,
        into: &mut Vec<ClassifiedFrame>,
        most: usize,
    ) -> io::Result<usize> {
        let Some(workers) = &mut self.workers else {
            return Ok(0);
        };
        workers.take(into, most).or_else(|error| {
            // The owner of the interface knows whether to wait for it.
            workers.restore_error(error);
            self.has_ended = true;
            Ok(0)
        })
    }

    fn return_buffers(&mut self) {
        if let Some(workers) = &mut self.workers {
            workers.return_buffers();
        }
    }

    fn begin_round(&mut self, poll: Poll) {
        if let Some(workers) = &mut self.workers {
            workers.begin_round(poll);
        }
    }

    fn arm_wakeup(&mut self) -> bool {
        self.workers.as_mut().is_none_or(WorkerHandles::arm_wakeup)
    }

    fn must_return(&self) -> bool {
        self.has_ended
    }
}

impl<D: Device + 'static> Replace for Entrance<D> {}

impl<D: Device + 'static> Device for Entrance<D> {
    fn backend(&self) -> String {
        self.backend.clone()
    }
}
