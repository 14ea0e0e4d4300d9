//! Early drop at several sockets of an interface: at all of them, or where one refuses at none.

use std::thread::sleep;
use std::time::Instant;

use fairlane_netlab::{Link, cable, or_skip, skip};

use super::*;
use crate::early::{Class, Rules};
use crate::{EarlyDrop, Umem, XdpBackend, XdpOptions};

const FLOWS: u64 = 64;
const PATIENCE: Duration = Duration::from_secs(20);
/// No frame arrives after it.
const SILENCE: Duration = Duration::from_millis(100);

/// Sockets that receive on an interface, and a sender to it.
struct Sockets {
    group: Vec<PacketBackend>,
    sender: PacketBackend,
}

impl Sockets {
    /// One of the sockets refuses programs from now on.
    fn lock(&self, number: usize) {
        let (socket, on): (_, libc::c_int) = (self.group[number].as_fd(), 1);
        sys::set_option(socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, on).unwrap();
    }

    /// Sends a datagram of each flow, of which `expected` pass, and returns the number received by
    /// each socket.
    fn hear(&mut self, expected: u64) -> Vec<u64> {
        let datagram = |flow: u16| {
            let mut frame = vec![0xff; 6];
            frame.extend([2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46]);
            frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
            frame.extend([(20_000 + flow).to_be_bytes(), [0, 9]].concat());
            frame.extend([0, 26]);
            frame.resize(60, 0);
            frame
        };
        let mut batch: VecDeque<_> = (0..FLOWS as u16).map(datagram).collect();
        while !batch.is_empty() {
            self.sender.transmit(&mut batch).unwrap();
        }
        let mut heard = vec![0; self.group.len()];
        let begun = Instant::now();
        while heard.iter().sum::<u64>() < expected && begun.elapsed() < PATIENCE {
            self.receive(&mut heard);
        }
        sleep(SILENCE);
        self.receive(&mut heard);
        assert_eq!(heard.iter().sum::<u64>(), expected, "{heard:?}");
        heard
    }

    fn receive(&mut self, heard: &mut [u64]) {
        for (one, heard) in self.group.iter_mut().zip(heard) {
            let mut frames = Vec::new();
            one.receive(&mut frames, usize::MAX).unwrap();
            *heard += frames.len() as u64;
            assert_eq!(one.lost().unwrap(), 0);
        }
    }
}

/// Tables by which all that arrives is dropped, once it is put.
fn dropping() -> io::Result<EarlyDrop> {
    let class = Class {
        flows: None,
        first: 0,
        most: 1,
        longest: u32::MAX,
    };
    let early = EarlyDrop::new(&Rules {
        rules: Default::default(),
        default: 0,
        follows_fragments: false,
        classes: vec![class],
    })?;
    early.start();
    early.no_room(0, || None);
    Ok(early)
}

/// Waits until `frames` frames have been dropped.
fn has_dropped(early: &EarlyDrop, frames: u64) {
    let begun = Instant::now();
    while early.dropped(0).frames < frames && begun.elapsed() < PATIENCE {
        sleep(SILENCE / 10);
    }
    assert_eq!(early.dropped(0).frames, frames);
}

/// The ends of a cable, and such tables; none, after saying that `test` is skipped.
fn set_up(test: &str) -> Option<(Link, Link, EarlyDrop)> {
    let (near, far) = or_skip(test, cable(1_500))?;
    match dropping() {
        Ok(former) => Some((near, far, former)),
        Err(error) => {
            skip(test, error);
            None
        }
    }
}

#[test]
fn what_is_dropped_early_is_at_all_sockets_of_a_group_also_where_one_refuses_other_tables() {
    let Some((near, far, former)) = set_up("early drop at sockets of a group") else {
        return;
    };
    let prompt = Options {
        prompt: true,
        ring: 1 << 20,
        ..Options::default()
    };
    let open = || PacketBackend::open(near.name(), &prompt).unwrap();
    let sender = near.namespace().run(open);
    let open = || PacketBackend::open_group(far.name(), &prompt, 2).unwrap();
    let mut sockets = Sockets {
        group: far.namespace().run(open),
        sender,
    };
    for stands in [true, false] {
        let gate = Gate::of_all(sockets.group.iter().map(PacketBackend::gate));
        let heard = sockets.hear(FLOWS);
        assert!(heard.iter().all(|&frames| frames > 0), "{heard:?}");
        if stands {
            gate.put(&former).unwrap();
            sockets.hear(0);
            has_dropped(&former, FLOWS);
        }
        sockets.lock(1);
        let other = dropping().unwrap();
        let refused = gate.put(&other).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        // By the former tables, or by none.
        match stands {
            true => sockets.hear(0),
            false => sockets.hear(FLOWS),
        };
        has_dropped(&former, 2 * FLOWS);
        has_dropped(&other, 0);
        sockets.group = far.namespace().run(open);
    }
    // A stopped socket stays stopped when the tables change.
    let gate = Gate::of_all(sockets.group.iter().map(PacketBackend::gate));
    let deaf = |one: &PacketBackend| one.hear(false);
    sockets.group.iter().try_for_each(deaf).unwrap();
    former.stop();
    gate.put(&former).unwrap();
    sockets.hear(0);
}

#[test]
fn an_interface_drops_by_the_tables_that_it_had_where_a_socket_behind_it_refuses_others() {
    let Some((near, far, former)) = set_up("early drop at an interface and a socket") else {
        return;
    };
    let umem = Umem::new(1 << 12, 2_048).unwrap();
    let open = |link: &Link| {
        let open = || PacketBackend::open(link.name(), &Options::default()).unwrap();
        link.namespace().run(open)
    };
    let mut sockets = Sockets {
        group: vec![open(&far)],
        sender: open(&near),
    };
    let bind = || XdpBackend::bind_all(&umem, far.name(), &XdpOptions::default()).unwrap();
    let before = far.namespace().run(bind);
    before.gate().put(&former).unwrap();
    sockets.lock(0);
    let other = dropping().unwrap();
    let both = Gate::of_all([before.gate(), sockets.group[0].gate()]);
    let refused = both.put(&other).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    sockets.hear(0);
    has_dropped(&former, FLOWS);
    has_dropped(&other, 0);
}
