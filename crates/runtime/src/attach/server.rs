//! The thread that admits clients, handles their rings, and notices their end.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fairlane_io::{Listener, PeerCredentials, SharedMemory};
use fairlane_mailbox::shared::Receiver;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::admission::{Admission, Offer, PendingRefusal, Slot};
use super::daemon::{Attached, Status};
use super::message::{self, Grant, Reply, VERSION};
use super::socket;
use super::source::{Allowance, Line, Part, ProcessSource, Shared};
use crate::client::ClientId;
use crate::registrar::{Registrar, Remote};

/// Rings of one client, or new connections, that are handled in a [`PERIOD`]. An arbiter that spins
/// before it sleeps goes to doze less often than that.
#[doc(hidden)]
pub const RINGS_PER_PERIOD: u32 = 256;

/// The time over which [`RINGS_PER_PERIOD`] is counted.
pub const PERIOD: Duration = Duration::from_millis(10);

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    Wake,
    Listener,
    /// The arbiter has released clients.
    Returned,
    Socket(u64),
    Bell(u64),
}

impl Topic {
    const FIRST_CONNECTION: u64 = 2;

    fn of(event: u64) -> Self {
        match (event / 2, event % 2) {
            (0, 0) => Topic::Wake,
            (0, _) => Topic::Listener,
            (1, _) => Topic::Returned,
            (connection, 0) => Topic::Socket(connection),
            (connection, _) => Topic::Bell(connection),
        }
    }

    fn event(self) -> EventData {
        EventData::new_u64(match self {
            Topic::Wake => 0,
            Topic::Listener => 1,
            Topic::Returned => 2,
            Topic::Socket(connection) => 2 * connection,
            Topic::Bell(connection) => 2 * connection + 1,
        })
    }

    /// A bell is edge-triggered and never read: processes that share a file share its flags, and a
    /// client could make a read block.
    fn flags(self) -> EventFlags {
        match self {
            Topic::Bell(_) => EventFlags::IN | EventFlags::ET,
            Topic::Wake | Topic::Listener | Topic::Returned | Topic::Socket(_) => EventFlags::IN,
        }
    }
}

/// Events taken from the kernel at a time.
const EVENTS: usize = 64;

/// Events handled of one source in the present period.
#[derive(Default)]
struct RateLimit {
    period: u128,
    taken: u32,
}

impl RateLimit {
    /// Counts one, and returns whether that was the last of the period.
    fn take(&mut self, period: u128) -> bool {
        if self.period != period {
            *self = RateLimit { period, taken: 0 };
        }
        self.taken += 1;
        self.taken >= RINGS_PER_PERIOD
    }
}

/// The state of a connection.
enum State {
    /// It has yet to say hello, and will be rejected with this reason.
    ToRefuse(String, PendingRefusal),
    /// It has yet to say hello.
    AwaitingHello(Slot),
    Attached {
        remote: Remote,
        bell: OwnedFd,
        limit: RateLimit,
        /// Signals the end to the source.
        left: Arc<AtomicBool>,
    },
}

struct Connection {
    socket: Arc<OwnedFd>,
    peer: PeerCredentials,
    state: State,
}

/// A new client's mailbox.
struct Mailbox {
    receiver: Receiver<Shared>,
    /// The part that this thread keeps.
    memory: Shared,
    /// The part that the client gets.
    handle: OwnedFd,
    bell: OwnedFd,
}

/// A client's state until the arbiter has released it, with or without a connection.
struct Kept {
    /// Dropped by this thread.
    memory: Shared,
    slot: Slot,
}

pub(super) struct Server<P, F> {
    epoll: OwnedFd,
    listener: Listener,
    admission: Admission,
    hello_timeout: Duration,
    registrar: Registrar<P>,
    make: F,
    status: Arc<Status>,
    connections: HashMap<u64, Connection>,
    /// The number of the next connection; none is given twice.
    next: u64,
    /// By connection.
    kept: HashMap<u64, Kept>,
    /// Connections that the arbiter has released: both ends of the channel, of which sources get
    /// the first.
    returned: (mpsc::Sender<u64>, mpsc::Receiver<u64>),
    returning: Arc<OwnedFd>,
    /// Until when a connection may be silent, earliest first.
    deadlines: VecDeque<(Instant, u64)>,
    /// Sources that are ignored in this period.
    muted: Vec<Topic>,
    accepts: RateLimit,
    start: Instant,
}

