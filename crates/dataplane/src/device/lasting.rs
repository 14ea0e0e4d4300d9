//! A device whose interface may disappear and reappear.
//!
//! While the interface is absent nothing is received, and packets for it are dropped and counted, as on an interface
//! whose cable was pulled: packets held longer would only leave late. Everything else continues. A separate thread
//! checks whether the interface is back, releases the old one and opens the new one; the forwarding thread switches to
//! the open interface between two rounds. The same thread opens and closes interfaces on detach and attach.

use super::opener::Opener;
use super::{
    Device, ExportedDevice, Handover, Lent, Losses, Opened, Receive, Replace, ToKeep, ToKeeper,
    Transmit, Workers,
};
use crate::error::{Context, Error, Result};
use crate::event::Event;
use crate::frame::Frame;
use crate::note::ClassifiedFrame;
use crate::waits::{Poll, Waits};
use fairlane_io::packet::Position;
use fairlane_io::{Arrival, Backend};
use rustix::event::{EventfdFlags, eventfd};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval of the search for an absent interface.
const AGAIN: Duration = Duration::from_millis(200);

/// The behavior of a site when an interface is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// Packets for the missing interface are dropped until an interface of that name appears.
    Wait,
    /// It ends with an error.
    Fail,
}

/// A device that outlives its interface, if so configured.
pub(super) struct Lasting {
    /// `None` while it is absent or detached.
    opened: Option<Opened>,
    /// It was detached, and is not reopened automatically.
    detached: bool,
    /// Another process has received the open sockets.
    exported: Cell<bool>,
    /// Whether to wait for a lost interface; else its loss is an error.
    waits: bool,
    keeper: Keeper,
    /// Never readable: waited for while the interface is absent.
    never: OwnedFd,
    /// Losses counted by earlier backends.
    former: Losses,
    former_refused: u64,
    former_most_in_flight: u64,
    former_waits: Option<Waits>,
    former_transmit_waits: Option<Waits>,
    /// Frames dropped while it was absent.
    away: u64,
    lending: Lending,
    /// Bytes that it [keeps](Backend::keep_short) to, also once it is reopened.
    short: u64,
    /// Its backend name while it is absent, and while it is detached.
    absences: [Arc<str>; 2],
}

/// Whether where frames arrive is another thread's for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lending {
    Here,
    Lent,
    /// The interface has gone meanwhile. It is released once the lent part is back.
    Gone,
}

/// The thread that opens and closes the interface.
struct Keeper {
    sender: ToKeeper,
    back: Receiver<Opened>,
    /// Losses of released interfaces, beyond those known when they were taken out of use.
    ended: Receiver<Losses>,
    thread: Option<JoinHandle<()>>,
}

impl Lasting {
    /// Opens an interface now, possibly without receiving yet, and again whenever it reappears. The keeper thread
    /// reports the latter.
    pub(super) fn open(opener: Opener, on_loss: OnLoss, paused: bool) -> Result<Lasting> {
        Lasting::over(opener.open(paused)?, opener, on_loss)
    }

    /// The same of one that is open.
    pub(super) fn over(opened: Opened, opener: Opener, on_loss: OnLoss) -> Result<Lasting> {
        Ok(Lasting {
            opened: Some(opened),
            detached: false,
            exported: Cell::new(false),
            waits: on_loss == OnLoss::Wait,
            never: eventfd(0, EventfdFlags::CLOEXEC).doing("making an event")?,
            keeper: Keeper::start(opener)?,
            former: Losses::default(),
            former_refused: 0,
            former_most_in_flight: 0,
            former_waits: None,
            former_transmit_waits: None,
            away: 0,
            lending: Lending::Here,
            short: u64::MAX,
            absences: ["away", "detached"].map(Arc::from),
        })
    }

    /// Whether an error means that the interface is gone and is to be waited for.
    fn is_away(&self, error: &io::Error) -> bool {
        let gone = [io::ErrorKind::NotFound, io::ErrorKind::NetworkDown];
        self.waits && gone.contains(&error.kind())
    }

