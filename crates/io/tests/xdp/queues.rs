//! Interfaces with several queues.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, Budget, Umem, Waiter, XdpBackend, XdpMode, XdpOptions, interface};
use fairlane_netlab::{Link, cable_with_queues, or_skip};

use crate::rig::*;

const QUEUES: u32 = 4;

/// Small rings, so that they fill.
fn small(mode: XdpMode) -> XdpOptions {
    XdpOptions {
        rx_ring: 256,
        tx_ring: 64,
        ..options(mode)
    }
}

fn bind_all(umem: &Umem, link: &Link, options: &XdpOptions) -> XdpBackend {
    let bound = link
        .namespace()
        .run(|| XdpBackend::bind_all(umem, link.name(), options));
    bound.unwrap()
}

/// Returns a backend on each queue: what one of them sends arrives at the same queue of the other
/// end.
fn one_each(umem: &Umem, link: &Link, options: &XdpOptions) -> Vec<XdpBackend> {
    let bind = |queue| {
        link.namespace()
            .run(|| XdpBackend::bind(umem, link.name(), queue, options))
    };
    (0..QUEUES).map(|queue| bind(queue).unwrap()).collect()
}

/// Waits until all frames of the memory but those posted are free.
fn all_free(umem: &Umem, posted: u32, mut turn: impl FnMut()) {
    let patience = Instant::now() + PATIENCE;
    while umem.free_frames() < umem.frames() - posted {
        turn();
        assert!(Instant::now() < patience, "{umem:?}");
    }
}

#[test]
fn frames_of_all_queues_pass_between_two_interfaces_each_once_and_in_order_by_queue() {
    const FRAMES: u32 = 20_000;
    for mode in MODES {
        let name = "a forwarder over cables of four queues";
        let Some((source, left)) = or_skip(name, cable_with_queues(1_500, QUEUES)) else {
            return;
        };
        let Some((right, sink)) = or_skip(name, cable_with_queues(1_500, QUEUES)) else {
            return;
        };
        let options = small(mode);
        let ends = Umem::new(8_192, 2_048).unwrap();
        let mut sources = one_each(&ends, &source, &options);
        let mut sink = bind_all(&ends, &sink, &options);
        let umem = Umem::new(8_192, 2_048).unwrap();
        let mut left = bind_all(&umem, &left, &options);
        let mut right = bind_all(&umem, &right, &options);
        assert_eq!((left.queues(), left.mode()), (QUEUES as usize, mode));

        // The flow of queue q has the numbers q, q + 4, q + 8, ..
        let mut next: Vec<u32> = (0..QUEUES).collect();
        let mut expected = next.clone();
        let mut batches: Vec<_> = (0..QUEUES).map(|_| VecDeque::new()).collect();
        let (mut passing, mut arrived, mut delivered) = (VecDeque::new(), Vec::new(), Vec::new());
        let (mut passed, mut came) = (0, 0);
        let patience = Instant::now() + 3 * PATIENCE;
        while came < FRAMES {
            for (queue, batch) in batches.iter_mut().enumerate() {
                while batch.len() < 16 && next[queue] < FRAMES {
                    let bytes = packet(next[queue], length(next[queue]));
                    let Some(frame) = ends.frame_from(&bytes) else {
                        break;
                    };
                    batch.push_back(frame);
                    next[queue] += QUEUES;
                }
                sources[queue].transmit(batch).unwrap();
            }
            passed += left.receive(&mut arrived, 64).unwrap();
            passing.extend(arrived.drain(..));
            right.transmit(&mut passing).unwrap();
            assert!(right.in_flight().unwrap() <= options.budget.as_bytes());
            sink.receive(&mut delivered, 64).unwrap();
            for frame in delivered.drain(..) {
                let number = number(frame.bytes());
                let queue = (number % QUEUES) as usize;
                assert_eq!(number, expected[queue], "{mode}, queue {queue}");
                expected[queue] += QUEUES;
                came += 1;
            }
            assert!(Instant::now() < patience, "{mode}: {came} came");
        }
        assert_eq!(passed, FRAMES as usize);
        assert_eq!(left.dropped().unwrap() + sink.dropped().unwrap(), 0);
        all_free(&umem, 2 * QUEUES * options.rx_ring, || {
            right.transmit(&mut passing).unwrap();
            left.receive(&mut arrived, 64).unwrap();
        });
        drop((left, right));
        assert_eq!(umem.free_frames(), umem.frames(), "{mode}");
    }
}

/// A cable with a backend on each queue at one end, one on all at the other.
struct Fan {
    umem: Umem,
    sources: Vec<XdpBackend>,
    far: XdpBackend,
    _links: (Link, Link),
}

fn fan(test: &str, options: &XdpOptions) -> Option<Fan> {
    let links = or_skip(test, cable_with_queues(1_500, QUEUES))?;
    let umem = Umem::new(8_192, 2_048).unwrap();
    Some(Fan {
        sources: one_each(&umem, &links.0, options),
        far: bind_all(&umem, &links.1, options),
        umem,
        _links: links,
    })
}

impl Fan {
    /// Sends `count` frames by this queue, whose numbers begin with it.
    fn send(&mut self, queue: u32, count: u32) {
        let frame = |number| self.umem.frame_from(&packet(number, 60)).unwrap();
        let mut batch = (0..count)
            .map(|place| frame((queue << 16) + place))
            .collect();
        send(&mut self.sources[queue as usize], &mut batch);
    }

