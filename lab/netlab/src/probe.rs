//! A thin stream of datagrams that measures the delay of each.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

use crate::{Host, LabError};

/// Bytes of a datagram: when it was sent, in nanoseconds since 1970, and filling up to the payload of a
/// shortest frame.
const DATAGRAM: usize = 18;

/// Interval of the receiver's checks whether all have arrived, or the wait is over.
const LOOK: Duration = Duration::from_millis(20);

/// Datagrams (UDP) from one host to another at even intervals.
///
/// The delay of each is from just before it is sent until the kernel of the receiver has its frame, by the
/// kernel's own time stamp: when the receiving thread is woken up does not count.
#[derive(Debug)]
pub struct Probe {
    over: Arc<AtomicBool>,
    sender: Option<JoinHandle<io::Result<u64>>>,
    receiver: Option<JoinHandle<io::Result<Vec<Duration>>>>,
}

/// Results of a [`Probe`]'s datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// Datagrams that were sent.
    pub sent: u64,
    /// How long each of those that arrived was on its way, the shortest first.
    pub delays: Vec<Duration>,
}

impl Probed {
    /// Datagrams that never arrived.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.delays.len() as u64)
    }

    /// Returns the delay that this part of all that arrived, 0 to 1, did not exceed; `None` if none
    /// arrived.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let last = self.delays.len().checked_sub(1)?;
        let place = (part.clamp(0.0, 1.0) * last as f64).round() as usize;
        self.delays.get(place).copied()
    }
}

impl Probe {
    /// Starts to send `per_second` datagrams a second from `from` to `to`, at its `port`.
    ///
    /// # Errors
    ///
    /// If the port is taken, or the kernel does not say when frames arrive.
    pub fn start(from: &Host, to: &Host, port: u16, per_second: u32) -> Result<Probe, LabError> {
        let failed = |error| LabError::new(format!("probe port {port}"), error);
        let bind = |host: &Host, port| {
            host.namespace()
                .run(|| UdpSocket::bind((host.address(), port)))
        };
        let arriving = bind(to, port).map_err(failed)?;
        setsockopt(&arriving, sockopt::ReceiveTimestampns, &true)
            .map_err(|error| failed(error.into()))?;
        arriving.set_read_timeout(Some(LOOK)).map_err(failed)?;
        let leaving = bind(from, 0).map_err(failed)?;
        leaving.connect((to.address(), port)).map_err(failed)?;
        let interval = Duration::from_secs(1) / per_second.max(1);
        let over = Arc::new(AtomicBool::new(false));
        let (send_until, receive_until) = (Arc::clone(&over), Arc::new(AtomicBool::new(false)));
        let no_more = Arc::clone(&receive_until);
        Ok(Probe {
            sender: Some(thread::spawn(move || {
                let sent = send(&leaving, interval, &send_until);
                // Whatever is still under way arrives within this, or never.
                thread::sleep(10 * LOOK);
                no_more.store(true, Ordering::Release);
                sent
            })),
            receiver: Some(thread::spawn(move || receive(&arriving, &receive_until))),
            over,
        })
    }

    /// Stops sending, and waits for datagrams in flight, for a fifth of a second.
    ///
    /// # Errors
    ///
    /// If one of the sockets failed.
    pub fn finish(mut self) -> Result<Probed, LabError> {
        self.over.store(true, Ordering::Release);
        let failed = |error| LabError::new("probe a way", error);
        let panicked = || io::Error::other("a thread panicked");
        let sender = self.sender.take().map(JoinHandle::join);
        let receiver = self.receiver.take().map(JoinHandle::join);
        let sent = sender
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(panicked()));
        let delays = receiver
            .and_then(Result::ok)
            .unwrap_or_else(|| Err(panicked()));
        let (sent, mut delays) = (sent.map_err(failed)?, delays.map_err(failed)?);
        delays.sort_unstable();
        Ok(Probed { sent, delays })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
        if let Some(receiver) = self.receiver.take() {
            let _ = receiver.join();
        }
    }
}

/// Since 1970.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn send(socket: &UdpSocket, interval: Duration, over: &AtomicBool) -> io::Result<u64> {
    let begun = Instant::now();
    let mut sent = 0;
    while !over.load(Ordering::Acquire) {
        // The time of each is fixed: one that is late makes none of the others late.
        let due = begun + interval * u32::try_from(sent).unwrap_or(u32::MAX);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut datagram = [0; DATAGRAM];
        let stamp = now().as_nanos() as u64;
        datagram[..8].copy_from_slice(&stamp.to_ne_bytes());
        match socket.send(&datagram) {
            // The device had no room: it is as good as lost on the way.
            Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => (),
            Err(error) => return Err(error),
            Ok(_) => (),
        }
        sent += 1;
    }
    Ok(sent)
}

fn receive(socket: &UdpSocket, over: &AtomicBool) -> io::Result<Vec<Duration>> {
    let mut delays = Vec::new();
    while !over.load(Ordering::Acquire) {
        let mut datagram = [0; DATAGRAM];
        let mut buffers = [IoSliceMut::new(&mut datagram)];
        let mut control = cmsg_space!(TimeSpec);
        let fd = socket.as_raw_fd();
        let received = match recvmsg::<()>(fd, &mut buffers, Some(&mut control), MsgFlags::empty())
        {
            Ok(received) => received,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let arrived = received.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        if let (Some(arrived), Some(stamp)) = (arrived, datagram.first_chunk::<8>()) {
            let left = Duration::from_nanos(u64::from_ne_bytes(*stamp));
            delays.push(arrived.saturating_sub(left));
        }
    }
    Ok(delays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Wire, or_skip};

    #[test]
    fn quantiles_are_of_what_arrived() {
        let delays = (1..=5).map(Duration::from_micros).collect();
        let probed = Probed { sent: 7, delays };
        assert_eq!(probed.lost(), 2);
        let micros = [0.0, 0.5, 0.99, 1.0].map(|part| probed.quantile(part).unwrap().as_micros());
        assert_eq!(micros, [1, 3, 5, 5]);
        assert_eq!(Probed::default().quantile(0.5), None);
    }

    #[test]
    fn what_passes_a_bridge_is_counted_and_timed() {
        let made = Wire::new(1).and_then(|wire| wire.forward().map(|bridge| (wire, bridge)));
        let Some((wire, _bridge)) = or_skip("netlab's probe", made) else {
            return;
        };
        assert!(wire.is_through(Duration::from_secs(60)).unwrap());
        let probe = Probe::start(wire.sender(0), wire.receiver(), 7_000, 500).unwrap();
        thread::sleep(Duration::from_millis(200));
        let probed = probe.finish().unwrap();
        assert!(probed.sent > 0 && probed.lost() == 0, "{probed:?}");
        assert!(probed.quantile(0.5).unwrap() > Duration::ZERO);
    }
}
