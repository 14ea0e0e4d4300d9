//! UDP over loopback keeps the contract of every backend.
#![cfg(target_os = "linux")]

mod support;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, Datagram, MAX_DATAGRAM, UdpBackend, Waiter};
use support::{GRACE, PATIENCE};

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

fn bind(addr: &str) -> UdpBackend<Datagram> {
    UdpBackend::bind(addr.parse().unwrap()).unwrap()
}

/// Numbered datagrams to `peer`.
fn numbered(peer: SocketAddr, numbers: std::ops::Range<u32>) -> VecDeque<Datagram> {
    numbers.map(|number| datagram(peer, number)).collect()
}

fn datagram(peer: SocketAddr, number: u32) -> Datagram {
    Datagram {
        peer,
        bytes: number.to_be_bytes().to_vec(),
    }
}

/// Receives until `count` have arrived, without drops.
fn collect(socket: &mut UdpBackend<Datagram>, count: usize) -> Vec<Datagram> {
    let arrived = support::collect(socket, count);
    assert_eq!(socket.discarded(), 0);
    arrived
}

fn bytes(datagrams: &[Datagram]) -> Vec<&[u8]> {
    datagrams
        .iter()
        .map(|datagram| &datagram.bytes[..])
        .collect()
}

/// Returns an address of loopback without a listener.
fn closed_port() -> SocketAddr {
    UdpSocket::bind(V4).unwrap().local_addr().unwrap()
}

fn a_large_batch_arrives_complete_and_in_order(addr: &str) {
    let (mut sender, mut receiver) = (bind(addr), bind(addr));
    let offered = numbered(receiver.local_addr().unwrap(), 0..150);
    let mut batch = offered.clone();
    assert_eq!(sender.transmit(&mut batch).unwrap(), 150);
    assert_eq!((sender.refused(), batch.len()), (0, 0));

    let arrived = collect(&mut receiver, 150);
    let source = sender.local_addr().unwrap();
    for (arrived, offered) in arrived.iter().zip(&offered) {
        assert_eq!(arrived.bytes, offered.bytes);
        assert_eq!(arrived.peer, source);
    }
}

#[test]
fn more_than_64_datagrams_arrive_complete_and_in_order_over_ipv4() {
    a_large_batch_arrives_complete_and_in_order(V4);
}

#[test]
fn more_than_64_datagrams_arrive_complete_and_in_order_over_ipv6() {
    if let Err(reason) = UdpSocket::bind(V6) {
        let reason = format!("cannot bind {V6}: {reason}");
        return fairlane_netlab::skip_unsupported("over IPv6", reason);
    }
    a_large_batch_arrives_complete_and_in_order(V6);
}

#[test]
fn one_batch_may_go_to_different_peers() {
    let mut sender = bind(V4);
    let mut receivers = [bind(V4), bind(V4), bind(V4)];
    let peers = receivers
        .each_ref()
        .map(|socket| socket.local_addr().unwrap());
    let mut batch: VecDeque<_> = (0..99)
        .map(|number| datagram(peers[number as usize % 3], number))
        .collect();
    assert_eq!(sender.transmit(&mut batch).unwrap(), 99);
    for (first, receiver) in (0..).zip(&mut receivers) {
        let arrived = collect(receiver, 33);
        let expected = (first..99)
            .step_by(3)
            .map(|number: u32| number.to_be_bytes());
        assert!(
            arrived
                .iter()
                .map(|datagram| datagram.bytes.clone())
                .eq(expected)
        );
    }
}

#[test]
fn an_empty_datagram_arrives_as_one() {
    let (mut sender, mut receiver) = (bind(V4), bind(V4));
    let peer = receiver.local_addr().unwrap();
    let mut batch: VecDeque<_> = [b"a".to_vec(), Vec::new(), b"b".to_vec()]
        .map(|bytes| Datagram { peer, bytes })
        .into();
    assert_eq!(sender.transmit(&mut batch).unwrap(), 3);
    assert_eq!(bytes(&collect(&mut receiver, 3)), [&b"a"[..], b"", b"b"]);
}

