//! The thread that lets clients in, hears them ring, and sees them go.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairlane_io::{PeerCredentials, SharedMemory};
use fairlane_mailbox::shared::Receiver;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::daemon::{Attached, Book};
use super::desk::{Desk, Seat};
use super::message::{self, Grant, RING, Reply, VERSION};
use super::socket::{self, Listener};
use super::source::{Allowance, Line, ProcessSource};
use crate::registrar::{Registrar, Remote};

/// Connections that are to be refused and may still wait for their hello, at a time.
pub const MOST_STRANGERS: usize = 64;

/// Messages of one client, or new connections, that are looked at in a [`PERIOD`]. An arbiter that
/// spins before it sleeps goes to doze less often than that.
pub const RINGS_PER_PERIOD: u32 = 256;

/// The time over which [`RINGS_PER_PERIOD`] is counted.
pub const PERIOD: Duration = Duration::from_millis(10);

/// What an event is about, where it is not about a connection.
const WAKE: u64 = 0;
const LISTENER: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

/// Events taken from the kernel at a time.
const EVENTS: usize = 64;

/// How often somebody was listened to in the present period.
#[derive(Default)]
struct Ration {
    period: u128,
    taken: u32,
}

impl Ration {
    /// Takes one, and tells whether that was the last of the period.
    fn take(&mut self, period: u128) -> bool {
        if self.period != period {
            *self = Ration { period, taken: 0 };
        }
        self.taken += 1;
        self.taken >= RINGS_PER_PERIOD
    }
}

/// How far a connection has come.
enum State {
    /// It has yet to say hello, and will be told why it may not attach.
    Stranger(String),
    /// It has yet to say hello.
    Silent(Seat),
    Attached {
        remote: Remote,
        /// Tells the source.
        left: Arc<AtomicBool>,
    },
}

struct Connection {
    socket: Arc<OwnedFd>,
    peer: PeerCredentials,
    state: State,
    ration: Ration,
}

pub(super) struct Server<P, F> {
    epoll: OwnedFd,
    listener: Listener,
    desk: Desk,
    hello_timeout: Duration,
    registrar: Registrar<P>,
    make: F,
    book: Arc<Book>,
    connections: HashMap<u64, Connection>,
    /// The number of the next connection; none is given twice.
    next: u64,
    strangers: usize,
    /// Until when a connection may be silent, earliest first.
    deadlines: VecDeque<(Instant, u64)>,
    /// Who is not listened to in this period.
    muted: Vec<u64>,
    accepts: Ration,
    start: Instant,
}

