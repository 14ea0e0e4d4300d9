//! The process that runs, and hands over.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::mem;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fairlane_config::{Backend, Near, Site};
use fairlane_core::Nanos;
use fairlane_io::packet::PacketFrame;
use fairlane_io::{Carries, EarlyDrop, Listener, Waiter, files, socket_of_holder};
use fairlane_runtime::Clock;
use fairlane_runtime::bridge::{Came, Side};

use super::{
    Answer, Given, Header, Hello, READY, SILENCE, Stand, TAKEN, VERSION, hear, say, timed,
};
use crate::control::{Asked, Control, Event};
use crate::daemon::{Handle, SiteBridge, nanos};
use crate::device::ToPass;
use crate::error::{Doing, Error, Result};
use crate::forward::start_workers;
use crate::frame::Frame;
use crate::notice::Notice;
use crate::order::Order;
use crate::plan::Plan;
use crate::stop::Stop;

/// Time limit for the new process's preparation; meanwhile no changes are accepted.
const MAKING: Duration = Duration::from_secs(30);
/// Interval of checks whether the site that was handed over is being forwarded.
const LOOK: Duration = Duration::from_millis(5);
/// Sizes of output chunks: small at first, so the successor soon has frames to send.
const CHUNKS: [usize; 2] = [2 << 10, 64 << 10];
/// Frames of one direction before those of the other.
const TURN: usize = 16;

/// State that others hand over with the site.
#[derive(Debug, Default)]
pub struct Beside {
    /// Their data.
    pub text: String,
    /// Their open files, at most six.
    pub files: Vec<OwnedFd>,
}

/// The stage of a hand-over, for the control thread.
#[derive(Default)]
pub(crate) enum Stage {
    #[default]
    Nothing,
    /// The state of the devices is requested; it is sent here once the forwarding thread reports it.
    Wanted(SyncSender<Result<Box<Gave>>>),
    /// The site is handed over soon: no changes are accepted any more.
    Given,
    /// That is ready.
    Ready(Box<Handing>, SyncSender<Result<u64>>),
    /// Another process forwards.
    HandedOver,
}

/// State provided by the control thread.
pub(crate) struct Gave {
    site: Arc<Site>,
    /// The file's text, and the number of changes that it lacks.
    file: (Arc<str>, u64),
    give: Give,
}

/// State provided by the forwarding thread.
#[derive(Default)]
pub(crate) struct Give {
    devices: [Option<ToPass>; 2],
    error: Option<io::Error>,
}

