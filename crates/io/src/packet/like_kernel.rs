//! Compares the segments of this backend with those that the kernel's own bridge makes of the same
//! frames.
//!
//! ```text
//! host ─────── inside | bridge | outside ─────── far
//! whole frames   └ ours            └ leaves nothing to hardware: the kernel cuts
//! ```

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use fairlane_netlab::{LabError, Link, Namespace, bridge, or_skip, veth};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::*;
use crate::Waiter;
use crate::segment::whole::{Ip, Transport, Whole, wholes};
use crate::sys::interface::Joins;
use fairlane_wire::checksum::internet_sum;

pub(super) struct Lab {
    pub(super) host: Link,
    inside: Link,
    pub(super) far: Link,
    _bridge: Link,
}

impl Lab {
    pub(super) fn new() -> Result<Lab, LabError> {
        let middle = Namespace::new()?;
        let (inside, host) = veth((&middle, "inside"), (&Namespace::new()?, "host"), 1_500)?;
        let (outside, far) = veth((&middle, "outside"), (&Namespace::new()?, "far"), 1_500)?;
        outside.turn_offloads_off()?;
        for link in [&inside, &host, &outside, &far] {
            link.up()?;
        }
        let bridge = bridge(&middle, "bridge", &[&inside, &outside])?;
        for (number, link) in (1..).zip([&host, &far]) {
            link.wait_for_carrier()?;
            link.add_address(Ipv4Addr::new(10, 0, 0, number).into(), 24)?;
        }
        // No more on their way than the kernel has room for.
        far.namespace()
            .set_parameter("ipv4/tcp_rmem", "4096 131072 262144")?;
        Ok(Lab {
            host,
            inside,
            far,
            _bridge: bridge,
        })
    }
}

pub(super) fn listen<F: PacketFrame>(link: &Link, prompt: bool) -> PacketBackend<F> {
    let options = Options {
        ring: 32 << 20,
        prompt,
        promiscuous: true,
        ..Options::default()
    };
    let open = || PacketBackend::open(link.name(), &options).unwrap();
    link.namespace().run(open)
}

/// Receives until `count` frames are there, at most `room` at once, or no more arrive.
pub(super) fn collect<F: PacketFrame>(
    backend: &mut PacketBackend<F>,
    count: usize,
    room: usize,
) -> Vec<F> {
    let mut arrived = Vec::new();
    let mut waiter = Waiter::new();
    loop {
        let came = backend.receive(&mut arrived, room).unwrap();
        // The bridge has something to say of its own, to groups.
        arrived.retain(|frame: &F| frame.as_ref()[0] & 1 == 0);
        if arrived.len() >= count {
            break;
        }
        let grace = Duration::from_millis(200);
        if came == 0
            && waiter
                .wait_readable(&[&*backend], grace)
                .unwrap()
                .next()
                .is_none()
        {
            break;
        }
    }
    assert_eq!(
        (
            backend.discarded(),
            backend.uncut(),
            backend.lost().unwrap()
        ),
        (0, 0, 0)
    );
    arrived
}

/// Returns a socket by which frames leave that are yet to be cut.
pub(super) fn sender(link: &Link) -> OwnedFd {
    let socket = link.namespace().run(packet::open).unwrap();
    packet::leave_to_hardware(socket.as_fd()).unwrap();
    packet::bind(socket.as_fd(), link.index(), Hears::Nothing).unwrap();
    socket
}

/// Sends each frame, and compares the results of three paths: the kernel's, and both of ours.
fn compare(lab: &Lab, wholes: &[Whole]) {
    let socket = sender(&lab.host);
    let [mut kernel, mut prompt, mut blocks]: [PacketBackend; 3] = [
        listen(&lab.far, true),
        listen(&lab.inside, true),
        listen(&lab.inside, false),
    ];
    for whole in wholes {
        let (header, frame) = whole.made();
        let batch = VecDeque::from([frame]);
        let count = whole.frames();
        let mut attempt = || {
            let sent = packet::send_with(socket.as_fd(), &batch, 1, |_| header);
            assert!(sent.is_ok(), "{sent:?}: {whole:?}");
            [
                collect(&mut kernel, count, usize::MAX),
                collect(&mut prompt, count, 7),
                collect(&mut blocks, count, 64),
            ]
        };
        // The kernel itself drops frames on their way once a thousand are queued.
        let all_came = |ways: &[Vec<_>; 3]| ways.iter().all(|way| way.len() == count);
        let came = (0..10).map(|_| attempt()).find(all_came);
        let [kernel, prompt, blocks] = came.unwrap_or_else(|| panic!("not {count} of {whole:?}"));
        for ours in [prompt, blocks] {
            for (number, (ours, kernels)) in ours.iter().zip(&kernel).enumerate() {
                assert!(
                    ours == kernels,
                    "frame {number} of {whole:?}:\n{ours:?}\n{kernels:?}"
                );
            }
        }
    }
}

/// Frames of all kinds, among them such as only a test has.
pub(super) fn of_all_kinds(count: usize) -> Vec<Whole> {
    let mut runner = TestRunner::deterministic();
    // The kernel rejects a segmentation header for a frame that fits one segment, once it counts the
    // options.
    let strategy = wholes().prop_filter("one frame", |whole| {
        whole.size.is_none() || whole.frames() > 1
    });
    let mut wholes = || strategy.new_tree(&mut runner).unwrap().current();
    (0..count).map(|_| wholes()).collect()
}