impl<P, F> Server<P, F>
where
    P: Send + 'static,
    F: FnMut(Vec<u8>, &Attached) -> P + Clone + Send + 'static,
{
    /// Returns a server that ends when `wake` is written to.
    pub(super) fn new(
        listener: Listener,
        wake: &OwnedFd,
        admission: Admission,
        hello_timeout: Duration,
        registrar: Registrar<P>,
        make: F,
        status: Arc<Status>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let returning = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        for (file, topic) in [
            (wake, Topic::Wake),
            (listener.socket(), Topic::Listener),
            (&returning, Topic::Returned),
        ] {
            epoll::add(&epoll, file, topic.event(), topic.flags())?;
        }
        Ok(Server {
            epoll,
            listener,
            admission,
            hello_timeout,
            registrar,
            make,
            status,
            connections: HashMap::new(),
            next: Topic::FIRST_CONNECTION,
            kept: HashMap::new(),
            returned: mpsc::channel(),
            returning: Arc::new(returning),
            deadlines: VecDeque::new(),
            muted: Vec::new(),
            accepts: RateLimit::default(),
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
                match Topic::of(event.data.u64()) {
                    Topic::Wake => return,
                    Topic::Listener => self.accept(),
                    Topic::Returned => self.take_back(),
                    Topic::Socket(number) => self.hear(number),
                    Topic::Bell(number) => self.rung(number),
                }
            }
            self.expire();
            if self.period() != period {
                period = self.period();
                for topic in std::mem::take(&mut self.muted) {
                    self.listen_to(topic, topic.flags());
                }
            }
        }
    }

    fn period(&self) -> u128 {
        self.start.elapsed().as_nanos() / PERIOD.as_nanos()
    }

    /// Returns the time to the first deadline, or to the end of the period if a source waits for
    /// it.
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

    /// Asks the kernel for other events than before. A ring in the meantime is handled then.
    fn listen_to(&self, topic: Topic, flags: EventFlags) {
        let file = match topic {
            Topic::Listener => self.listener.socket(),
            Topic::Bell(number) => match self.connections.get(&number).map(|c| &c.state) {
                Some(State::Attached { bell, .. }) => bell,
                _ => return,
            },
            Topic::Wake | Topic::Returned | Topic::Socket(_) => return,
        };
        // It fails only for unregistered files.
        let _ = epoll::modify(&self.epoll, file, topic.event(), flags);
    }

    fn mute(&mut self, topic: Topic) {
        self.listen_to(topic, EventFlags::empty());
        self.muted.push(topic);
    }

    /// Frees memory and places of clients that the arbiter has released.
    fn take_back(&mut self) {
        // First, as later releases make it readable again.
        let _ = rustix::io::read(&*self.returning, &mut [0; 8]);
        while let Ok(number) = self.returned.1.try_recv() {
            if let Some(Kept { memory, slot }) = self.kept.remove(&number) {
                drop(memory);
                self.admission.release(slot);
            }
        }
    }

    /// One connection; others wait for the next round.
    fn accept(&mut self) {
        // A client that left may have been released before this one connected.
        self.take_back();
        if self.accepts.take(self.period()) {
            self.mute(Topic::Listener);
        }
        // No connection is pending any more, or no descriptor is available now; pending ones then
        // keep waiting.
        let Ok(socket) = self.listener.accept() else {
            return;
        };
        let Ok(peer) = PeerCredentials::of(&socket) else {
            return;
        };
        let now = Instant::now();
        let state = match self.admission.admit(peer, now) {
            Ok(slot) => State::AwaitingHello(slot),
            Err(sentence) => match self.admission.refuse_later(peer.uid, now) {
                Some(pending) => State::ToRefuse(sentence, pending),
                None => return self.refuse(&socket, peer, &sentence),
            },
        };
        let number = self.next;
        self.next += 1;
        let topic = Topic::Socket(number);
        let added = epoll::add(&self.epoll, &socket, topic.event(), topic.flags());
        let connection = Connection {
            socket: Arc::new(socket),
            peer,
            state,
        };
        self.connections.insert(number, connection);
        match added {
            Ok(()) => {
                // A time that never arrives is no deadline.
                if let Some(deadline) = Instant::now().checked_add(self.hello_timeout) {
                    self.deadlines.push_back((deadline, number));
                }
            }
            Err(error) => self.close(number, &format!("it cannot be listened to: {error}")),
        }
    }

    /// The bell of a connection.
    fn rung(&mut self, number: u64) {
        let period = self.period();
        // It may have been closed by an event before this one.
        let connection = self.connections.get_mut(&number);
        if let Some(State::Attached { remote, limit, .. }) = connection.map(|c| &mut c.state) {
            remote.ring();
            self.status.rung();
            if limit.take(period) {
                self.mute(Topic::Bell(number));
            }
        }
    }

    /// One message of a connection, or its end.
    fn hear(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else {
            return;
        };
        if matches!(connection.state, State::Attached { .. }) {
            // Its end, or a message where there is nothing to say.
            return self.close(number, "");
        }
        let mut message = [0; 64];
        match recv(&connection.socket, &mut message, RecvFlags::DONTWAIT) {
            Ok((length, _)) if length > 0 => self.answer(number, &message[..length]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) | Err(_) => self.close(number, ""),
        }
    }

    /// Attaches a client that said hello, or rejects it with a reason.
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
            State::AwaitingHello(slot) => self.attach(number, &socket, peer, slot),
            State::ToRefuse(sentence, pending) => {
                self.admission.refusal_ended(pending);
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
                };
                self.connections.insert(number, connection);
            }
            Err(sentence) => self.refuse(&socket, peer, &sentence),
        }
    }

    /// Gives a connection its mailbox and its flow.
    fn attach(
        &mut self,
        number: u64,
        socket: &Arc<OwnedFd>,
        peer: PeerCredentials,
        slot: Slot,
    ) -> Result<State, String> {
        let offer = Arc::clone(&slot.offer);
        let Mailbox {
            receiver,
            memory,
            handle,
            bell,
        } = match self.mailbox(number, &offer) {
            Ok(mailbox) => mailbox,
            Err(error) => {
                self.admission.release(slot);
                return Err(format!("no mailbox can be made: {error}"));
            }
        };
        // From here on, the arbiter's letting go gives the place back.
        self.kept.insert(number, Kept { memory, slot });
        let left = Arc::new(AtomicBool::new(false));
        let line = Arc::new(Line::new(Arc::clone(socket)));
        let source = ProcessSource {
            receiver,
            line: Arc::clone(&line),
            left: Arc::clone(&left),
            link: self.registrar.link(),
            process: Attached {
                id: ClientId(u32::MAX),
                peer,
                class: offer.class.name.clone(),
            },
            make: self.make.clone(),
            allowance: Allowance::Any,
            _part: Part {
                connection: number,
                returned: self.returned.0.clone(),
                wake: Arc::clone(&self.returning),
            },
        };
        let registered = self
            .registrar
            .register_source(offer.class.flow, Box::new(source));
        let remote = match registered {
            Ok(remote) => remote,
            Err(error) => {
                // The source is gone, and the client has yet to be notified.
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
        self.status.attached(number, client);
        let grant = Reply::Attached(Grant {
            slots: offer.geometry.slots() as u32,
            max_length: offer.class.flow.max_length,
            weight: offer.class.flow.weight,
            class: offer.class.name.clone(),
        });
        // If it cannot be sent, the client is gone, which is the next event.
        let handles = [handle.as_fd(), bell.as_fd()];
        let _ = socket::send(socket, &grant.write(), &handles);
        Ok(State::Attached {
            remote,
            bell,
            limit: RateLimit::default(),
            left,
        })
    }

    /// Returns a mailbox, and a bell that is listened to.
    fn mailbox(&self, number: u64, offer: &Offer) -> Result<Mailbox, Box<dyn std::error::Error>> {
        let (memory, handle) = SharedMemory::create(offer.geometry.bytes())?;
        let memory = Shared::new(memory);
        let receiver = Receiver::new(memory.clone(), offer.geometry)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let topic = Topic::Bell(number);
        epoll::add(&self.epoll, &bell, topic.event(), topic.flags())?;
        Ok(Mailbox {
            receiver,
            memory,
            handle,
            bell,
        })
    }

    /// Closes those that have been silent for too long.
    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(&(deadline, number)) = self.deadlines.front()
            && deadline <= now
        {
            self.deadlines.pop_front();
            let sentence = match self.connections.get(&number).map(|silent| &silent.state) {
                Some(State::AwaitingHello(_)) => {
                    format!("no hello within {:?}", self.hello_timeout)
                }
                Some(State::ToRefuse(sentence, _)) => sentence.clone(),
                Some(State::Attached { .. }) | None => continue,
            };
            self.close(number, &sentence);
        }
    }

    /// Ends a connection; a client that is not attached is sent the reason.
    fn close(&mut self, number: u64, sentence: &str) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        // The source may keep the socket open for a while.
        let _ = epoll::delete(&self.epoll, &connection.socket);
        match connection.state {
            State::Attached {
                remote, bell, left, ..
            } => {
                // The client may keep it for a while.
                let _ = epoll::delete(&self.epoll, &bell);
                self.status.left(number);
                left.store(true, Ordering::Release);
                // The arbiter visits it once more.
                drop(remote);
            }
            State::AwaitingHello(slot) => {
                self.admission.release(slot);
                self.refuse(&connection.socket, connection.peer, sentence);
            }
            State::ToRefuse(_, pending) => {
                self.admission.refusal_ended(pending);
                self.refuse(&connection.socket, connection.peer, sentence);
            }
        }
    }

    fn refuse(&self, socket: &OwnedFd, peer: PeerCredentials, sentence: &str) {
        self.status.refused(peer.uid, sentence);
        // A client that is gone gets no message.
        let _ = socket::send(socket, &Reply::Refused(sentence.to_owned()).write(), &[]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_for_one_period() {
        let mut limit = RateLimit::default();
        for period in [0, 1, 7] {
            for _ in 1..RINGS_PER_PERIOD {
                assert!(!limit.take(period));
            }
            assert!(limit.take(period));
            assert!(limit.take(period), "what came before it was muted");
        }
    }

    #[test]
    fn an_event_is_about_what_it_was_asked_for() {
        for topic in [
            Topic::Wake,
            Topic::Listener,
            Topic::Returned,
            Topic::Socket(Topic::FIRST_CONNECTION),
            Topic::Bell(Topic::FIRST_CONNECTION),
            Topic::Bell(u64::MAX / 2),
        ] {
            assert_eq!(Topic::of(topic.event().u64()), topic);
        }
    }
}