    /// Returns how many frames of each queue one call receives.
    fn receive(&mut self, max: usize) -> [usize; QUEUES as usize] {
        let (mut arrived, mut counts) = (Vec::new(), [0; QUEUES as usize]);
        let count = self.far.receive(&mut arrived, max).unwrap();
        assert_eq!((count, self.far.arrivals().len()), (arrived.len(), count));
        for frame in arrived {
            counts[(number(frame.bytes()) >> 16) as usize] += 1;
        }
        counts
    }
}

#[test]
fn while_all_queues_have_more_each_gives_its_part_and_what_one_lacks_the_others_give() {
    let Some(mut fan) = fan("parts of queues", &small(XdpMode::Native)) else {
        return;
    };
    for queue in 0..QUEUES {
        fan.send(queue, 100);
    }
    assert!(fan.far.is_filling());
    assert_eq!(fan.receive(64), [16; 4]);
    assert_eq!(fan.receive(80), [20; 4]);
    // Fewer than there are queues: each in its turn.
    let turns: Vec<_> = (0..4).map(|_| fan.receive(1)).collect();
    for queue in 0..4 {
        assert_eq!(turns.iter().map(|turn| turn[queue]).sum::<usize>(), 1);
    }
    assert_eq!(fan.receive(1_000), [63; 4]);
    // One busy queue fills a call by itself, whichever queue's turn it is.
    for _ in 0..QUEUES {
        fan.send(2, 80);
        assert_eq!(fan.receive(64), [0, 0, 64, 0]);
        assert_eq!(fan.receive(64), [0, 0, 16, 0]);
    }
}

#[test]
fn whoever_waits_is_woken_by_a_frame_at_any_queue_and_by_none_that_was_taken() {
    for mode in MODES {
        let Some(mut fan) = fan("waiting for any queue", &small(mode)) else {
            return;
        };
        let mut waiter = Waiter::new();
        let mut is_readable = |fan: &Fan, timeout| {
            let readable = waiter.wait_readable(&[&fan.far], timeout).unwrap();
            readable.count() == 1
        };
        for queue in [3, 0, 2, 1, 1] {
            assert!(!is_readable(&fan, Duration::from_millis(20)), "{mode}");
            fan.send(queue, 1);
            assert!(is_readable(&fan, PATIENCE), "{mode}, queue {queue}");
            assert!(is_readable(&fan, Duration::ZERO), "it is still there");
            let mut expected = [0; 4];
            expected[queue as usize] = 1;
            assert_eq!(fan.receive(64), expected);
        }
    }
}

#[test]
fn what_finds_no_room_at_any_queue_is_counted() {
    let Some(mut fan) = fan("losses of queues", &small(XdpMode::Native)) else {
        return;
    };
    fan.send(1, 256 + 10);
    fan.send(3, 256 + 20);
    let came: usize = fan.receive(1_000).iter().sum();
    assert_eq!(came as u64 + fan.far.dropped().unwrap(), 2 * 256 + 30);
    assert!(fan.far.dropped().unwrap() >= 30);
}

#[test]
fn a_queue_that_cannot_be_had_is_named_and_those_before_it_are_free_again() {
    for mode in MODES {
        let Some((near, _far)) = or_skip("a busy third queue", cable_with_queues(1_500, QUEUES))
        else {
            return;
        };
        let umem = Umem::new(8_192, 2_048).unwrap();
        let options = small(mode);
        let third = near
            .namespace()
            .run(|| XdpBackend::bind(&umem, "near", 2, &options))
            .unwrap();
        let error = near
            .namespace()
            .run(|| XdpBackend::bind_all(&umem, "near", &options))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        let sentence = error.to_string();
        let start = "queue 2 of interface near is busy: ";
        assert!(sentence.starts_with(start), "{sentence}");
        drop(third);
        assert_eq!(umem.free_frames(), umem.frames(), "{mode}");
        // At once, though the kernel closes the sockets some time later.
        let all = bind_all(&umem, &near, &options);
        assert_eq!(all.queues(), QUEUES as usize);
        drop(all);
        bind_all(&umem, &near, &options);
    }
}

#[test]
fn a_memory_has_sixty_four_sockets_and_one_more_is_refused_in_a_sentence() {
    let Some((near, far)) = or_skip("too many queues", cable_with_queues(1_500, 33)) else {
        return;
    };
    let count = |link: &Link| link.namespace().run(|| interface::rx_queues(link.name()));
    assert_eq!(count(&near).unwrap(), 33);
    let options = XdpOptions {
        rx_ring: 64,
        tx_ring: 64,
        budget: Budget::from_bytes(1_522),
        ..XdpOptions::default()
    };
    let umem = Umem::new(8_192, 2_048).unwrap();
    let near = bind_all(&umem, &near, &options);
    let error = far
        .namespace()
        .run(|| XdpBackend::bind_all(&umem, far.name(), &options).unwrap_err());
    assert_eq!(
        error.to_string(),
        "AF_XDP on queue 31 of interface far failed: 64 sockets have this memory already, the \
         most that can"
    );
    drop(near);
    assert_eq!(umem.free_frames(), umem.frames());
}
