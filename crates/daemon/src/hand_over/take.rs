//! The successor's side of a hand-over.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fairlane_config::{Grant, Interfaces, Site};
use fairlane_core::Nanos;
use fairlane_io::packet::Sockets;
use fairlane_io::{Listener, files, interface, socket_of_holder};
use fairlane_runtime::Clock;
use fairlane_runtime::bridge::Side;

use super::give::HandoverExtra;
use super::{
    Answer, DirectionState, Given, Header, Hello, READY, SILENCE, TAKEN, VERSION, receive_message,
    send_message, timed,
};
use crate::error::{Error, Result};
use fairlane_dataplane::bridge::SiteBridge;
use fairlane_dataplane::device::ExportedDevice;
use fairlane_dataplane::error::Context;
use fairlane_dataplane::frame::Frame;

/// Time limit for the running process to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The longest frame that can be: more than any device gives.
const LONGEST: u32 = 1 << 17;
/// Bytes that are read at once.
const CHUNK: usize = 32 << 10;
/// Frames queued before eligible ones are sent: to queue hundreds of short frames takes longer than the link needs for
/// one.
const TURN: usize = 16;

/// A site that another process runs, and is to hand over.
pub struct Running {
    stream: UnixStream,
    given: Given,
    files: Vec<OwnedFd>,
}

impl Running {
    /// Asks the process that holds the outside interface. It continues to forward, and accepts no changes until this is
    /// dropped, or has been [taken over](crate::Daemon::take_over).
    ///
    /// # Errors
    ///
    /// No process holds the interface, or its holder cannot hand over; the message gives the reason. The holder
    /// continues as before.
    pub fn ask(interfaces: &Interfaces) -> Result<Running> {
        let outside = &interfaces.outside;
        let path = socket_of_holder(outside)?;
        let stream = UnixStream::connect(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Error::Missing(format!(
                "no handover: no process that supports it holds {outside}"
            )),
            _ => Error::System {
                doing: format!("asking the process that holds {outside}"),
                reason: error,
            },
        })?;
        let (given, files) = ask(&stream).map_err(|error| match error {
            AskError::Refused(sentence) => Error::Conflict(sentence),
            AskError::Broken(reason) => Error::System {
                doing: format!("taking over from the process that holds {outside}"),
                reason,
            },
        })?;
        let running = Running {
            stream,
            given,
            files,
        };
        match running.files.len() >= running.own_files() {
            true => Ok(running),
            false => Err(Error::Unfit(
                "the running process handed over fewer files than it has".to_owned(),
            )),
        }
    }

    /// Files that are the site's own.
    fn own_files(&self) -> usize {
        let noted = self.given.noted.iter().filter(|noted| **noted).count();
        2 * Side::BOTH.len() + noted + 1
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.given.pid
    }

    /// Returns the state handed over in addition to the site; empty the second time.
    pub fn beside(&mut self) -> HandoverExtra {
        HandoverExtra {
            text: std::mem::take(&mut self.given.beside),
            files: self.files.split_off(self.own_files()),
        }
    }

    /// Returns the site that it runs, with these grants.
    ///
    /// # Errors
    ///
    /// This version cannot run the other process's configuration.
    pub fn site(&self, grants: &[Arc<Grant>]) -> Result<Site> {
        let mtu = &|name: &str| interface::mtu(name).ok();
        let text = &self.given.config;
        Ok(Site::parse_beside(
            text,
            "the running configuration",
            mtu,
            grants,
        )?)
    }

    /// Returns the parts that a daemon needs.
    pub(crate) fn parts(self) -> Result<Parts> {
        let Running {
            stream,
            given,
            files,
        } = self;
        let stood = Arc::new(AtomicU64::new(0));
        let mut files = files.into_iter();
        let mut next = || files.next().ok_or(Error::Ended);
        let mut devices = Vec::new();
        for (ring, noted) in given.rings.into_iter().zip(given.noted) {
            devices.push(ExportedDevice {
                sockets: Sockets {
                    sender: next()?,
                    receiver: next()?,
                    ring: ring.into(),
                },
                note: match noted {
                    true => Some(File::from(next()?)),
                    false => None,
                },
            });
        }
        let listening = next()?;
        let path = socket_of_holder(&given.names[1])?;
        let listener = Listener::share(&path, listening);
        // A first clock takes a while.
        let clock = Clock::start();
        let (clock, _) = timed(|uptime| {
            let since = uptime.since(Nanos(given.uptime));
            clock.set(Nanos(given.clock) + since)
        });
        // An earlier version does not count changes.
        let unsaved = given.unsaved.max(u64::from(given.config != given.file));
        Ok(Parts {
            names: given.names,
            devices: devices.try_into().map_err(|_| Error::Ended)?,
            listener: listener.doing("taking over a socket")?,
            clock,
            file: (given.file, unsaved),
            took: TakenOver {
                from: given.pid,
                stood: Arc::clone(&stood),
            },
            taking: Takeover { stream, stood },
        })
    }
}

/// The parts of a daemon.
pub(crate) struct Parts {
    pub(crate) names: [String; 2],
    pub(crate) devices: [ExportedDevice; 2],
    pub(crate) listener: Listener,
    /// A clock that agrees with the other process's.
    pub(crate) clock: Clock,
    /// The text of the site's file, and the number of changes that it lacks.
    pub(crate) file: (String, u64),
    pub(crate) taking: Takeover,
    pub(crate) took: TakenOver,
}

