//! Links that go down, lose their other end, or are removed.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::{Backend, XdpOptions};
use fairlane_netlab::{cable, or_skip};

use crate::rig::*;

#[test]
fn a_link_that_was_down_goes_on_where_it_was() {
    for mode in MODES {
        let Some(mut lab) = lab("a link down and up", &options(mode)) else {
            return;
        };
        let (mut next, mut came) = (0, 0);
        let mut batch = VecDeque::new();
        for round in 1..=5 {
            lab.near_link.down().unwrap();
            top_up(&mut batch, &lab.umem, &mut next, round * 64);
            for _ in 0..3 {
                lab.near.transmit(&mut batch).unwrap();
                assert_eq!(lab.near.receive(&mut Vec::new(), 1).unwrap(), 0);
                thread::sleep(Duration::from_millis(5));
            }
            lab.near_link.up().unwrap();
            send(&mut lab.near, &mut batch);
            for frame in collect(&mut lab.far, 64) {
                assert_eq!(number(frame.bytes()), came, "{mode}");
                came += 1;
            }
            // The other direction too.
            let mut back = VecDeque::from([lab.umem.frame_from(&packet(round, 99)).unwrap()]);
            send(&mut lab.far, &mut back);
            assert_eq!(number(collect(&mut lab.near, 1)[0].bytes()), round);
        }
    }
}

#[test]
fn what_a_link_has_left_in_its_ring_goes_out_when_it_is_up_though_nothing_more_is_sent() {
    for receives in [true, false] {
        let Some(mut lab) = lab("a ring left full", &XdpOptions::default()) else {
            return;
        };
        lab.near_link.down().unwrap();
        let mut batch = VecDeque::new();
        top_up(&mut batch, &lab.umem, &mut 0, 10);
        assert_eq!(lab.near.transmit(&mut batch).unwrap(), 10);
        assert_eq!(lab.near.go_on().unwrap(), lab.near.in_flight().unwrap());
        lab.near_link.up().unwrap();
        let (mut arrived, patience) = (Vec::new(), Instant::now() + PATIENCE);
        while arrived.len() < 10 {
            match receives {
                true => lab.near.receive(&mut Vec::new(), 1).map(drop).unwrap(),
                false => lab.near.go_on().map(drop).unwrap(),
            }
            lab.far.receive(&mut arrived, 10).unwrap();
            assert!(Instant::now() < patience, "{} came", arrived.len());
        }
        while lab.near.go_on().unwrap() > 0 {
            assert!(Instant::now() < patience, "the device is done");
        }
    }
}

#[test]
fn a_cable_without_its_other_end_up_loses_one_frame_and_keeps_the_rest() {
    for mode in MODES {
        let Some(mut lab) = lab("no carrier", &options(mode)) else {
            return;
        };
        lab.far_link.down().unwrap();
        let mut batch = VecDeque::new();
        top_up(&mut batch, &lab.umem, &mut 0, 64);
        for _ in 0..10 {
            lab.near.transmit(&mut batch).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        lab.far_link.up().unwrap();
        send(&mut lab.near, &mut batch);
        let came: Vec<_> = collect(&mut lab.far, 63)
            .iter()
            .map(|frame| number(frame.bytes()))
            .collect();
        assert!(came.is_sorted() && came[62] == 63, "{mode}: {came:?}");
    }
}

#[test]
fn an_interface_removed_while_it_runs_is_a_clear_error_and_the_others_go_on() {
    for mode in MODES {
        let Some(mut lab) = lab("an interface removed", &options(mode)) else {
            return;
        };
        let Some((third, fourth)) = or_skip("others", cable(1_500)) else {
            return;
        };
        let mut third = bind(&lab.umem, &third, &options(mode)).unwrap();
        let mut fourth = bind(&lab.umem, &fourth, &options(mode)).unwrap();

        let mut batch = VecDeque::new();
        top_up(&mut batch, &lab.umem, &mut 0, 40);
        send(&mut lab.near, &mut batch);
        lab.near_link.delete().unwrap();

        // Earlier arrivals are still there, and then the error, for sender and receiver.
        assert_eq!(collect(&mut lab.far, 40).len(), 40);
        top_up(&mut batch, &lab.umem, &mut 0, 10);
        let patience = Instant::now() + PATIENCE;
        let mut accepted = 0;
        let error = loop {
            match lab.near.transmit(&mut batch) {
                Ok(count) => accepted += count,
                Err(error) => break error,
            }
            assert!(Instant::now() < patience);
        };
        assert_eq!(error.kind(), ErrorKind::NetworkDown);
        assert!(
            error.to_string().starts_with("interface near was removed"),
            "{error}"
        );
        assert_eq!(accepted + batch.len(), 10);
        let error = loop {
            match lab.far.receive(&mut Vec::new(), 1) {
                Ok(count) => assert_eq!(count, 0),
                Err(error) => break error,
            }
            assert!(Instant::now() < patience);
        };
        assert!(
            error.to_string().starts_with("interface far was removed"),
            "{error}"
        );
        assert!(lab.near.in_flight().is_err());
        assert!(lab.near.receive(&mut Vec::new(), 1).is_err());
        assert!(lab.far.transmit(&mut batch).is_err());

        let mut batch = VecDeque::new();
        top_up(&mut batch, &lab.umem, &mut 0, 64);
        send(&mut third, &mut batch);
        assert_eq!(collect(&mut fourth, 64).len(), 64);
        drop((lab.near, lab.far, third, fourth));
        assert_eq!(lab.umem.free_frames(), lab.umem.frames(), "{mode}");
    }
}
