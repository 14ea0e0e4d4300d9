//! A device whose interface may go, and come back.
//!
//! While it is away nothing comes from it, and what is to leave by it is dropped and counted, as
//! by an interface whose cable was pulled: what waited for longer would leave late for nobody's
//! good. All else goes on. Whether it is back is looked after by a thread of its own, which also
//! lets go of the old interface and opens the new one; the thread that forwards takes over what is
//! open between two rounds.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fairlane_io::{Arrival, Backend};
use rustix::event::{EventfdFlags, eventfd};

use super::{Device, Losses, Opened, Opener};
use crate::daemon::OnLoss;
use crate::error::{Doing, Error, Result};
use crate::frame::Frame;
use crate::notice::Notice;

/// How often an interface that is away is looked for.
const AGAIN: Duration = Duration::from_millis(200);

/// A device that stays when its interface goes, if it is to.
pub(super) struct Lasting {
    /// None while it is away.
    opened: Option<Opened>,
    /// None where its loss is an error.
    keeper: Option<Keeper>,
    /// Readable never: what is waited for while it is away.
    never: OwnedFd,
    /// What the backends before this one have counted.
    former: Losses,
    former_refused: u64,
    /// Frames dropped while it was away.
    away: u64,
}

/// The thread that opens the interface again.
struct Keeper {
    lost: Option<Sender<Opened>>,
    back: Receiver<Opened>,
    thread: Option<JoinHandle<()>>,
}

impl Lasting {
    /// Opens an interface, now and whenever it is back. The thread that does the latter says so.
    pub(super) fn open(opener: Opener, on_loss: OnLoss) -> Result<Lasting> {
        Ok(Lasting {
            opened: Some(opener.open()?),
            never: eventfd(0, EventfdFlags::CLOEXEC).doing("making an event")?,
            keeper: match on_loss {
                OnLoss::Wait => Some(Keeper::start(opener)?),
                OnLoss::Fail => None,
            },
            former: Losses::default(),
            former_refused: 0,
            away: 0,
        })
    }

    /// Whether an error says that the interface is gone, and that it is waited for.
    fn is_away(&self, error: &io::Error) -> bool {
        let gone = [io::ErrorKind::NotFound, io::ErrorKind::NetworkDown];
        self.keeper.is_some() && gone.contains(&error.kind())
    }

    /// The interface is gone.
    fn lose(&mut self) {
        let Some(mut opened) = self.opened.take() else {
            return;
        };
        // A device that is gone may have nothing more to tell.
        self.former += opened.device.losses().unwrap_or_default();
        self.former_refused += opened.device.refused();
        if let Some(lost) = self.keeper.as_ref().and_then(|keeper| keeper.lost.as_ref()) {
            // The thread lives as long as this.
            let _ = lost.send(opened);
        }
    }
}

impl Keeper {
    fn start(opener: Opener) -> Result<Keeper> {
        let (lost, to_keep) = mpsc::channel();
        let (kept, back) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("keep {}", opener.name));
        let thread = thread.spawn(move || keep(&opener, &to_keep, &kept));
        Ok(Keeper {
            lost: Some(lost),
            back,
            thread: Some(thread.doing("starting a thread")?),
        })
    }
}

/// Opens the interface again whenever it was lost, until nobody wants it any more.
fn keep(opener: &Opener, lost: &Receiver<Opened>, back: &Sender<Opened>) {
    let Opener { name, notify, .. } = opener;
    while let Ok(opened) = lost.recv() {
        drop(opened);
        notify(Notice::Gone(name.clone()));
        let mut told = String::new();
        loop {
            match lost.recv_timeout(AGAIN) {
                Err(RecvTimeoutError::Disconnected) => return,
                // Nothing can be lost that is not there.
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
            match opener.open() {
                Ok(opened) => {
                    notify(Notice::Back(name.clone()));
                    if back.send(opened).is_err() {
                        return;
                    }
                    break;
                }
                Err(error) if is_absence(&error) => {}
                Err(error) => {
                    let reason = error.to_string();
                    if reason != told {
                        told = reason;
                        let interface = name.clone();
                        notify(Notice::Unusable { interface, error });
                    }
                }
            }
        }
    }
}

fn is_absence(error: &Error) -> bool {
    matches!(error, Error::Interface(reason) if reason.kind() == io::ErrorKind::NotFound)
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.lost = None;
        if let Some(thread) = self.thread.take() {
            // What it has open is put right before the program ends. A panic of its has been seen.
            let _ = thread.join();
        }
    }
}

impl Backend for Lasting {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        if let Some(opened) = &mut self.opened {
            match opened.device.transmit(batch) {
                Err(error) if self.is_away(&error) => self.lose(),
                sent => return sent,
            }
        }
        self.away += batch.len() as u64;
        batch.clear();
        Ok(0)
    }

    fn receive(&mut self, into: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        if self.opened.is_none() {
            let keeper = self.keeper.as_ref();
            self.opened = keeper.and_then(|keeper| keeper.back.try_recv().ok());
        }
        let Some(opened) = &mut self.opened else {
            return Ok(0);
        };
        match opened.device.receive(into, max) {
            Err(error) if self.is_away(&error) => {
                self.lose();
                Ok(0)
            }
            came => came,
        }
    }

    fn arrivals(&self) -> &[Arrival] {
        match &self.opened {
            Some(opened) => opened.device.arrivals(),
            None => &[],
        }
    }

    fn in_flight(&self) -> io::Result<u64> {
        match &self.opened {
            Some(opened) => match opened.device.in_flight() {
                // Found out by the next call that may change something.
                Err(error) if self.is_away(&error) => Ok(0),
                bytes => bytes,
            },
            None => Ok(0),
        }
    }

    fn refused(&self) -> u64 {
        let now = self.opened.as_ref().map(|opened| opened.device.refused());
        self.former_refused + self.away + now.unwrap_or(0)
    }
}

impl AsFd for Lasting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.opened {
            Some(opened) => opened.device.as_fd(),
            None => self.never.as_fd(),
        }
    }
}

impl Device for Lasting {
    fn losses(&mut self) -> io::Result<Losses> {
        let mut losses = self.former;
        if let Some(opened) = &mut self.opened {
            losses += opened.device.losses()?;
        }
        losses.away = self.away;
        Ok(losses)
    }

    fn is_filling(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| opened.device.is_filling())
    }

    fn backend(&self) -> String {
        match &self.opened {
            Some(opened) => opened.device.backend(),
            None => "away".to_owned(),
        }
    }
}