/// The reason why nothing was handed over.
enum AskError {
    Refused(String),
    Broken(io::Error),
}

impl From<io::Error> for AskError {
    fn from(error: io::Error) -> AskError {
        AskError::Broken(error)
    }
}

fn ask(stream: &UnixStream) -> std::result::Result<(Given, Vec<OwnedFd>), AskError> {
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let hello = Hello {
        version: VERSION,
        pid: process::id(),
    };
    send_message(stream, &hello)?;
    match receive_message(stream)? {
        Answer::Refused(sentence) => Err(AskError::Refused(sentence)),
        Answer::Given(given) => Ok((*given, files::receive(stream)?)),
    }
}

/// Takeover over, on the forwarding thread.
pub(crate) struct Takeover {
    stream: UnixStream,
    /// Time without forwarding, in nanoseconds.
    stood: Arc<AtomicU64>,
}

/// The report of a completed hand-over.
pub(crate) struct TakenOver {
    pub(crate) from: u32,
    stood: Arc<AtomicU64>,
}

impl TakenOver {
    /// Returns the time from the other process's last round to the first of this one.
    pub(crate) fn stood(&self) -> Duration {
        Duration::from_nanos(self.stood.load(Ordering::Relaxed))
    }
}

impl Takeover {
    /// Confirms that all is ready, queues the handed-over frames and sends the eligible ones, and then becomes the
    /// receiver.
    pub(crate) fn take(self, bridge: &mut SiteBridge, clock: &Clock) -> io::Result<()> {
        self.take_all(bridge, clock).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "no handover; the running process keeps running unless it has ended: {error}"
                ),
            )
        })?;
        for side in Side::BOTH {
            bridge.device_mut(side).set_owned(true);
        }
        Ok(())
    }

    fn take_all(&self, bridge: &mut SiteBridge, clock: &Clock) -> io::Result<()> {
        let mut stream = &self.stream;
        stream.write_all(&[READY])?;
        let mut last_round = [0; 8];
        stream.read_exact(&mut last_round)?;
        let last_round = Nanos(u64::from_be_bytes(last_round));
        let mut stands = [DirectionState::default(); 2];
        for stand in &mut stands {
            let mut bytes = [0; DirectionState::BYTES];
            stream.read_exact(&mut bytes)?;
            *stand = DirectionState::decode(&bytes);
        }
        for (side, stand) in Side::BOTH.into_iter().zip(stands) {
            bridge.device_mut(side).resume_from(stand.position);
            if let Some(arbiter) = bridge.arbiter_mut(side) {
                arbiter.set_busy_until(stand.busy_until);
            }
        }
        let first_round = clock.now();
        let stood = first_round.since(last_round).0;
        self.stood.store(stood, Ordering::Relaxed);
        self.take_frames(bridge, clock)?;
        for (side, stand) in Side::BOTH.into_iter().zip(stands) {
            if stand.is_open {
                bridge.set_shaped(side, false);
            }
        }
        stream.write_all(&[TAKEN])
    }

    /// Does not wait while frames are eligible.
    fn take_frames(&self, bridge: &mut SiteBridge, clock: &Clock) -> io::Result<()> {
        let mut stream = &self.stream;
        stream.set_nonblocking(true)?;
        // The remainder of earlier chunks is shorter than a frame.
        let mut buffer = vec![0; Header::BYTES + LONGEST as usize + CHUNK];
        let (mut begin, mut end, mut heard) = (0, 0, Instant::now());
        loop {
            let now = clock.now();
            let (used, left) = admit(&buffer[begin..end], bridge, now)?;
            begin += used;
            bridge.send(now)?;
            match left {
                Remaining::Frames => continue,
                Remaining::Part => {}
                Remaining::Nothing => return stream.set_nonblocking(false),
            }
            buffer.copy_within(begin..end, 0);
            (begin, end) = (0, end - begin);
            match stream.read(&mut buffer[end..end + CHUNK]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => {
                    end += more;
                    heard = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if heard.elapsed() >= SILENCE {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The rest of the input after some frames were queued.
enum Remaining {
    /// More frames, perhaps.
    Frames,
    /// A part of a frame, or nothing so far.
    Part,
    /// The end of the input.
    Nothing,
}

/// Queues a few of the frames that are complete in `bytes`. Returns the number of bytes they took, and the kind of the
/// rest.
fn admit(bytes: &[u8], bridge: &mut SiteBridge, now: Nanos) -> io::Result<(usize, Remaining)> {
    let mut rest = bytes;
    for _ in 0..TURN {
        let Some((header, behind)) = rest.split_first_chunk() else {
            return Ok((bytes.len() - rest.len(), Remaining::Part));
        };
        let header = Header::decode(header);
        if header == Header::END {
            return Ok((bytes.len() - behind.len(), Remaining::Nothing));
        }
        if header.length > LONGEST {
            return Err(ErrorKind::InvalidData.into());
        }
        let Some((frame, behind)) = behind.split_at_checked(header.length as usize) else {
            return Ok((bytes.len() - rest.len(), Remaining::Part));
        };
        let frame = Frame::from(frame);
        bridge.admit(frame, header.leaves_by, header.came, now);
        rest = behind;
    }
    Ok((bytes.len() - rest.len(), Remaining::Frames))
}