    /// Takes the open device out of use; nothing more is received from it.
    fn take(&mut self) -> Option<Opened> {
        self.exported.set(false);
        let mut opened = self.opened.take()?;
        // A device that is gone may have no further losses to report.
        opened.told = opened.device.losses().unwrap_or_default();
        self.former += opened.told;
        opened.told_refused = opened.device.refused();
        self.former_refused += opened.told_refused;
        let most_in_flight = opened.device.most_in_flight();
        self.former_most_in_flight = self.former_most_in_flight.max(most_in_flight);
        let (waits, to_leave) = (
            opened.device.receive_waits(),
            opened.device.transmit_waits(),
        );
        self.former_waits = Waits::of_both(self.former_waits, waits);
        self.former_transmit_waits = Waits::of_both(self.former_transmit_waits, to_leave);
        Some(opened)
    }

    fn described(&self) -> &Arc<str> {
        let [away, detached] = &self.absences;
        match &self.opened {
            Some(opened) if self.lending != Lending::Gone => &opened.backend,
            None if self.detached => detached,
            _ => away,
        }
    }

    /// Takes the lost interface out of use.
    fn lose(&mut self) {
        if self.lending != Lending::Here {
            self.lending = Lending::Gone;
            return;
        }
        if let Some(opened) = self.take() {
            self.keeper.tell(ToKeep::Lost(opened));
        }
    }
}

impl Keeper {
    fn start(opener: Opener) -> Result<Keeper> {
        let (sender, told) = mpsc::channel();
        let (kept, back) = mpsc::channel();
        let (tell_ended, ended) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("keep {}", opener.name));
        let thread = thread.spawn(move || keep(opener, &told, &kept, &tell_ended));
        Ok(Keeper {
            sender,
            back,
            ended,
            thread: Some(thread.doing("starting a thread")?),
        })
    }

    /// The thread lives as long as this.
    fn tell(&self, what: ToKeep) {
        let _ = self.sender.send(what);
    }
}

/// Reopens the interface after each loss, and opens replacements, until it is no longer needed. Sends the losses of
/// each interface it releases to `ended`.
fn keep(
    mut opener: Opener,
    told: &Receiver<ToKeep>,
    back: &Sender<Opened>,
    ended: &Sender<Losses>,
) {
    // The last reported reason why the absent interface could not be used.
    let mut missing: Option<String> = None;
    loop {
        let next = match missing {
            Some(_) => told.recv_timeout(AGAIN),
            None => told.recv().map_err(RecvTimeoutError::from),
        };
        match next {
            Err(RecvTimeoutError::Disconnected) | Ok(ToKeep::End) => return,
            Ok(ToKeep::Lost(opened)) => {
                // If the receiver is gone, the count is not needed.
                let _ = ended.send(opened.end());
                (opener.notify)(Event::Lost(opener.name.clone()));
                missing = Some(String::new());
            }
            Ok(ToKeep::Release(opened, released)) => {
                missing = None;
                if let Some(opened) = opened {
                    let _ = ended.send(opened.end());
                }
                released();
            }
            Ok(ToKeep::Open(name, answer)) => {
                let other = Opener {
                    name,
                    ..opener.clone()
                };
                let opened = other.open_again();
                if opened.is_ok() {
                    opener = other;
                    missing = None;
                }
                answer(opened);
            }
            Ok(ToKeep::Note(write)) => {
                // Where it cannot be noted, the note names the process before.
                let _ = write();
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(said) = &mut missing
                    && look_for(&opener, said, back)
                {
                    missing = None;
                }
            }
        }
    }
}

/// Reopens the interface if it exists. Returns whether it is in use. A reason why it cannot be is reported once.
fn look_for(opener: &Opener, said: &mut String, back: &Sender<Opened>) -> bool {
    let Opener { name, notify, .. } = opener;
    match opener.open_again() {
        Ok(opened) => {
            notify(Event::Restored(name.clone()));
            // If the receiver is gone, the device is closed, and the end is requested soon.
            let _ = back.send(opened);
            return true;
        }
        Err(error) if is_absence(&error) => {}
        Err(error) => {
            let reason = error.to_string();
            if reason != *said {
                *said = reason;
                let interface = name.clone();
                notify(Event::Unusable { interface, error });
            }
        }
    }
    false
}