#[test]
fn frames_of_all_kinds_are_cut_as_the_kernel_cuts_them() {
    let Some(lab) = or_skip("frames of all kinds", Lab::new()) else {
        return;
    };
    let wholes = of_all_kinds(400);
    assert!(wholes.iter().map(Whole::frames).sum::<usize>() > 4 * wholes.len());
    compare(&lab, &wholes);
}

/// Bytes of the longest IP packets that the kernel leaves uncut, in a frame with two tags
/// (`GSO_LEGACY_MAX_SIZE`).
const LONGEST: usize = 65_536 - 23;

/// The frames that a sender makes of a full window.
#[test]
fn the_longest_frames_are_cut_as_the_kernel_cuts_them() {
    let Some(lab) = or_skip("the longest frames", Lab::new()) else {
        return;
    };
    let made = |tags, ip, transport, payload: usize, size| Whole {
        tags,
        ip,
        transport,
        payload: (0..payload).map(|at| (at % 251) as u8).collect(),
        size: Some(size),
    };
    let four = || Ip::Four {
        tos: 2,
        number: 7,
        dont_fragment: true,
        options: Vec::new(),
    };
    let six = || Ip::Six {
        class: 2,
        extensions: Vec::new(),
    };
    let tcp = || Transport::Tcp {
        sequence: 1,
        flags: 0x19,
        options: vec![0x0101_080a, 3, 4],
    };
    let mut wholes = Vec::new();
    for tags in [vec![], vec![5], vec![5, 6]] {
        wholes.extend([
            made(tags.clone(), four(), tcp(), LONGEST - 52, 1_448),
            made(tags.clone(), six(), tcp(), LONGEST - 72, 1_428),
            made(tags.clone(), four(), Transport::Udp, LONGEST - 28, 1_472),
            made(tags, six(), Transport::Udp, LONGEST - 48, 1_452),
        ]);
    }
    // As small as Linux makes them.
    wholes.push(made(vec![], four(), tcp(), 30_000, 36));
    wholes
        .iter()
        .for_each(|whole| compare(&lab, std::slice::from_ref(whole)));
}

/// Returns a frame of TCP over IPv4 as it is cut from a whole with the number 0. The host counts, and
/// after its counter has wrapped to 0, only the kernel knows that the following frames are numbered.
fn unnumbered(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[18..20].fill(0);
    frame[24..26].fill(0);
    let sum = !internet_sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Megabytes over a connection through the bridge, which receives them in long frames.
fn compare_connection(lab: &Lab, prompt: bool) {
    let mut ears: [PacketBackend; 2] = [listen(&lab.far, true), listen(&lab.inside, prompt)];
    let mut uncut: PacketBackend = listen(&lab.inside, false);
    let listen = || TcpListener::bind("10.0.0.2:9").unwrap();
    let listener = lab.far.namespace().run(listen);
    let connect = || TcpStream::connect("10.0.0.2:9").unwrap();
    let mut stream = lab.host.namespace().run(connect);
    let sent = vec![0xa5; 3_000_000];
    thread::scope(|scope| {
        scope.spawn(|| {
            stream.write_all(&sent).unwrap();
            drop(stream);
        });
        let mut received = Vec::new();
        let mut stream = listener.accept().unwrap().0;
        stream.read_to_end(&mut received).unwrap();
        assert!(received == sent);
    });
    // All received frames are in the receivers' rings.
    let [kernels, ours] = ears
        .each_mut()
        .map(|ear| collect(ear, usize::MAX, usize::MAX));
    assert!(kernels.len() > 2_000);
    // Frames that the kernel lost after segmentation are only among ours, and frames that two
    // processors transmitted at a time may have been reordered.
    let mut rest = HashMap::new();
    for frame in &ours {
        *rest.entry(frame).or_insert(0) += 1;
    }
    let mut take = |frame: &Vec<u8>| {
        let left = rest.get_mut(frame).filter(|left| **left > 0);
        left.map(|left| *left -= 1)
    };
    for (number, frame) in kernels.iter().enumerate() {
        let taken = take(frame).or_else(|| take(&unnumbered(frame)));
        assert!(taken.is_some(), "frame {number}: {frame:?}");
    }
    let mut long = 0;
    uncut.ring.receive(usize::MAX, |arrival| {
        long += usize::from(arrival.offload.segments.is_some());
        1
    });
    assert!(long > 20, "{long} frames came uncut");
}

#[test]
fn a_connection_is_cut_as_the_kernel_cuts_it() {
    let Some(lab) = or_skip("a connection", Lab::new()) else {
        return;
    };
    for prompt in [true, false] {
        compare_connection(&lab, prompt);
    }
}

#[test]
fn what_the_kernel_has_joined_is_cut_as_the_kernel_cuts_it() {
    let Some(lab) = or_skip("a connection that is joined", Lab::new()) else {
        return;
    };
    lab.host.turn_offloads_off().unwrap();
    lab.inside.namespace().run(|| {
        let inside = Interface::find("inside").unwrap();
        inside.join_segments(Joins::Kernel, true).unwrap();
    });
    for prompt in [true, false] {
        compare_connection(&lab, prompt);
    }
}
