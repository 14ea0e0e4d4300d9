//! Frames that cannot be taken, and memory without free ones.

use std::collections::VecDeque;
use std::time::Instant;

use fairlane_io::{Backend, PacketBackend, Umem, XdpFrame, XdpOptions, packet};
use fairlane_netlab::{cable, or_skip};

use crate::rig::*;

#[test]
fn a_frame_that_the_device_would_not_take_is_refused_and_the_rest_goes_on() {
    for mode in MODES {
        let Some(mut lab) = lab("refused frames", &options(mode)) else {
            return;
        };
        let tagged = |length| {
            let mut bytes = packet(0, length);
            bytes[12..14].copy_from_slice(&[0x81, 0x00]);
            bytes
        };
        let mut batch: VecDeque<_> = [
            packet(0, 1_515),
            packet(1, 1_514),
            tagged(1_519),
            tagged(1_518),
            vec![0; 13],
            packet(2, 20),
        ]
        .iter()
        .map(|bytes| lab.umem.frame_from(bytes).unwrap())
        .collect();
        assert_eq!(lab.near.transmit(&mut batch).unwrap(), 3);
        assert_eq!((batch.len(), lab.near.refused()), (0, 3));
        let came = collect(&mut lab.far, 3);
        let lengths: Vec<_> = came.iter().map(XdpFrame::len).collect();
        assert_eq!(lengths, [1_514, 1_518, 20]);
    }
}

#[test]
fn a_frame_of_another_memory_is_sent_as_a_copy() {
    let Some(mut lab) = lab("another memory", &XdpOptions::default()) else {
        return;
    };
    let other = Umem::new(8, 4_096).unwrap();
    let mut batch: VecDeque<_> = (0..8)
        .map(|number| other.frame_from(&packet(number, 300)).unwrap())
        .collect();
    assert!(other.frame_from(&[0; 60]).is_none(), "all are taken");
    assert_eq!(lab.near.transmit(&mut batch).unwrap(), 8);
    assert_eq!(other.free_frames(), 8);
    for (expected, frame) in (0..).zip(collect(&mut lab.far, 8)) {
        assert_eq!(number(frame.bytes()), expected);
    }
}

#[test]
fn what_arrives_while_no_frame_is_free_is_counted_and_reception_goes_on() {
    let name = "no free frame";
    let Some((near, far)) = or_skip(name, cable(1_500)) else {
        return;
    };
    let options = XdpOptions {
        rx_ring: 64,
        ..XdpOptions::default()
    };
    let plenty = Umem::new(1_024, 2_048).unwrap();
    let scarce = Umem::new(64, 2_048).unwrap();
    let mut near = bind(&plenty, &near, &options).unwrap();
    let mut far = bind(&scarce, &far, &options).unwrap();
    let mut batch = VecDeque::new();
    top_up(&mut batch, &plenty, &mut 0, 64);
    send(&mut near, &mut batch);
    let held = collect(&mut far, 64);
    top_up(&mut batch, &plenty, &mut 0, 10);
    send(&mut near, &mut batch);
    let patience = Instant::now() + PATIENCE;
    while far.dropped().unwrap() < 10 {
        assert_eq!(far.receive(&mut Vec::new(), 1).unwrap(), 0);
        assert!(Instant::now() < patience);
    }
    drop(held);
    far.receive(&mut Vec::new(), 1).unwrap();
    top_up(&mut batch, &plenty, &mut 0, 64);
    send(&mut near, &mut batch);
    assert_eq!(collect(&mut far, 64).len(), 64);
    assert_eq!(far.dropped().unwrap(), 10);
}

#[test]
fn a_backend_keeps_no_more_frames_to_receive_into_than_its_ring_has_places() {
    let options = XdpOptions {
        rx_ring: 64,
        ..XdpOptions::default()
    };
    let Some(mut lab) = lab("frames kept", &options) else {
        return;
    };
    let mut batch = VecDeque::new();
    top_up(&mut batch, &lab.umem, &mut 0, 64);
    send(&mut lab.near, &mut batch);
    let held = collect(&mut lab.far, 32);
    let kept = lab.umem.frames() - lab.umem.free_frames() - held.len() as u32;
    assert_eq!(kept, at_rest(2, &options));
}

#[test]
fn what_is_not_heard_goes_on_to_the_kernel_and_what_is_heard_does_not() {
    for mode in MODES {
        let Some((near, far)) = or_skip("a deaf backend", cable(1_500)) else {
            return;
        };
        let umem = Umem::new(8_192, 2_048).unwrap();
        let deaf = XdpOptions {
            deaf: true,
            ..options(mode)
        };
        let mut hears = bind(&umem, &far, &deaf).unwrap();
        let mut near = bind(&umem, &near, &options(mode)).unwrap();
        let kernel = far
            .namespace()
            .run(|| PacketBackend::<Vec<u8>>::open(far.name(), &packet::Options::default()));
        let mut kernel = kernel.unwrap();
        let mut batch = VecDeque::new();
        let mut next = 0;
        for hear in [None, Some(true), Some(false)] {
            if let Some(anything) = hear {
                hears.hear(anything).unwrap();
            }
            let end = next + 20;
            top_up(&mut batch, &umem, &mut next, end);
            send(&mut near, &mut batch);
            let begun = Instant::now();
            let (mut to_kernel, mut here) = (Vec::new(), Vec::new());
            while to_kernel.len() + here.len() < 20 {
                kernel.receive(&mut to_kernel, 20).unwrap();
                hears.receive(&mut here, 20).unwrap();
                assert!(begun.elapsed() < PATIENCE, "{mode}: some are lost");
            }
            let expected = if hear == Some(true) { 20 } else { 0 };
            assert_eq!(here.len(), expected, "{mode}, {hear:?}");
        }
    }
}