fn is_absence(error: &Error) -> bool {
    matches!(error, Error::Interface(reason) if reason.kind() == io::ErrorKind::NotFound)
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Others may still hold its sender.
        self.tell(ToKeep::End);
        if let Some(thread) = self.thread.take() {
            // The thread restores the interface's settings before the program ends. A panic of it was reported.
            let _ = thread.join();
        }
    }
}

impl Backend for Lasting {
    type Tx = Frame;
    type Rx = Frame;

    fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
        if let Some(opened) = &mut self.opened
            && self.lending != Lending::Gone
        {
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
        if self.opened.is_none()
            && let Ok(opened) = self.keeper.back.try_recv()
        {
            match self.detached {
                false => {
                    self.opened = Some(opened);
                    self.keep_short(self.short);
                }
                // It came back at the moment of the detach.
                true => self
                    .keeper
                    .tell(ToKeep::Release(Some(opened), Box::new(|| ()))),
            }
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

    fn keep_short(&mut self, bytes: u64) -> u64 {
        self.short = bytes;
        let opened = self.opened.as_mut();
        opened.map_or(u64::MAX, |opened| opened.device.keep_short(bytes))
    }

    fn most_in_flight(&self) -> u64 {
        let now = self.opened.as_ref();
        let now = now.map(|opened| opened.device.most_in_flight());
        self.former_most_in_flight.max(now.unwrap_or(0))
    }

    fn refused(&self) -> u64 {
        let now = self.opened.as_ref().map(|opened| opened.device.refused());
        self.former_refused + self.former.away + self.away + now.unwrap_or(0)
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

impl Receive for Lasting {
    fn losses(&mut self) -> io::Result<Losses> {
        for more in self.keeper.ended.try_iter() {
            self.former += more;
        }
        let mut losses = self.former;
        if let Some(opened) = &mut self.opened {
            losses += opened.device.losses()?;
        }
        losses.away += self.away;
        Ok(losses)
    }

    fn set_receiving(&self, anything: bool) -> io::Result<()> {
        match &self.opened {
            Some(opened) => opened.device.set_receiving(anything),
            None => Ok(()),
        }
    }

    fn is_sole_receiver(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| opened.device.is_sole_receiver())
    }

    fn is_filling(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| opened.device.is_filling())
    }
}

impl Transmit for Lasting {}

impl Handover for Lasting {
    fn export(&self) -> io::Result<Option<ExportedDevice>> {
        let Some(opened) = &self.opened else {
            return Ok(None);
        };
        let Some(export) = opened.device.export()? else {
            return Ok(None);
        };
        self.exported.set(true);
        Ok(Some(ExportedDevice {
            note: opened.hold.file()?,
            ..export
        }))
    }

    fn is_exported(&self) -> bool {
        self.exported.get()
    }

    fn quiesce(&mut self, into: &mut Vec<Frame>) -> Duration {
        let opened = self.opened.as_mut();
        opened.map_or(Duration::ZERO, |opened| opened.device.quiesce(into))
    }

    fn take_unsent(&mut self, into: &mut VecDeque<Frame>) {
        if let Some(opened) = &mut self.opened {
            opened.device.take_unsent(into);
        }
    }

    fn position(&self) -> Position {
        let opened = self.opened.as_ref();
        opened.map_or_else(Position::default, |opened| opened.device.position())
    }

    fn resume_from(&mut self, position: Position) {
        if let Some(opened) = &mut self.opened {
            opened.device.resume_from(position);
        }
    }

    fn set_owned(&mut self, ours: bool) {
        if let Some(opened) = &mut self.opened {
            match ours {
                true => self.keeper.tell(ToKeep::Note(Box::new(opened.hold.own()))),
                false => opened.hold.leave(),
            }
        }
    }
}

impl Workers for Lasting {
    fn start(&mut self) -> io::Result<()> {
        match &mut self.opened {
            Some(opened) => opened.device.start(),
            None => Ok(()),
        }
    }

    fn take_classified(
        &mut self,
        into: &mut Vec<ClassifiedFrame>,
        most: usize,
    ) -> io::Result<usize> {
        let Some(opened) = &mut self.opened else {
            return Ok(0);
        };
        match opened.device.take_classified(into, most) {
            Err(error) if self.is_away(&error) => {
                self.lose();
                Ok(0)
            }
            came => came,
        }
    }

    fn return_buffers(&mut self) {
        if let Some(opened) = &mut self.opened {
            opened.device.return_buffers();
        }
    }

    fn begin_round(&mut self, poll: Poll) {
        if let Some(opened) = &mut self.opened {
            opened.device.begin_round(poll);
        }
    }

    fn receive_waits(&self) -> Option<Waits> {
        let now = self.opened.as_ref();
        Waits::of_both(
            self.former_waits,
            now.and_then(|opened| opened.device.receive_waits()),
        )
    }

    fn transmit_waits(&self) -> Option<Waits> {
        let now = self.opened.as_ref();
        Waits::of_both(
            self.former_transmit_waits,
            now.and_then(|opened| opened.device.transmit_waits()),
        )
    }

    fn arm_wakeup(&mut self) -> bool {
        let opened = self.opened.as_mut();
        opened.is_none_or(|opened| opened.device.arm_wakeup())
    }

    fn can_lend(&self) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| opened.device.can_lend())
    }

