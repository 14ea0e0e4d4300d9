//! A virtual interface and the kernel's network behind it keep the contract of every backend.
#![cfg(target_os = "linux")]

mod support;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::thread;
use std::time::Instant;

use fairlane_io::tun::Layer;
use fairlane_io::{Backend, TunBackend, Waiter};
use fairlane_netlab::{Link, Namespace, or_skip};
use support::{GRACE, PATIENCE, collect};

/// Bytes of the headers of IPv4 and UDP.
const HEADERS: usize = 28;

/// A host whose network is this program: its interface has the address 10.0.0.1, and the rest of
/// 10.0.0.0/24 is behind it.
struct Host {
    backend: TunBackend,
    link: Link,
    socket: UdpSocket,
}

fn host(test: &str) -> Option<Host> {
    let namespace = or_skip(test, Namespace::new())?;
    let opened = namespace.run(|| TunBackend::open("lane%d", Layer::Ip));
    let backend = match opened {
        Ok(backend) => backend,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fairlane_netlab::skip_unsupported(test, error);
            return None;
        }
        Err(error) => panic!("{test}: {error}"),
    };
    let link = Link::find(&namespace, backend.name()).unwrap();
    link.add_address([10, 0, 0, 1].into(), 24).unwrap();
    link.up().unwrap();
    let socket = namespace.run(|| UdpSocket::bind("10.0.0.1:7").unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    Some(Host {
        backend,
        link,
        socket,
    })
}

/// Returns the answer to a packet: source and destination change places. They are summed alike, so
/// the checksums stay right.
fn answer(mut packet: Vec<u8>) -> Vec<u8> {
    for (one, other, length) in [(12, 16, 4), (20, 22, 2)] {
        let (left, right) = packet.split_at_mut(other);
        left[one..one + length].swap_with_slice(&mut right[..length]);
    }
    packet
}

#[test]
fn what_a_socket_sends_comes_here_and_what_is_sent_here_reaches_the_socket_once_and_in_order() {
    let Some(mut host) = host("there and back") else {
        return;
    };
    const PACKETS: u32 = 100_000;
    // Less than the 500 that the kernel holds for us, and than the socket has room for, so that it
    // drops none.
    const WINDOW: u32 = 64;
    let payload = |number: u32| {
        let length = [4, 5, 100, 1_472][number as usize % 4];
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(length, number as u8);
        payload
    };
    let mut echoed = 0;
    let mut buffer = [0; 2_000];
    let mut arrived = Vec::new();
    let mut batch = VecDeque::new();
    let deadline = Instant::now() + 3 * PATIENCE;
    for start in (0..PACKETS).step_by(WINDOW as usize) {
        let end = (start + WINDOW).min(PACKETS);
        for number in start..end {
            let sent = host.socket.send_to(&payload(number), "10.0.0.2:9");
            assert_eq!(sent.unwrap(), payload(number).len());
        }
        // Of one packet, of a few, of all that wait.
        for max in [1, 3, usize::MAX] {
            host.backend.receive(&mut arrived, max).unwrap();
        }
        assert_eq!(arrived.len() as u32, end - start);
        for (number, packet) in (start..end).zip(&arrived) {
            assert_eq!(packet[HEADERS..], payload(number));
            assert_eq!(packet[16..20], [10, 0, 0, 2]);
        }
        batch.extend(arrived.drain(..).map(answer));
        assert_eq!(
            host.backend.transmit(&mut batch).unwrap() as u32,
            end - start
        );
        assert_eq!(host.backend.in_flight().unwrap(), 0);
        while echoed < end {
            assert!(Instant::now() < deadline);
            let length = host.socket.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..length], payload(echoed));
            echoed += 1;
        }
    }
    assert_eq!((host.backend.refused(), batch.len()), (0, 0));
    host.socket.set_nonblocking(true).unwrap();
    assert!(host.socket.recv(&mut buffer).is_err(), "no packet twice");
}

#[test]
fn what_is_no_ip_packet_is_refused_and_holds_up_nobody() {
    let Some(mut host) = host("no IP packet") else {
        return;
    };
    host.socket.send_to(b"hello", "10.0.0.2:9").unwrap();
    let packet = answer(collect(&mut host.backend, 1).remove(0));
    let mut batch = VecDeque::from([vec![], vec![0; 60], packet.clone(), vec![0xff], packet]);
    assert_eq!(host.backend.transmit(&mut batch).unwrap(), 2);
    assert_eq!((host.backend.refused(), batch.len()), (3, 0));
    for _ in 0..2 {
        assert_eq!(host.socket.recv(&mut [0; 9]).unwrap(), 5);
    }
}

#[test]
fn packets_wait_while_the_link_is_down_and_arrive_when_it_is_up_again() {
    let Some(mut host) = host("a TUN down and up") else {
        return;
    };
    host.socket.send_to(b"hello", "10.0.0.2:9").unwrap();
    let packet = answer(collect(&mut host.backend, 1).remove(0));
    host.link.down().unwrap();
    let mut batch = VecDeque::from([packet.clone(), packet.clone(), packet]);
    for _ in 0..10 {
        assert_eq!(host.backend.transmit(&mut batch).unwrap(), 0);
        assert_eq!(host.backend.receive(&mut Vec::new(), 64).unwrap(), 0);
    }
    assert_eq!((batch.len(), host.backend.refused()), (3, 0));
    host.link.up().unwrap();
    assert_eq!(host.backend.transmit(&mut batch).unwrap(), 3);
    for _ in 0..3 {
        assert_eq!(host.socket.recv(&mut [0; 9]).unwrap(), 5);
    }
    host.socket.send_to(b"again", "10.0.0.2:9").unwrap();
    assert_eq!(collect(&mut host.backend, 1)[0][HEADERS..], *b"again");
}

