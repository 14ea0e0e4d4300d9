//! Checksums that a sender on the same machine has left undone.

use std::collections::VecDeque;
use std::fs;
use std::time::Instant;

use fairlane_io::checksum::unsummed;
use fairlane_io::packet::{Options, PacketFrame};
use fairlane_io::{Backend, KeptBytes, PacketBackend};
use fairlane_netlab::{Link, cable, or_skip};

use crate::rig::*;

/// Returns a frame of UDP with this number, whose checksum is left undone.
fn undone(number: u32) -> Vec<u8> {
    let length = length(number);
    let (ip, udp) = (length - 14, length - 34);
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend((ip as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0, 9]);
    frame.extend((udp as u16).to_be_bytes());
    // Of both addresses, the protocol and the length.
    let pseudo = 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + udp as u16;
    frame.extend(pseudo.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| (at as u32 ^ number) as u8));
    frame
}

/// Returns whether the kernel accepts a checksum request before a packet.
fn kernel_can_be_told() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map_while(|part| part.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    version >= (6, 11)
}

fn open(link: &Link) -> PacketBackend<KeptBytes> {
    let open = || PacketBackend::open(link.name(), &Options::default()).unwrap();
    link.namespace().run(open)
}

#[test]
fn what_was_left_undone_leaves_so_or_summed_where_it_is_to_be() {
    const FRAMES: u32 = 500;
    for ((mode, memory), offloads) in
        modes_and_memories().flat_map(|each| [(each, true), (each, false)])
    {
        let cables = cable(1_500).and_then(|one| Ok([one, cable(1_500)?]));
        let Some([(source, left), (right, sink)]) = or_skip("checksums left undone", cables) else {
            return;
        };
        if !offloads {
            right.turn_offloads_off().unwrap();
        }
        let umem = memory(4_096, 2_048).unwrap();
        let options = options(mode);
        let [mut left, mut right] =
            [&left, &right].map(|link| bind(&umem, link, &options).unwrap());
        let [mut source, mut sink] = [&source, &sink].map(open);
        // Every other is whole.
        let frames = (0..FRAMES).map(|number| {
            let mut frame = undone(number);
            let lacks = unsummed(&frame).expect("it shows");
            if number % 2 == 0 {
                return KeptBytes::lacking(frame, lacks);
            }
            lacks.complete(&mut frame);
            frame.into()
        });
        let mut batch: VecDeque<KeptBytes> = frames.collect();
        let (mut arrived, mut passing) = (Vec::new(), VecDeque::new());
        let mut came: Vec<KeptBytes> = Vec::new();
        let patience = Instant::now() + PATIENCE;
        while came.len() < FRAMES as usize {
            source.transmit(&mut batch).unwrap();
            left.receive(&mut arrived, 64).unwrap();
            arrived.iter_mut().for_each(|frame| frame.find_unsummed());
            passing.extend(arrived.drain(..));
            right.transmit(&mut passing).unwrap();
            sink.receive(&mut came, 64).unwrap();
            assert!(Instant::now() < patience, "{mode}: {} came", came.len());
        }
        for (number, mut frame) in (0..).zip(came) {
            let lacks = number % 2 == 0 && offloads && kernel_can_be_told();
            assert_eq!(frame.lacks().is_some(), lacks, "{mode}, {number}");
            let mut expected = undone(number);
            unsummed(&expected).unwrap().complete(&mut expected);
            frame.complete();
            assert!(
                *frame == expected,
                "{mode}, {number}:\n{frame:?}\n{expected:?}"
            );
        }
        // None is kept.
        let rest = umem.frames() - at_rest(2, &options);
        while umem.free_frames() < rest {
            right.transmit(&mut passing).unwrap();
            left.receive(&mut arrived, 64).unwrap();
            assert!(Instant::now() < patience, "{mode}: {umem:?}");
        }
    }
}