#[test]
fn the_longest_datagram_passes_and_one_byte_more_is_refused_without_holding_up_the_rest() {
    let (mut sender, mut receiver) = (bind(V4), bind(V4));
    let peer = receiver.local_addr().unwrap();
    let long = |length| Datagram {
        peer,
        bytes: (0..length).map(|n| n as u8).collect(),
    };
    let mut batch = VecDeque::from([
        datagram(peer, 1),
        long(MAX_DATAGRAM + 1),
        long(MAX_DATAGRAM),
        long(1 << 20),
        datagram(peer, 2),
    ]);
    assert_eq!(sender.transmit(&mut batch).unwrap(), 3);
    assert_eq!((sender.refused(), batch.len()), (2, 0));
    let arrived = collect(&mut receiver, 3);
    assert_eq!(arrived[0].bytes, 1_u32.to_be_bytes());
    assert_eq!(arrived[1].bytes, long(MAX_DATAGRAM).bytes);
    assert_eq!(arrived[2].bytes, 2_u32.to_be_bytes());
}

#[test]
fn peers_that_cannot_be_reached_are_refused_without_holding_up_the_rest() {
    let (mut sender, mut receiver) = (bind(V4), bind(V4));
    let peer = receiver.local_addr().unwrap();
    let mut batch = VecDeque::from([
        datagram("127.0.0.1:0".parse().unwrap(), 1),
        datagram("[::1]:9".parse().unwrap(), 2),
        datagram(peer, 3),
        datagram("127.255.255.255:9".parse().unwrap(), 4),
    ]);
    assert_eq!(sender.transmit(&mut batch).unwrap(), 1);
    assert_eq!((sender.refused(), batch.len()), (3, 0));
    assert_eq!(collect(&mut receiver, 1)[0].bytes, 3_u32.to_be_bytes());
}

/// Of datagrams to a closed port and to an open one in turns, the latter all arrive.
fn every_other_one_arrives(mut sender: UdpBackend<Datagram>, closed: SocketAddr) {
    let mut receiver = bind(V4);
    let open = receiver.local_addr().unwrap();
    let mut batch: VecDeque<_> = (0..100)
        .map(|number| datagram(if number % 2 == 0 { closed } else { open }, number))
        .collect();
    assert_eq!(sender.transmit(&mut batch).unwrap(), 100);
    assert_eq!((sender.refused(), batch.len()), (0, 0));
    let expected = (1..100).step_by(2).map(|number: u32| number.to_be_bytes());
    let arrived = collect(&mut receiver, 50);
    assert!(
        arrived
            .iter()
            .map(|datagram| datagram.bytes.clone())
            .eq(expected)
    );
}

#[test]
fn a_closed_port_costs_later_datagrams_to_an_open_one_nothing() {
    every_other_one_arrives(bind(V4), closed_port());
}

/// Returns a connected socket: no other gets reports of closed ports.
fn connected_to(closed: SocketAddr) -> UdpBackend<Datagram> {
    let socket = UdpSocket::bind(V4).unwrap();
    socket.connect(closed).unwrap();
    UdpBackend::from_socket(socket).unwrap()
}

#[test]
fn a_connected_socket_told_of_a_closed_port_still_sends_every_datagram() {
    let closed = closed_port();
    every_other_one_arrives(connected_to(closed), closed);
}

#[test]
fn a_connected_socket_told_of_a_closed_port_is_readable_and_receives_nothing() {
    let closed = closed_port();
    let mut socket = connected_to(closed);
    socket.transmit(&mut numbered(closed, 0..1)).unwrap();
    let mut waiter = Waiter::new();
    assert!(waiter.wait_readable(&[&socket], PATIENCE).unwrap().eq([0]));
    assert_eq!(socket.receive(&mut Vec::new(), 64).unwrap(), 0);
    assert_eq!(waiter.wait_readable(&[&socket], GRACE).unwrap().count(), 0);
}

