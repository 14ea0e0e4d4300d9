//! The socket where a running site accepts requests to hand over.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::Arc;
use std::sync::mpsc::{Sender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fairlane_config::{Near, Site};
use fairlane_io::{Carries, Listener, Waiter, files, socket_of_holder};
use fairlane_runtime::Clock;

use crate::error::{Error, Result};
use crate::hand_over::give::{DeviceState, HandoverExtra, SiteState, Transferring};
use crate::hand_over::{
    Answer, Given, Hello, READY, SILENCE, VERSION, receive_message, send_message, timed,
};
use crate::handle::{Event, Handle};
use fairlane_dataplane::error::Context;
use fairlane_dataplane::stop::Stop;

/// Time limit for the new process's preparation; meanwhile no changes are accepted.
const MAKING: Duration = Duration::from_secs(30);

/// Interval of checks whether the site that was handed over is being forwarded.
const LOOK: Duration = Duration::from_millis(5);

/// The socket where a running site accepts requests to hand over, until it is dropped.
pub(crate) struct Offer {
    /// Closed at the end of the run.
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Offer {
    fn drop(&mut self) {
        let _ = self.bell.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens the socket for requests to the process that holds the interface of this name; `None` if that is impossible,
/// for a reason that the hold reports.
pub(crate) fn listen(outside: &str) -> Option<Listener> {
    let path = socket_of_holder(outside).ok()?;
    Listener::bind(&path, 0o600, Carries::Stream).ok()
}

impl Offer {
    /// Lets others ask at a socket, which is owned once the site forwards.
    pub(crate) fn start(
        listener: Listener,
        site: Handle,
        clock: Clock,
        beside: impl Fn() -> io::Result<HandoverExtra> + Send + 'static,
    ) -> Result<Offer> {
        let (bell, rung) = UnixStream::pair().doing("making a socket pair")?;
        let offering = Offering {
            events: site.events.clone(),
            stop: Arc::clone(&site.stop),
            clock,
            beside: Box::new(beside),
            rung,
        };
        let thread = thread::Builder::new().name("hand over".to_owned());
        let thread = thread.spawn(move || offering.follow(listener, &site));
        Ok(Offer {
            bell,
            thread: Some(thread.doing("starting a thread")?),
        })
    }
}

/// The thread that is asked.
struct Offering {
    events: Sender<Event>,
    stop: Arc<Stop>,
    clock: Clock,
    beside: Box<dyn Fn() -> io::Result<HandoverExtra> + Send>,
    rung: UnixStream,
}

impl Offering {
    fn follow(self, mut listener: Listener, site: &Handle) {
        let mut waiter = Waiter::new();
        while site.rounds() == 0 {
            if self.is_over(&mut waiter, LOOK) {
                return;
            }
        }
        listener.own();
        loop {
            let both = [listener.socket().as_fd(), self.rung.as_fd()];
            if waiter.wait_readable(&both, MAKING).is_err()
                || self.is_over(&mut waiter, Duration::ZERO)
            {
                return;
            }
            let Ok(stream) = listener.accept() else {
                continue;
            };
            if let Ok(true) = self.serve(UnixStream::from(stream), &listener, &mut waiter) {
                return listener.leave();
            }
        }
    }

    /// Whether the run ends within this time.
    fn is_over(&self, waiter: &mut Waiter, within: Duration) -> bool {
        let over = waiter.wait_readable(&[&self.rung], within);
        over.map_or(true, |mut readable| readable.next().is_some())
    }

    /// Serves a process that asks to take over. Returns whether it has taken over.
    fn serve(
        &self,
        stream: UnixStream,
        listener: &Listener,
        waiter: &mut Waiter,
    ) -> io::Result<bool> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        let hello: Hello = receive_message(&stream)?;
        let given = match hello.version {
            VERSION => self.given(listener),
            other => Err(Error::Unfit(format!(
                "the running program hands over by version {VERSION}, and was asked by {other}: \
                 stop it, and start the new one"
            ))),
        };
        let told = match given {
            Ok((given, files)) => send_message(&stream, &Answer::Given(Box::new(given)))
                .and_then(|()| files::send(&stream, &files)),
            Err(error) => {
                return send_message(&stream, &Answer::Refused(error.to_string())).map(|()| false);
            }
        };
        let ready = told.and_then(|()| self.is_ready(&stream, waiter));
        if !matches!(ready, Ok(true)) {
            // If the receiver is gone, the run has ended.
            let _ = self.events.send(Event::Keep(hello.pid));
            return Ok(false);
        }
        let (answer, answered) = sync_channel(1);
        let handing = Transferring {
            stream,
            to: hello.pid,
            stop: Arc::clone(&self.stop),
            result: None,
        };
        let _ = self.events.send(Event::HandOver(Box::new(handing), answer));
        Ok(matches!(answered.recv(), Ok(Ok(_))))
    }

    /// Returns the running site with its files. Nothing changes after this.
    fn given(&self, listener: &Listener) -> Result<(Given, Vec<OwnedFd>)> {
        let (answer, answered) = sync_channel(1);
        let asked = self.events.send(Event::ExportState(answer));
        asked.map_err(|_| Error::Ended)?;
        let SiteState { site, file, give } = *answered.recv().unwrap_or(Err(Error::Ended))?;
        let packed = self.pack(&site, &file, give, listener);
        if packed.is_err() {
            let _ = self.events.send(Event::Keep(0));
        }
        packed
    }

    fn pack(
        &self,
        site: &Site,
        (file, unsaved): &(Arc<str>, u64),
        give: DeviceState,
        listener: &Listener,
    ) -> Result<(Given, Vec<OwnedFd>)> {
        let beside = (self.beside)().doing("handing over the control interface")?;
        let Some(interfaces) = &site.interfaces else {
            return Err(Error::Ended);
        };
        let Near::Inside(inside) = &interfaces.near else {
            return Err(Error::Ended);
        };
        let [Some(near), Some(outside)] = give.devices else {
            return Err(Error::Ended);
        };
        let devices = [near, outside];
        let (clock, uptime) = timed(|_| self.clock.now());
        let given = Given {
            pid: process::id(),
            clock: clock.0,
            uptime: uptime.0,
            config: site.text.to_string(),
            file: file.to_string(),
            unsaved: *unsaved,
            names: [inside.clone(), interfaces.outside.clone()],
            rings: devices.each_ref().map(|device| device.sockets.ring.into()),
            noted: devices.each_ref().map(|device| device.note.is_some()),
            beside: beside.text,
        };
        let mut all = Vec::new();
        for device in devices {
            all.push(device.sockets.sender);
            all.push(device.sockets.receiver);
            all.extend(device.note.map(OwnedFd::from));
        }
        let listening = listener.socket().try_clone();
        all.push(listening.doing("handing over a socket")?);
        all.extend(beside.files);
        Ok((given, all))
    }

    /// Waits until the successor has prepared everything, has gone, or the run ends.
    fn is_ready(&self, mut stream: &UnixStream, waiter: &mut Waiter) -> io::Result<bool> {
        let both = [stream, &self.rung];
        let begun = Instant::now();
        // A signal interrupts the wait.
        let first = loop {
            let left = MAKING.saturating_sub(begun.elapsed());
            let first = waiter.wait_readable(&both, left)?.next();
            if first.is_some() || left.is_zero() {
                break first;
            }
        };
        if first != Some(0) {
            return Ok(false);
        }
        let mut said = [0];
        stream.read_exact(&mut said)?;
        Ok(said == [READY])
    }
}
