//! Requests and replies, one at a time.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::{Host, LabError};

/// An answer length that stops the server.
const OVER: usize = usize::MAX;

/// How long a port may be held by a process that is being started.
const HELD: Duration = Duration::from_secs(2);

/// A client on one host and a server on another, which exchange datagrams (UDP).
#[derive(Debug)]
pub struct Echo {
    client: UdpSocket,
    number: u8,
    /// The length of the server's answer, in bytes.
    answer: Arc<AtomicUsize>,
    server: Option<JoinHandle<()>>,
}

impl Echo {
    /// Longest request or reply, in bytes. More than 1,472 go in fragments of a frame each.
    pub const LONGEST: usize = 8_192;

    /// Returns a client on `from` and a server on `to` at `port`.
    ///
    /// # Errors
    ///
    /// If the port is taken.
    pub fn between(from: &Host, to: &Host, port: u16) -> Result<Echo, LabError> {
        let failed = |error| LabError::new(format!("echo datagrams at port {port}"), error);
        let bind = |host: &Host, port| {
            host.namespace()
                .run(|| UdpSocket::bind((host.address(), port)))
        };
        // A process that another thread is just starting keeps descriptors that were closed here
        // open until its `exec`: a moment.
        let deadline = Instant::now() + HELD;
        let server = loop {
            match bind(to, port) {
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline =>
                {
                    thread::sleep(Duration::from_millis(5));
                }
                bound => break bound.map_err(failed)?,
            }
        };
        // From time to time it looks whether it is still wanted.
        let look = Some(Duration::from_millis(50));
        server.set_read_timeout(look).map_err(failed)?;
        let client = bind(from, 0).map_err(failed)?;
        client.connect((to.address(), port)).map_err(failed)?;
        let answer = Arc::new(AtomicUsize::new(1));
        let wanted = Arc::clone(&answer);
        Ok(Echo {
            client,
            number: 0,
            answer,
            server: Some(thread::spawn(move || serve(&server, &wanted))),
        })
    }

    /// Sends `request` bytes and waits for `reply` bytes; returns the elapsed time. `None` if
    /// nothing arrives in time; a late answer is not taken for the next one.
    ///
    /// # Panics
    ///
    /// If either is 0 or more than [`LONGEST`](Echo::LONGEST).
    pub fn round_trip(
        &mut self,
        request: usize,
        reply: usize,
        patience: Duration,
    ) -> Option<Duration> {
        let lengths = 1..=Echo::LONGEST;
        assert!(lengths.contains(&request) && lengths.contains(&reply));
        self.answer.store(reply, Ordering::Relaxed);
        self.number = self.number.wrapping_add(1);
        let mut buffer = [0; Echo::LONGEST];
        buffer[0] = self.number;
        let sent = Instant::now();
        // A host that cannot be reached is one that does not answer.
        let _ = self.client.send(&buffer[..request]);
        loop {
            let left = patience
                .checked_sub(sent.elapsed())
                .filter(|left| !left.is_zero())?;
            self.client.set_read_timeout(Some(left)).ok()?;
            match self.client.recv(&mut buffer) {
                Ok(_) if buffer[0] == self.number => return Some(sent.elapsed()),
                // A late answer, or the error of an earlier request to a closed port.
                Ok(_) => (),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => (),
                Err(_) => return None,
            }
        }
    }
}

fn serve(socket: &UdpSocket, answer: &AtomicUsize) {
    let mut buffer = [0; Echo::LONGEST];
    loop {
        let received = socket.recv_from(&mut buffer);
        let length = answer.load(Ordering::Relaxed);
        if length == OVER {
            return;
        }
        if let Ok((_, client)) = received {
            // A client that cannot be answered any more does not wait.
            let _ = socket.send_to(&buffer[..length], client);
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.answer.store(OVER, Ordering::Relaxed);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}