#[test]
fn receiving_less_than_waits_leaves_the_rest_and_keeps_what_was_there() {
    let (mut sender, mut receiver) = (bind(V4), bind(V4));
    let peer = receiver.local_addr().unwrap();
    assert_eq!(sender.transmit(&mut numbered(peer, 0..100)).unwrap(), 100);

    let mut arrived = vec![datagram(peer, 1_000)];
    assert_eq!(receiver.receive(&mut arrived, 0).unwrap(), 0);
    let mut waiter = Waiter::new();
    for max in [1, 2, 70, 27] {
        let before = arrived.len();
        while arrived.len() < before + max {
            let ready = waiter.wait_readable(&[&receiver], PATIENCE).unwrap();
            assert_eq!(ready.len(), 1);
            let room = max - (arrived.len() - before);
            assert!(receiver.receive(&mut arrived, room).unwrap() <= room);
        }
        assert_eq!(arrived.len(), before + max);
    }
    assert_eq!(receiver.receive(&mut arrived, 64).unwrap(), 0);
    let numbers: Vec<_> = arrived
        .iter()
        .map(|datagram| datagram.bytes.clone())
        .collect();
    assert_eq!(numbers[0], 1_000_u32.to_be_bytes());
    assert!(
        numbers[1..].iter().eq((0..100_u32)
            .map(u32::to_be_bytes)
            .collect::<Vec<_>>()
            .iter())
    );
}

#[test]
fn receiving_when_nothing_waits_gives_none_at_once() {
    let mut socket = bind(V4);
    let mut arrived = Vec::new();
    assert_eq!(socket.receive(&mut arrived, 64).unwrap(), 0);
    assert!(arrived.is_empty());
}

#[test]
fn a_socket_made_blocking_behind_our_back_still_does_not_block() {
    let socket = UdpSocket::bind(V4).unwrap();
    let clone = socket.try_clone().unwrap();
    let mut backend = UdpBackend::<Datagram>::from_socket(socket).unwrap();
    clone.set_nonblocking(false).unwrap();
    assert_eq!(backend.receive(&mut Vec::new(), 64).unwrap(), 0);
}

#[test]
fn an_answer_to_a_received_datagram_reaches_its_sender() {
    let (mut one, mut other) = (bind(V4), bind(V4));
    one.transmit(&mut numbered(other.local_addr().unwrap(), 0..3))
        .unwrap();
    let mut answers = VecDeque::from(collect(&mut other, 3));
    assert_eq!(other.transmit(&mut answers).unwrap(), 3);
    let arrived = collect(&mut one, 3);
    assert_eq!(arrived[2], datagram(other.local_addr().unwrap(), 2));
}

#[test]
fn clones_share_the_port_and_one_receives_what_is_sent_to_both() {
    let (mut sender, receiver) = (bind(V4), bind(V4));
    let mut clone = receiver.try_clone().unwrap();
    assert_eq!(clone.local_addr().unwrap(), receiver.local_addr().unwrap());
    sender
        .transmit(&mut numbered(receiver.local_addr().unwrap(), 0..5))
        .unwrap();
    collect(&mut clone, 5);
}

