//! The process that runs, and hands over.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use fairlane_config::Site;
use fairlane_core::Nanos;
use fairlane_io::EarlyDrop;
use fairlane_io::packet::PacketFrame;
use fairlane_runtime::bridge::{Came, Side};

use super::{DirectionState, Header, TAKEN};
use crate::error::Result;
use fairlane_dataplane::bridge::SiteBridge;
use fairlane_dataplane::device::ExportedDevice;
use fairlane_dataplane::forward::start_workers;
use fairlane_dataplane::frame::Frame;
use fairlane_dataplane::stop::Stop;

/// Sizes of output chunks: small at first, so the successor soon has frames to send.
const CHUNKS: [usize; 2] = [2 << 10, 64 << 10];

/// Frames of one direction before those of the other.
const TURN: usize = 16;

/// State that others hand over with the site.
#[derive(Debug, Default)]
pub struct HandoverExtra {
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
    Wanted(SyncSender<Result<Box<SiteState>>>),
    /// The site is handed over soon: no changes are accepted any more.
    Given,
    /// That is ready.
    Ready(Box<Transferring>, SyncSender<Result<u64>>),
    /// Another process forwards.
    HandedOver,
}

/// State provided by the control thread.
pub(crate) struct SiteState {
    pub(crate) site: Arc<Site>,
    /// The file's text, and the number of changes that it lacks.
    pub(crate) file: (Arc<str>, u64),
    pub(crate) give: DeviceState,
}

/// State provided by the forwarding thread.
#[derive(Default)]
pub(crate) struct DeviceState {
    pub(crate) devices: [Option<ExportedDevice>; 2],
    pub(crate) error: Option<io::Error>,
}

impl DeviceState {
    /// O(1), a few system calls.
    pub(crate) fn step(&mut self, bridge: &SiteBridge) {
        for side in Side::BOTH {
            match bridge.device(side).export() {
                Ok(device) => self.devices[side as usize] = device,
                Err(error) => self.error = Some(error),
            }
        }
    }
}

/// The transfer to the successor, on the forwarding thread.
pub(crate) struct Transferring {
    pub(crate) stream: UnixStream,
    /// The other process.
    pub(crate) to: u32,
    pub(crate) stop: Arc<Stop>,
    /// Number of frames in the backlog.
    pub(crate) result: Option<io::Result<u64>>,
}

impl Transferring {
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
                // From here on the other one cannot report that it has taken; it may have before.
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
            .all(|&side| bridge.device(side).is_exported())
        {
            // The successor has the former interface, from which no more frames arrive.
            return Err(io::Error::other("an interface was lost meanwhile"));
        }
        let mut told = Transfer {
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
            bridge
                .device_mut(side)
                .quiesce(&mut rests[leaves_by as usize])
        });
        for side in Side::BOTH {
            let arbiter = bridge.arbiter(side);
            let stand = DirectionState {
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
            let came = at(now.since(Nanos::from(waited[side.other() as usize])));
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
struct Transfer<'a> {
    stream: &'a UnixStream,
    buffer: Vec<u8>,
    chunk: usize,
    frames: u64,
}

impl Transfer<'_> {
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