impl Give {
    /// O(1), a few system calls.
    pub(crate) fn step(&mut self, bridge: &SiteBridge) {
        for side in Side::BOTH {
            match bridge.device(side).to_pass() {
                Ok(device) => self.devices[side as usize] = device,
                Err(error) => self.error = Some(error),
            }
        }
    }
}

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
        beside: impl Fn() -> io::Result<Beside> + Send + 'static,
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
    beside: Box<dyn Fn() -> io::Result<Beside> + Send>,
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
        let hello: Hello = hear(&stream)?;
        let given = match hello.version {
            VERSION => self.given(listener),
            other => Err(Error::Unfit(format!(
                "the running program hands over by version {VERSION}, and was asked by {other}: \
                 stop it, and start the new one"
            ))),
        };
        let told = match given {
            Ok((given, files)) => say(&stream, &Answer::Given(Box::new(given)))
                .and_then(|()| files::send(&stream, &files)),
            Err(error) => return say(&stream, &Answer::Refused(error.to_string())).map(|()| false),
        };
        let ready = told.and_then(|()| self.is_ready(&stream, waiter));
        if !matches!(ready, Ok(true)) {
            // If the receiver is gone, the run has ended.
            let _ = self.events.send(Event::Keep(hello.pid));
            return Ok(false);
        }
        let (answer, answered) = sync_channel(1);
        let handing = Handing {
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
        let asked = self.events.send(Event::Give(answer));
        asked.map_err(|_| Error::Ended)?;
        let Gave { site, file, give } = *answered.recv().unwrap_or(Err(Error::Ended))?;
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
        give: Give,
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

impl Control {
    /// Returns an error while changes are suspended for a hand-over.
    pub(crate) fn is_fixed(&self) -> Result<()> {
        match self.state.stage {
            Stage::Nothing => Ok(()),
            _ => Err(Error::Conflict(
                "another process is taking over: ask again in a moment".to_owned(),
            )),
        }
    }

    /// Accepts a request to take over.
    pub(crate) fn give(&mut self, answer: SyncSender<Result<Box<Gave>>>) {
        match self.may_hand_over() {
            Ok(()) => self.state.stage = Stage::Wanted(answer),
            // A caller that has stopped waiting needs no answer.
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    fn may_hand_over(&self) -> Result<()> {
        self.is_fixed()?;
        let site = self.handle.site();
        let why = match &site.interfaces {
            _ if self.is_guarded => {
                "the process that runs with --fail-open cannot be taken over from: it is started anew \
                 by the one that watches over it, when it is killed"
            }
            Some(named) if named.backend == Backend::Xdp => {
                "the backend xdp cannot be handed over: no other process can have its queues while \
                 they are bound"
            }
            Some(named) if !matches!(named.near, Near::Inside(_)) => {
                "only a site between two interfaces can be handed over: a tap device goes with its \
                 process"
            }
            _ if site.attach.is_some() => {
                "a site that processes attach to ([attach]) cannot be handed over: their mailboxes go \
                 with its process"
            }
            _ if self.is_busy() => {
                return Err(Error::Conflict(
                    "the running configuration is being changed: try again in a moment".to_owned(),
                ));
            }
            _ => return Ok(()),
        };
        Err(Error::Conflict(why.to_owned()))
    }

    /// Sends the forwarding thread the order for the current stage. Returns whether there is one.
    pub(crate) fn order_of_stage(&mut self) -> bool {
        match mem::take(&mut self.state.stage) {
            Stage::Wanted(answer) => {
                self.state.stage = Stage::Given;
                self.state.asked = Asked::Give(answer);
                self.order(Order::Give(Box::default()));
                true
            }
            Stage::Ready(handing, answer) => {
                self.state.stage = Stage::Given;
                self.state.asked = Asked::HandOver(answer);
                self.order(Order::HandOver(handing));
                true
            }
            stage => {
                self.state.stage = stage;
                false
            }
        }
    }

    /// Handles the forwarding thread's report of the devices' state.
    pub(crate) fn gave(&mut self, give: Give, answer: &SyncSender<Result<Box<Gave>>>) {
        let told = match give {
            Give {
                error: Some(error), ..
            } => Err(error).doing("handing over the interfaces' sockets"),
            Give {
                devices: [Some(_), Some(_)],
                ..
            } => Ok(Box::new(Gave {
                site: self.handle.site(),
                file: (self.handle.file_text(), self.handle.unsaved_changes()),
                give,
            })),
            _ => Err(Error::Conflict(
                "an interface is away or detached: a site is handed over with both".to_owned(),
            )),
        };
        let refused = told.is_err();
        // A successor that has stopped waiting takes nothing over.
        if answer.send(told).is_err() || refused {
            self.state.stage = Stage::Nothing;
        }
    }

    /// Handles the successor's message that it is ready.
    pub(crate) fn hand_over(&mut self, handing: Box<Handing>, answer: SyncSender<Result<u64>>) {
        self.state.stage = Stage::Ready(handing, answer);
    }

    /// Handles the result of the hand-over by the forwarding thread.
    pub(crate) fn handed_over(&mut self, handing: Handing, answer: &SyncSender<Result<u64>>) {
        let told = match handing.result {
            Some(Ok(frames)) => {
                self.state.stage = Stage::HandedOver;
                self.notify(Notice::HandedOver {
                    to: handing.to,
                    frames,
                });
                Ok(frames)
            }
            Some(Err(error)) => {
                self.keep(handing.to);
                Err(error).doing("handing over")
            }
            None => Err(Error::Ended),
        };
        // A caller that has stopped waiting needs no answer.
        let _ = answer.send(told);
    }

    /// The hand-over has failed: the running process keeps shaping. A process without a number has not even begun.
    pub(crate) fn keep(&mut self, other: u32) {
        self.state.stage = Stage::Nothing;
        // The successor has installed its own tables there.
        self.plans.iter().for_each(Plan::put_again);
        if other > 0 {
            self.notify(Notice::NotHandedOver(other));
        }
    }
}

/// Handing over, on the forwarding thread.
pub(crate) struct Handing {
    stream: UnixStream,
    /// The other process.
    to: u32,
    stop: Arc<Stop>,
    /// Number of frames in the backlog.
    result: Option<io::Result<u64>>,
}

impl Handing {
    /// Stops receiving, sends the successor the positions and the backlog, and waits until it has taken them; then the
    /// run ends. Takes as long as the successor takes. If that fails or is silent for a second, the running process
    /// keeps shaping, without the frames handed over by then.
    pub(crate) fn step(&mut self, bridge: &mut SiteBridge, now: Nanos) {
        let told = self.tell(bridge, now).and_then(|told| {
            (&self.stream).read_exact(&mut [0])?;
            Ok(told)
        });
        let told = match told {
            Ok(told) => Ok(told),
            Err(error) => {
                // From here on the other one cannot say that it has taken; it may have before.
                let _ = self.stream.shutdown(Shutdown::Both);
                let mut said = [0];
                match (&self.stream).read(&mut said) {
                    Ok(1) if said == [TAKEN] => Ok(0),
                    _ => Err(start_workers(bridge).err().unwrap_or(error)),
                }
            }
        };
        if told.is_ok() {
            self.stop.ask_at_once();
            // If the successor does no early drop, early drop ends here.
            let early = |side| bridge.arbiter(side)?.queue().classifier().early();
            let all = Side::BOTH.into_iter().filter_map(early);
            all.for_each(EarlyDrop::stop);
        }
        self.result = Some(told);
    }

    fn tell(&self, bridge: &mut SiteBridge, now: Nanos) -> io::Result<u64> {
        if !Side::BOTH
            .iter()
            .all(|&side| bridge.device(side).is_passed())
        {
            // The successor has the former interface, from which no more frames arrive.
            return Err(io::Error::other("an interface went away meanwhile"));
        }
        let mut told = Told {
            stream: &self.stream,
            buffer: Vec::with_capacity(2 * CHUNKS[1]),
            chunk: CHUNKS[0],
            frames: 0,
        };
        told.buffer.extend(now.0.to_be_bytes());
        // Frames received and not yet queued follow all queued ones.
        let mut rests = [const { Vec::new() }; 2];
        let waited = Side::BOTH.map(|side| {
            let leaves_by = side.other();
            bridge.device_mut(side).rest(&mut rests[leaves_by as usize])
        });
        for side in Side::BOTH {
            let arbiter = bridge.arbiter(side);
            let stand = Stand {
                position: bridge.device(side).position(),
                busy_until: arbiter.map_or(Nanos::ZERO, |arbiter| arbiter.idle_at()),
                is_open: arbiter.is_some_and(|arbiter| arbiter.is_open()),
            };
            stand.encode(&mut told.buffer);
        }
        let at = |at| Came { at, losing: false };
        for side in Side::BOTH {
            let mut next = VecDeque::new();
            bridge.device_mut(side).take_unsent(&mut next);
            next.append(&mut bridge.take_back(side));
            for frame in next {
                told.frame(side, at(now), frame)?;
            }
        }
        told.queued(bridge, now)?;
        for (side, rest) in Side::BOTH.into_iter().zip(rests) {
            let came = at(now.since(nanos(waited[side.other() as usize])));
            for frame in rest {
                told.frame(side, came, frame)?;
            }
        }
        told.buffer.extend(Header::END.encode());
        told.write()?;
        Ok(told.frames)
    }
}

/// The frames sent to the successor.
struct Told<'a> {
    stream: &'a UnixStream,
    buffer: Vec<u8>,
    chunk: usize,
    frames: u64,
}

impl Told<'_> {
    /// Sends the backlog of both directions in turn, each in the order of its queue.
    fn queued(&mut self, bridge: &mut SiteBridge, now: Nanos) -> io::Result<()> {
        let mut left = Side::BOTH.map(|_| true);
        while left != [false; 2] {
            for side in Side::BOTH {
                for _ in 0..TURN {
                    let arbiter = bridge.arbiter_mut(side);
                    let next = arbiter.and_then(|arbiter| arbiter.queue_mut().hand_over(now));
                    let Some((_, received)) = next else {
                        left[side as usize] = false;
                        break;
                    };
                    let came = Came {
                        at: received.came,
                        losing: received.losing,
                    };
                    self.frame(side, came, received.frame)?;
                }
            }
        }
        Ok(())
    }

    fn frame(&mut self, leaves_by: Side, came: Came, mut frame: Frame) -> io::Result<()> {
        // The successor learns of a frame only its bytes.
        frame.complete();
        let bytes = frame.bytes();
        let header = Header {
            leaves_by,
            came,
            // At most the length that a ring or a socket delivers.
            length: bytes.len() as u32,
        };
        self.buffer.extend(header.encode());
        self.buffer.extend(bytes);
        self.frames += 1;
        match self.buffer.len() < self.chunk {
            true => Ok(()),
            false => self.write(),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.buffer)?;
        self.buffer.clear();
        self.chunk = (2 * self.chunk).min(CHUNKS[1]);
        Ok(())
    }
}