#[test]
fn a_port_in_use_is_an_error_that_says_so() {
    let holder = bind(V4);
    let error = UdpBackend::<Datagram>::bind(holder.local_addr().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}

/// Transmits with segmentation and without it, checks that arrivals at each receiver and the sender's
/// counts are equal, and returns them.
fn with_and_without_segmentation(
    sender: impl Fn() -> UdpBackend<Datagram>,
    receivers: &mut [UdpBackend<Datagram>],
    batch: &VecDeque<Datagram>,
    arrive: &[usize],
) -> (usize, u64) {
    let [with, without] = [true, false].map(|wanted| {
        let mut sender = sender();
        assert_eq!(sender.set_segmentation(wanted), wanted);
        let mut offered = batch.clone();
        let accepted = sender.transmit(&mut offered).unwrap();
        assert!(offered.is_empty());
        let arrived = receivers.iter_mut().zip(arrive);
        let arrived: Vec<Vec<Vec<u8>>> = arrived
            .map(|(receiver, &count)| {
                let arrived = collect(receiver, count).into_iter();
                arrived.map(|datagram| datagram.bytes).collect()
            })
            .collect();
        (accepted, sender.refused(), arrived)
    });
    assert!(with == without, "segmentation changed what arrives");
    let (accepted, refused, arrived) = with;
    for (receiver, arrived) in receivers.iter().zip(arrived) {
        let peer = receiver.local_addr().unwrap();
        let expected = batch.iter().filter(|datagram| datagram.peer == peer);
        let expected = expected.filter(|datagram| datagram.bytes.len() <= MAX_DATAGRAM);
        assert!(expected.map(|datagram| &datagram.bytes).eq(&arrived));
    }
    (accepted, refused)
}

/// Returns a numbered datagram of a given length.
fn of_length(peer: SocketAddr, number: usize, length: usize) -> Datagram {
    let bytes = (0..length).map(|at| (at + number) as u8).collect();
    Datagram { peer, bytes }
}

#[test]
fn with_segmentation_datagrams_of_mixed_lengths_and_peers_arrive_as_without() {
    let mut receivers = [bind(V4), bind(V4)];
    let peers = receivers
        .each_ref()
        .map(|socket| socket.local_addr().unwrap());
    let nowhere = "127.0.0.1:0".parse().unwrap();
    let lengths = [
        40, 40, 40, 7, 0, 0, 1_472, 1_472, 1_472, 3, 30_000, 30_000, 30_000,
    ];
    let mut batch = VecDeque::new();
    for (round, &length) in (0..40).zip(lengths.iter().cycle()) {
        for number in 0..5 {
            batch.push_back(of_length(peers[round % 2], round * 5 + number, length));
        }
        batch.push_back(of_length(peers[0], round, MAX_DATAGRAM + 1));
        batch.extend((0..2).map(|number| of_length(nowhere, number, 9)));
    }
    for receiver in &receivers {
        receiver.set_receive_buffer(1 << 24).unwrap();
    }
    let sent = with_and_without_segmentation(|| bind(V4), &mut receivers, &batch, &[100, 100]);
    assert_eq!(sent, (200, 40 * 3));
}

#[test]
fn with_segmentation_a_report_of_a_closed_port_amid_a_batch_costs_no_datagram() {
    let closed = closed_port();
    let mut receivers = [bind(V4)];
    let open = receivers[0].local_addr().unwrap();
    let batch: VecDeque<_> = (0..300)
        .map(|number| datagram(if number / 10 % 3 == 0 { closed } else { open }, number))
        .collect();
    let sent =
        with_and_without_segmentation(|| connected_to(closed), &mut receivers, &batch, &[200]);
    assert_eq!(sent, (300, 0));
}

#[test]
fn datagrams_longer_than_the_mtu_are_sent_by_themselves_and_the_rest_as_before() {
    let lab = fairlane_netlab::cable(1_500);
    let Some((near, far)) = fairlane_netlab::or_skip("longer than the MTU", lab) else {
        return;
    };
    near.add_address("192.0.2.1".parse().unwrap(), 24).unwrap();
    far.add_address("192.0.2.2".parse().unwrap(), 24).unwrap();
    let bind_in = |link: &fairlane_netlab::Link, addr: &str| {
        let addr = addr.parse().unwrap();
        link.namespace()
            .run(|| UdpBackend::<Datagram>::bind(addr))
            .unwrap()
    };
    let mut receivers = [bind_in(&far, "192.0.2.2:0")];
    receivers[0].set_receive_buffer(1 << 22).unwrap();
    let peer = receivers[0].local_addr().unwrap();
    let batch: VecDeque<_> = (0..60)
        .map(|number| of_length(peer, number, [1_472, 1_473, 3_000][number / 10 % 3]))
        .collect();
    let sender = || bind_in(&near, "192.0.2.1:0");
    let sent = with_and_without_segmentation(sender, &mut receivers, &batch, &[60]);
    assert_eq!(sent, (60, 0));
}

#[test]
fn a_clone_segments_as_the_socket_it_was_made_of() {
    let mut socket = bind(V4);
    for wanted in [false, true] {
        assert_eq!(socket.set_segmentation(wanted), wanted);
        assert_eq!(socket.try_clone().unwrap().is_segmenting(), wanted);
    }
}

#[test]
fn a_tiny_send_buffer_loses_nothing() {
    let (mut sender, mut receiver) = (bind(V4), bind(V4));
    let granted = sender.set_send_buffer(1).unwrap();
    let peer = receiver.local_addr().unwrap();
    let mut batch = numbered(peer, 0..100);
    let deadline = Instant::now() + PATIENCE;
    let mut accepted = 0;
    while !batch.is_empty() && Instant::now() < deadline {
        let left = batch.len();
        let count = sender.transmit(&mut batch).unwrap();
        accepted += count;
        assert_eq!(batch.len(), left - count);
    }
    assert_eq!((accepted, sender.refused(), batch.len()), (100, 0, 0));
    assert!(granted > 0);
    let arrived = collect(&mut receiver, 100);
    assert!(arrived.is_sorted_by_key(|datagram| datagram.bytes.clone()));
}

#[test]
fn what_loopback_has_taken_is_soon_no_longer_in_flight() {
    let (mut sender, receiver) = (bind(V4), bind(V4));
    sender
        .transmit(&mut numbered(receiver.local_addr().unwrap(), 0..10))
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while sender.in_flight().unwrap() > 0 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn buffers_grow_to_what_the_system_allows_and_an_immense_request_is_cut() {
    let socket = bind(V4);
    for set in [UdpBackend::set_receive_buffer, UdpBackend::set_send_buffer] {
        let small = set(&socket, 20_000).unwrap();
        assert!(small >= 20_000);
        let large = set(&socket, usize::MAX).unwrap();
        assert!(large > small);
    }
}

#[test]
fn waiting_gives_up_after_the_timeout() {
    let sockets = [bind(V4), bind(V4)];
    let started = Instant::now();
    let timeout = Duration::from_millis(20);
    assert_eq!(
        Waiter::new()
            .wait_readable(&sockets, timeout)
            .unwrap()
            .count(),
        0
    );
    assert!(started.elapsed() >= timeout);
}

#[test]
fn waiting_names_the_sockets_that_are_readable_and_no_others() {
    let mut sender = bind(V4);
    let sockets: [_; 70] = std::array::from_fn(|_| bind(V4));
    let mut batch: VecDeque<_> = [69, 3, 0]
        .map(|index: usize| datagram(sockets[index].local_addr().unwrap(), 0))
        .into();
    sender.transmit(&mut batch).unwrap();

    let mut waiter = Waiter::new();
    let deadline = Instant::now() + PATIENCE;
    while waiter.wait_readable(&sockets, PATIENCE).unwrap().len() < 3 {
        assert!(Instant::now() < deadline);
    }
    let ready = waiter.wait_readable(&sockets, Duration::ZERO).unwrap();
    assert_eq!(ready.collect::<Vec<_>>(), [0, 3, 69]);
}

#[test]
fn a_waiter_serves_another_set_of_sockets_each_time() {
    let (mut sender, receiver) = (bind(V4), bind(V4));
    sender
        .transmit(&mut numbered(receiver.local_addr().unwrap(), 0..1))
        .unwrap();
    let quiet = bind(V4);
    let mut waiter = Waiter::new();
    let several = [quiet.as_fd(), receiver.as_fd(), quiet.as_fd()];
    assert!(waiter.wait_readable(&several, PATIENCE).unwrap().eq([1]));
    assert!(
        waiter
            .wait_readable(&[&receiver], PATIENCE)
            .unwrap()
            .eq([0])
    );
    assert_eq!(
        waiter
            .wait_readable(&[&quiet], Duration::ZERO)
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn the_longest_timeout_is_accepted() {
    let (mut sender, receiver) = (bind(V4), bind(V4));
    sender
        .transmit(&mut numbered(receiver.local_addr().unwrap(), 0..1))
        .unwrap();
    let mut waiter = Waiter::new();
    assert_eq!(
        waiter
            .wait_readable(&[&receiver], Duration::MAX)
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_backend_may_move_to_another_thread_whatever_it_sends() {
    fn assert_send<T: Send>() {}
    struct Local(#[allow(dead_code)] std::rc::Rc<()>);
    impl fairlane_io::Frame for Local {
        fn bytes(&self) -> &[u8] {
            &[]
        }
        fn peer(&self) -> SocketAddr {
            unreachable!()
        }
    }
    assert_send::<UdpBackend<Local>>();
}
