//! Compares frames that are retransmitted without their checksums with those of the kernel's own bridge.
//!
//! ```text
//! host ─── inside | bridge | outside ─── far
//! near ─── here   |  ours  | away ────── beyond
//! ```

use std::collections::VecDeque;

use fairlane_netlab::{LabError, Link, Namespace, cable, or_skip, veth};

use super::like_kernel::{Lab, collect, listen, of_all_kinds, sender};
use super::*;
use crate::KeptBytes;
use crate::checksum::unsummed;
use crate::segment::whole::{Ip, Transport, Whole};

/// The links of our own way.
struct Ours {
    near: Link,
    here: Link,
    away: Link,
    beyond: Link,
}

impl Ours {
    fn new() -> Result<Ours, LabError> {
        let middle = Namespace::new()?;
        let (here, near) = veth((&middle, "here"), (&Namespace::new()?, "near"), 1_500)?;
        let (away, beyond) = veth((&middle, "away"), (&Namespace::new()?, "beyond"), 1_500)?;
        let ours = Ours {
            near,
            here,
            away,
            beyond,
        };
        let links = [&ours.near, &ours.here, &ours.away, &ours.beyond];
        links.iter().try_for_each(|link| link.up())?;
        links.iter().try_for_each(|link| link.wait_for_carrier())?;
        Ok(ours)
    }
}

/// Sends each frame along both paths, and compares the results. On our path, all or (with `none`) no
/// frames lack their checksums at the end.
fn compare(lab: &Lab, ours: &Ours, wholes: &[Whole], none: bool) {
    let [by_bridge, by_us] = [&lab.host, &ours.near].map(sender);
    let mut far: PacketBackend = listen(&lab.far, true);
    let [mut here, mut away, mut beyond] =
        [&ours.here, &ours.away, &ours.beyond].map(|link| listen::<KeptBytes>(link, true));
    for whole in wholes {
        let (header, frame) = whole.made();
        let batch = VecDeque::from([frame]);
        let count = whole.frames();
        let mut attempt = || {
            for socket in [&by_bridge, &by_us] {
                let sent = packet::send_with(socket.as_fd(), &batch, 1, |_| header);
                assert_eq!(sent.unwrap(), 1, "{whole:?}");
            }
            let mut batch = VecDeque::from(collect(&mut here, count, 7));
            while !batch.is_empty() {
                away.transmit(&mut batch).unwrap();
            }
            let frames = collect(&mut far, count, usize::MAX);
            (frames, collect(&mut beyond, count, usize::MAX))
        };
        // The kernel itself drops frames on their way once a thousand are queued.
        let mut came = (0..10).map(|_| attempt());
        let came = came.find(|(one, other)| one.len() == count && other.len() == count);
        let (kernels, ours) = came.unwrap_or_else(|| panic!("not {count} of {whole:?}"));
        for (number, (mut ours, kernels)) in ours.into_iter().zip(kernels).enumerate() {
            assert_eq!(ours.lacks().is_none(), none, "frame {number} of {whole:?}");
            ours.complete();
            assert!(
                *ours == *kernels,
                "frame {number} of {whole:?}:\n{ours:?}\n{kernels:?}"
            );
        }
    }
    assert_eq!(away.refused(), 0);
}

#[test]
fn what_lacks_its_checksum_is_completed_as_what_the_kernels_bridge_sends() {
    let labs = Lab::new().and_then(|lab| Ok((lab, Ours::new()?)));
    let Some((lab, ours)) = or_skip("frames that lack their checksums", labs) else {
        return;
    };
    let wholes = of_all_kinds(100);
    assert!(wholes.iter().any(|whole| whole.size.is_none()));
    // The cable carries them as they are; and where it is not to, the kernel sums.
    compare(&lab, &ours, &wholes, false);
    ours.away.turn_offloads_off().unwrap();
    compare(&lab, &ours, &wholes, true);
}

#[test]
fn frames_that_lack_their_checksums_and_others_leave_in_their_order() {
    let Some((near, far)) = or_skip("frames of both kinds", cable(1_500)) else {
        return;
    };
    const FRAMES: u32 = 2_000;
    let made = |number: u32| Whole {
        tags: Vec::new(),
        ip: Ip::Six {
            class: 0,
            extensions: Vec::new(),
        },
        transport: Transport::Udp,
        payload: number.to_be_bytes().repeat(10),
        size: None,
    };
    let lacks = |number: u32| (number / 70).is_multiple_of(2) || number.is_multiple_of(13);
    let mut frames = (0..FRAMES).map(|number| {
        let (_, mut frame) = made(number).made();
        let checksum = unsummed(&frame).expect("it shows");
        if lacks(number) {
            return KeptBytes::lacking(frame, checksum);
        }
        checksum.complete(&mut frame);
        frame.into()
    });
    let [mut near, mut far] = [&near, &far].map(|link| listen::<KeptBytes>(link, true));
    let (mut batch, mut length) = (VecDeque::new(), 0);
    loop {
        length = length % 90 + 7;
        batch.extend(frames.by_ref().take(length));
        if batch.is_empty() {
            break;
        }
        near.transmit(&mut batch).unwrap();
    }
    let came = collect(&mut far, FRAMES as usize, usize::MAX);
    assert_eq!(came.len(), FRAMES as usize);
    for (number, mut came) in (0..).zip(came) {
        came.complete();
        let (_, mut frame) = made(number).made();
        unsummed(&frame).unwrap().complete(&mut frame);
        assert!(*came == *frame, "{number}: {came:?}");
    }
    assert_eq!(near.refused(), 0);
}