    fn lend(&mut self) -> Option<Lent> {
        let lent = self.opened.as_mut()?.device.lend()?;
        self.lending = Lending::Lent;
        Some(lent)
    }

    fn reclaim(&mut self) {
        if let Some(opened) = &mut self.opened {
            opened.device.reclaim();
        }
        if std::mem::replace(&mut self.lending, Lending::Here) == Lending::Gone {
            self.lose();
        }
    }

    fn must_return(&self) -> bool {
        self.lending == Lending::Gone
    }
}

impl Replace for Lasting {
    fn backend_now(&self) -> Option<Arc<str>> {
        Some(Arc::clone(self.described()))
    }

    fn exchange(&mut self, opened: &mut Option<Opened>) {
        let former = self.take();
        self.detached = opened.is_none();
        self.opened = std::mem::replace(opened, former);
        self.keep_short(self.short);
    }

    fn keeper(&self) -> Option<ToKeeper> {
        Some(self.keeper.sender.clone())
    }
}

impl Device for Lasting {
    fn backend(&self) -> String {
        self.described().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::mpsc::sync_channel;
    use std::time::Instant;

    use fairlane_io::Hold;
    use fairlane_io::packet::{Shape, Sockets};

    use super::*;

    /// A device that can be exported to another process until its interface is gone.
    struct Passable {
        file: OwnedFd,
        is_gone: Arc<AtomicBool>,
        lost: Arc<AtomicU64>,
        /// Frames that have arrived; the last owner receives them.
        waiting: usize,
    }

    impl Backend for Passable {
        type Tx = Frame;
        type Rx = Frame;

        fn transmit(&mut self, batch: &mut VecDeque<Frame>) -> io::Result<usize> {
            Ok(batch.drain(..).count())
        }

        fn receive(&mut self, _: &mut Vec<Frame>, _: usize) -> io::Result<usize> {
            match self.is_gone.load(Ordering::Relaxed) {
                true => Err(io::ErrorKind::NotFound.into()),
                false => Ok(0),
            }
        }

        fn in_flight(&self) -> io::Result<u64> {
            Ok(0)
        }

        /// Returns the same number as its losses.
        fn refused(&self) -> u64 {
            self.lost.load(Ordering::Relaxed)
        }
    }

    impl AsFd for Passable {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.file.as_fd()
        }
    }

    impl Receive for Passable {
        fn losses(&mut self) -> io::Result<Losses> {
            Ok(Losses {
                lost: self.lost.load(Ordering::Relaxed),
                ..Losses::default()
            })
        }
    }

    impl Transmit for Passable {}

