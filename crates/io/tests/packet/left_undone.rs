//! Offloads that a sender on the same machine leaves to hardware that does not exist.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, Waiter};
use fairlane_netlab::{Link, Namespace, or_skip, veth};

use crate::rig::*;
use crate::support::PATIENCE;

/// Two hosts whose networks are one through a forwarder of two backends, which runs while `work`
/// does and then says how many frames each of them counted as uncut, and how many it discarded.
fn forwarded(
    test: &str,
    offloads: bool,
    work: impl FnOnce(&Link, &Link),
) -> Option<[(u64, u64); 2]> {
    let middle = or_skip(test, Namespace::new())?;
    let hosts = [Namespace::new().unwrap(), Namespace::new().unwrap()];
    let cables = [("left", "host"), ("right", "host")];
    let links: Vec<_> = cables
        .iter()
        .zip(&hosts)
        .map(|((port, host), namespace)| veth((&middle, port), (namespace, host), 1_500).unwrap())
        .collect();
    for (number, (port, host)) in (1..).zip(&links) {
        port.up().unwrap();
        host.up().unwrap();
        host.add_address([10, 0, 0, number].into(), 24).unwrap();
        if !offloads {
            host.turn_offloads_off().unwrap();
        }
    }
    // One of each kind.
    let [blocks, prompt] = rings();
    let mut ports = [
        open_with(&links[0].0, &blocks),
        open_with(&links[1].0, &prompt),
    ];
    let stop = std::sync::atomic::AtomicBool::new(false);
    let counts = thread::scope(|scope| {
        let forwarder = scope.spawn(|| {
            let mut waiter = Waiter::new();
            let mut batches = [VecDeque::new(), VecDeque::new()];
            let mut arrived = Vec::new();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                waiter
                    .wait_readable(&[&ports[0], &ports[1]], Duration::from_millis(5))
                    .unwrap();
                for (from, to) in [(0, 1), (1, 0)] {
                    ports[from].receive(&mut arrived, 64).unwrap();
                    batches[to].extend(arrived.drain(..));
                    ports[to].transmit(&mut batches[to]).unwrap();
                }
            }
            ports.map(|port| (port.uncut(), port.discarded()))
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work(&links[0].1, &links[1].1);
        }));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let counts = forwarder.join().unwrap();
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        counts
    });
    Some(counts)
}

#[test]
fn a_checksum_left_to_hardware_that_is_not_there_is_completed() {
    let datagrams = |one: &Link, other: &Link| {
        let bind = |link: &Link, host| {
            let address = Ipv4Addr::new(10, 0, 0, host);
            let socket = link
                .namespace()
                .run(|| UdpSocket::bind((address, 9)).unwrap());
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let (one, other) = (bind(one, 1), bind(other, 2));
        for length in [0, 1, 2, 999, 1_472] {
            let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
            one.send_to(&payload, "10.0.0.2:9").unwrap();
            let mut buffer = [0; 2_000];
            // The kernel checks frames transmitted by a packet socket, and drops invalid ones.
            let came = other.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..came], payload);
        }
    };
    forwarded("checksums left to hardware", true, datagrams);
}

/// Sends megabytes from one to the other, and waits until they are there.
fn megabytes(one: &Link, other: &Link) {
    const BYTES: usize = 3_000_000;
    let listener = other
        .namespace()
        .run(|| TcpListener::bind("10.0.0.2:9").unwrap());
    let mut stream = one
        .namespace()
        .run(|| TcpStream::connect("10.0.0.2:9").unwrap());
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let received = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut received = Vec::new();
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let deadline = Instant::now() + PATIENCE;
            let mut buffer = vec![0; 1 << 16];
            loop {
                assert!(Instant::now() < deadline, "{} bytes came", received.len());
                match stream.read(&mut buffer).unwrap() {
                    0 => break received,
                    length => received.extend_from_slice(&buffer[..length]),
                }
            }
        });
        stream.write_all(&sent).unwrap();
        drop(stream);
        receiving.join().unwrap()
    });
    assert!(received == sent);
}

#[test]
fn a_connection_through_a_forwarder_carries_megabytes_whatever_its_hosts_leave_to_hardware() {
    for offloads in [false, true] {
        let name = "a connection through a forwarder";
        if let Some(counts) = forwarded(name, offloads, megabytes) {
            assert_eq!(counts, [(0, 0); 2]);
        }
    }
}