#[test]
fn an_interface_removed_while_running_is_a_clear_error_and_others_go_on() {
    let (Some(mut gone), Some(mut stays)) = (host("a TUN removed"), host("a TUN that stays"))
    else {
        return;
    };
    gone.socket.send_to(b"hello", "10.0.0.2:9").unwrap();
    let packet = answer(collect(&mut gone.backend, 1).remove(0));
    let mut batch = VecDeque::from([packet]);
    // A thread that waits is woken.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut waiter = Waiter::new();
            let started = Instant::now();
            let ready = waiter.wait_readable(&[&gone.backend], PATIENCE);
            (ready.unwrap().count(), started.elapsed())
        });
        thread::sleep(GRACE);
        gone.link.delete().unwrap();
        let (ready, waited) = waiting.join().unwrap();
        assert!(ready == 1 && waited < PATIENCE);
    });
    let sentence = "the interface lane0 has been removed: open it again";
    for _ in 0..2 {
        let errors = [
            gone.backend.transmit(&mut batch).unwrap_err(),
            gone.backend.receive(&mut Vec::new(), 64).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert_eq!(error.to_string(), sentence);
        }
    }
    assert_eq!((batch.len(), gone.backend.refused()), (1, 0));

    stays.socket.send_to(b"hello", "10.0.0.2:9").unwrap();
    collect(&mut stays.backend, 1);
}

#[test]
fn an_ethernet_interface_carries_whole_frames() {
    let Some(namespace) = or_skip("TAP", Namespace::new()) else {
        return;
    };
    let open = || TunBackend::<Vec<u8>>::open("frames", Layer::Ethernet);
    let mut backend = namespace.run(|| open().unwrap());
    let link = Link::find(&namespace, "frames").unwrap();
    link.add_address([10, 0, 0, 1].into(), 24).unwrap();
    link.up().unwrap();
    let socket = namespace.run(|| UdpSocket::bind("10.0.0.1:7").unwrap());
    socket.send_to(b"hello", "10.0.0.2:9").unwrap();
    // The kernel asks for 10.0.0.2 (ARP).
    let mut waiter = Waiter::new();
    assert_eq!(
        waiter.wait_readable(&[&backend], PATIENCE).unwrap().len(),
        1
    );
    let mut arrived = Vec::new();
    backend.receive(&mut arrived, 1).unwrap();
    let mac = link.mac();
    assert_eq!(arrived[0][..6], [0xff; 6]);
    assert_eq!(arrived[0][6..12], mac);
    assert_eq!(arrived[0][12..14], [0x08, 0x06]);
    // Once the test answers the ARP request, the datagram arrives.
    let mut reply = arrived.remove(0);
    reply[..6].copy_from_slice(&mac);
    reply[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    reply[21] = 2;
    let question = reply[22..32].to_vec();
    reply[22..28].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    reply[28..32].copy_from_slice(&[10, 0, 0, 2]);
    reply[32..42].copy_from_slice(&question);
    let mut batch = VecDeque::from([vec![0; 13], reply]);
    assert_eq!(backend.transmit(&mut batch).unwrap(), 1);
    assert_eq!(backend.refused(), 1);
    assert_eq!(
        waiter.wait_readable(&[&backend], PATIENCE).unwrap().len(),
        1
    );
    backend.receive(&mut arrived, 1).unwrap();
    assert_eq!(arrived[0][..6], [2, 0, 0, 0, 0, 9]);
    assert_eq!(arrived[0][14 + HEADERS..], *b"hello");
}

#[test]
fn names_are_given_by_pattern_and_the_interface_goes_with_its_backend() {
    let Some(first) = host("names by pattern") else {
        return;
    };
    let namespace = first.link.namespace();
    let open = |name: &str| namespace.run(|| TunBackend::<Vec<u8>>::open(name, Layer::Ip));
    assert_eq!(first.backend.name(), "lane0");
    let second = open("lane%d").unwrap();
    assert_eq!(second.name(), "lane1");
    assert_eq!(open("").unwrap().name(), "tun0");
    drop(second);
    assert!(Link::find(namespace, "lane1").is_err());
    assert!(Link::find(namespace, "lane0").is_ok());
}

#[test]
fn what_cannot_be_opened_is_refused_in_a_sentence_that_says_what_to_do() {
    let Some(first) = host("a TUN that cannot be opened") else {
        return;
    };
    let namespace = first.link.namespace();
    let error = |name: &str| {
        let opened = namespace.run(|| TunBackend::<Vec<u8>>::open(name, Layer::Ip));
        let error = opened.unwrap_err();
        (error.kind(), error.to_string())
    };
    assert_eq!(
        error("lane0"),
        (
            ErrorKind::ResourceBusy,
            "the interface lane0 is busy: another program has it open".to_owned()
        )
    );
    for name in ["lo", "sixteen-bytes-xx", "a/b", "a b", "nul\0"] {
        let (kind, sentence) = error(name);
        assert_eq!(kind, ErrorKind::InvalidInput, "{sentence}");
        let start = format!("no interface can be made with the name {name:?}: ");
        assert!(sentence.starts_with(&start), "{sentence}");
    }
    let (kind, sentence) = namespace.run(|| {
        // A thread's capabilities are its own.
        caps::clear(None, caps::CapSet::Effective).unwrap();
        let error = TunBackend::<Vec<u8>>::open("lane9", Layer::Ip).unwrap_err();
        (error.kind(), error.to_string())
    });
    assert_eq!(kind, ErrorKind::PermissionDenied);
    assert_eq!(
        sentence,
        "to make the interface lane9 the privilege CAP_NET_ADMIN is needed: run as root, or grant \
         it to the program (setcap cap_net_admin+ep)"
    );
}