    impl Handover for Passable {
        fn export(&self) -> io::Result<Option<ExportedDevice>> {
            Ok(Some(ExportedDevice {
                sockets: Sockets {
                    sender: self.file.try_clone()?,
                    receiver: self.file.try_clone()?,
                    ring: Shape {
                        blocks: 0,
                        block_size: 0,
                        place: 0,
                    },
                },
                note: None,
            }))
        }
    }

    impl Workers for Passable {}

    impl Replace for Passable {}

    impl Device for Passable {
        fn end(&mut self) -> u64 {
            self.waiting as u64
        }

        fn backend(&self) -> String {
            "memory".to_owned()
        }
    }

    /// Runs a test on a lasting device, whose device can be marked as gone and given losses.
    fn with_lasting(
        name: &str,
        waiting: usize,
        attempt: impl FnOnce(&mut Lasting, &AtomicBool, &AtomicU64),
    ) {
        let folder = format!("lasting-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let (is_gone, lost) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let device = Passable {
            file: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            is_gone: Arc::clone(&is_gone),
            lost: Arc::clone(&lost),
            waiting,
        };
        let hold = Hold::take_in(&folder, "lo").unwrap();
        let opened = Opened::new(Box::new(device), hold);
        let opener = Opener {
            name: "nosuch0".to_owned(),
            memory: None,
            notify: Arc::new(|_: Event| ()),
            port: None,
            workers: None,
            moves_to: None,
        };
        let mut lasting = Lasting::over(opened, opener, OnLoss::Wait).unwrap();
        attempt(&mut lasting, &is_gone, &lost);
        drop(lasting);
        std::fs::remove_dir(&folder).unwrap();
    }

    /// Returns the total losses, once they exceed `known`.
    fn lost_beyond(lasting: &mut Lasting, known: u64) -> u64 {
        let begun = Instant::now();
        loop {
            let Losses { lost, .. } = lasting.losses().unwrap();
            if lost > known {
                return lost;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{lost}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_is_lost_until_an_interface_is_let_go_of_counts_once() {
        with_lasting("let-go", 7, |lasting, _, lost| {
            lost.store(3, Ordering::Relaxed);
            assert_eq!(lasting.losses().unwrap().lost, 3);
            lost.store(4, Ordering::Relaxed);
            assert_eq!(lasting.backend(), "memory");
            let mut former = None;
            lasting.exchange(&mut former);
            assert_eq!(lasting.backend(), "detached");
            assert_eq!(lasting.losses().unwrap().lost, 4);
            // Losses not known when it was taken out of use.
            lost.store(9, Ordering::Relaxed);
            let (waiting, done) = sync_channel(1);
            let keeper = lasting.keeper().unwrap();
            let _ = keeper.send(ToKeep::Release(
                former,
                Box::new(move || waiting.send(()).unwrap()),
            ));
            done.recv().unwrap();
            for _ in 0..2 {
                let Losses { lost, away, .. } = lasting.losses().unwrap();
                // Frames rejected since then were not sent either.
                assert_eq!((lost, away), (9 + 7, 5));
                assert_eq!(lasting.refused(), 4 + 5);
            }
        });
    }

    #[test]
    fn what_is_lost_until_an_interface_is_gone_counts_once() {
        with_lasting("gone", 7, |lasting, is_gone, lost| {
            lost.store(4, Ordering::Relaxed);
            is_gone.store(true, Ordering::Relaxed);
            lasting.receive(&mut Vec::new(), 8).unwrap();
            assert_eq!(lasting.backend(), "away");
            assert_eq!(lost_beyond(lasting, 4), 4 + 7);
            assert_eq!(lasting.losses().unwrap().lost, 4 + 7);
        });
    }

    #[test]
    fn what_another_process_was_told_of_is_no_more_what_is_there_once_it_was_lost() {
        with_lasting("exported", 0, |lasting, is_gone, _| {
            assert!(!lasting.is_exported(), "no request was made");
            assert!(lasting.export().unwrap().is_some() && lasting.is_exported());
            is_gone.store(true, Ordering::Relaxed);
            assert_eq!(lasting.receive(&mut Vec::new(), 8).unwrap(), 0);
            assert!(!lasting.is_exported());
        });
    }
}
