//! Frames that cannot be taken, and memory without free ones.

use std::collections::VecDeque;
use std::time::Instant;

use fairlane_io::{Backend, Umem, XdpFrame, XdpOptions};
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