impl<P, F> Server<P, F>
where
    P: Send + 'static,
    F: FnMut(Vec<u8>, PeerCredentials) -> P + Clone + Send + 'static,
{
    /// A server that ends when `wake` is written to.
    pub(super) fn new(
        listener: Listener,
        wake: &OwnedFd,
        desk: Desk,
        hello_timeout: Duration,
        registrar: Registrar<P>,
        make: F,
        book: Arc<Book>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (file, number) in [(wake, WAKE), (listener.socket(), LISTENER)] {
            epoll::add(&epoll, file, EventData::new_u64(number), EventFlags::IN)?;
        }
        Ok(Server {
            epoll,
            listener,
            desk,
            hello_timeout,
            registrar,
            make,
            book,
            connections: HashMap::new(),
            next: FIRST_CONNECTION,
            strangers: 0,
            deadlines: VecDeque::new(),
            muted: Vec::new(),
            accepts: Ration::default(),
            start: Instant::now(),
        })
    }

    pub(super) fn run(mut self) {
        let mut period = self.period();
        loop {
            let mut events = [const { MaybeUninit::uninit() }; EVENTS];
            let timeout = self.timeout(period);
            let (events, _) = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
                Ok(events) => events,
                Err(Errno::INTR) => continue,
                // Cannot be; without events there is nothing to do here.
                Err(_) => return,
            };
            for event in events {
                match event.data.u64() {
                    WAKE => return,
                    LISTENER => self.accept(),
                    number => self.hear(number, event.flags),
                }
            }
            self.expire();
            if self.period() != period {
                period = self.period();
                for number in std::mem::take(&mut self.muted) {
                    self.listen_to(number, EventFlags::IN);
                }
            }
        }
    }

    fn period(&self) -> u128 {
        self.start.elapsed().as_nanos() / PERIOD.as_nanos()
    }

    /// Until the first deadline, or the end of the period if somebody waits for it.
    fn timeout(&self, period: u128) -> Option<Timespec> {
        let end_of_period = || {
            let end = (period + 1) * PERIOD.as_nanos();
            let left = end.saturating_sub(self.start.elapsed().as_nanos());
            Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
        };
        let muted = (!self.muted.is_empty()).then(end_of_period);
        let deadline = self.deadlines.front();
        let deadline = deadline.map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let wait = muted.into_iter().chain(deadline).min()?;
        Timespec::try_from(wait).ok()
    }

    /// Asks the kernel to tell what comes from a connection, or nothing but its end.
    fn listen_to(&self, number: u64, events: EventFlags) {
        let socket = match self.connections.get(&number) {
            Some(connection) => &connection.socket,
            None if number == LISTENER => self.listener.socket(),
            None => return,
        };
        // It fails only for what is not registered.
        let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(number), events);
    }

    fn mute(&mut self, number: u64) {
        self.listen_to(number, EventFlags::empty());
        self.muted.push(number);
    }

    /// One connection; others wait for the next round.
    fn accept(&mut self) {
        if self.accepts.take(self.period()) {
            self.mute(LISTENER);
        }
        // Nobody waits any more, or no file is to be had now; what waits then waits on.
        let Ok(socket) = self.listener.accept() else {
            return;
        };
        let Ok(peer) = PeerCredentials::of(&socket) else {
            return;
        };
        let state = match self.desk.seat(peer) {
            Ok(seat) => State::Silent(seat),
            Err(sentence) if self.strangers >= MOST_STRANGERS => {
                return self.refuse(&socket, sentence);
            }
            Err(sentence) => {
                self.strangers += 1;
                State::Stranger(sentence)
            }
        };
        let number = self.next;
        self.next += 1;
        let token = EventData::new_u64(number);
        let added = epoll::add(&self.epoll, &socket, token, EventFlags::IN);
        let connection = Connection {
            socket: Arc::new(socket),
            peer,
            state,
            ration: Ration::default(),
        };
        self.connections.insert(number, connection);
        match added {
            Ok(()) => {
                let deadline = Instant::now() + self.hello_timeout;
                self.deadlines.push_back((deadline, number));
            }
            Err(error) => self.close(number, &format!("it cannot be listened to: {error}")),
        }
    }

    /// One message of a connection, or its end.
    fn hear(&mut self, number: u64, events: EventFlags) {
        let period = self.period();
        // It may have been closed by an event before this one.
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        if events.intersects(EventFlags::HUP | EventFlags::ERR) {
            return self.close(number, "");
        }
        let last = connection.ration.take(period);
        let mut message = [0; 64];
        let length = match recv(&connection.socket, &mut message, RecvFlags::DONTWAIT) {
            Ok((length, _)) => length,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => 0,
        };
        let message = &message[..length];
        match &connection.state {
            State::Attached { remote, .. } if message == RING => remote.ring(),
            State::Attached { .. } => return self.close(number, ""),
            State::Silent(_) | State::Stranger(_) => self.answer(number, message),
        }
        if last {
            self.mute(number);
        }
    }

    /// Attaches who said hello, or tells it why not.
    fn answer(&mut self, number: u64, hello: &[u8]) {
        match message::read_hello(hello) {
            Some(VERSION) => {}
            Some(version) => {
                let sentence = format!(
                    "the daemon speaks version {VERSION} of the protocol, and this client {version}"
                );
                return self.close(number, &sentence);
            }
            None => return self.close(number, "the first message was no hello of this protocol"),
        }
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        let Connection { socket, peer, .. } = connection;
        let attached = match connection.state {
            State::Silent(seat) => self.attach(number, &socket, peer, seat),
            State::Stranger(sentence) => {
                self.strangers -= 1;
                Err(sentence)
            }
            State::Attached { .. } => return,
        };
        match attached {
            Ok(state) => {
                let connection = Connection {
                    socket,
                    peer,
                    state,
                    ration: connection.ration,
                };
                self.connections.insert(number, connection);
            }
            Err(sentence) => self.refuse(&socket, sentence),
        }
    }

    /// Gives a connection its mailbox and its flow.
    fn attach(
        &mut self,
        number: u64,
        socket: &Arc<OwnedFd>,
        peer: PeerCredentials,
        seat: Seat,
    ) -> Result<State, String> {
        let offer = Arc::clone(&seat.offer);
        let no_mailbox = |error: &dyn std::error::Error| format!("no mailbox can be made: {error}");
        let (memory, handle) =
            SharedMemory::create(offer.geometry.bytes()).map_err(|error| no_mailbox(&error))?;
        let receiver = Receiver::new(memory, offer.geometry).map_err(|error| no_mailbox(&error))?;
        let left = Arc::new(AtomicBool::new(false));
        let line = Arc::new(Line::new(Arc::clone(socket)));
        let source = ProcessSource {
            receiver,
            line: Arc::clone(&line),
            left: Arc::clone(&left),
            link: self.registrar.link(),
            peer,
            make: self.make.clone(),
            allowance: Allowance::Any,
            _seat: seat,
        };
        let registered = self
            .registrar
            .register_source(offer.class.flow, Box::new(source));
        let remote = match registered {
            Ok(remote) => remote,
            Err(error) => {
                // The source is gone, and the client is yet to be told.
                if let Some(line) = Arc::into_inner(line) {
                    line.keep();
                }
                return Err(error.to_string());
            }
        };
        let client = Attached {
            id: remote.id(),
            peer,
            class: offer.class.name.clone(),
        };
        self.book.attached(number, client);
        let grant = Reply::Attached(Grant {
            slots: offer.geometry.slots() as u32,
            max_length: offer.class.flow.max_length,
            weight: offer.class.flow.weight,
            class: offer.class.name.clone(),
        });
        // If it cannot be told, it is gone, which is the next event.
        let _ = socket::send(socket, &grant.write(), Some(&handle));
        Ok(State::Attached { remote, left })
    }

    /// Closes those that have been silent for too long.
    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(&(deadline, number)) = self.deadlines.front()
            && deadline <= now
        {
            self.deadlines.pop_front();
            let sentence = match self.connections.get(&number).map(|silent| &silent.state) {
                Some(State::Silent(_)) => {
                    format!("no hello came within {:?}", self.hello_timeout)
                }
                Some(State::Stranger(sentence)) => sentence.clone(),
                Some(State::Attached { .. }) | None => continue,
            };
            self.close(number, &sentence);
        }
    }

    /// Ends a connection; who is not attached is told why.
    fn close(&mut self, number: u64, sentence: &str) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        // The source may keep the socket open for a while.
        let _ = epoll::delete(&self.epoll, &connection.socket);
        match connection.state {
            State::Attached { remote, left } => {
                self.book.left(number);
                left.store(true, Ordering::Release);
                // The arbiter looks once more.
                drop(remote);
            }
            State::Silent(_) => self.refuse(&connection.socket, sentence.to_owned()),
            State::Stranger(_) => {
                self.strangers -= 1;
                self.refuse(&connection.socket, sentence.to_owned());
            }
        }
    }

    fn refuse(&self, socket: &OwnedFd, sentence: String) {
        self.book.refused();
        // Who is gone cannot be told.
        let _ = socket::send(socket, &Reply::Refused(sentence).write(), None);
    }
}

impl<P, F> Drop for Server<P, F> {
    fn drop(&mut self) {
        for connection in self.connections.values() {
            if let State::Attached { left, .. } = &connection.state {
                left.store(true, Ordering::Release);
            }
        }
    }
}
