//! Early drop removes only frames whose window is used up.

use std::io;

use fairlane_io::early::{Class, Dropped, EarlyDrop, Family, Pattern, Rules, WORDS};

/// Words of a UDP datagram from 10.0.0.1:port to 10.0.0.2:5000, and its frame.
fn datagram(port: u16) -> ([u64; WORDS], Vec<u8>) {
    let words = [
        u64::from(port) << 48 | 5_000 << 32 | 17 << 24 | 3,
        0x0a00_0001_0a00_0002,
        0,
        0,
        0,
    ];
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46];
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([port.to_be_bytes(), 5_000_u16.to_be_bytes()].concat());
    frame.resize(60, 0);
    (words, frame)
}

/// Port 1 is class 1, all else class 0. The flows of class 0 are its source ports, if it has any.
fn rules(flows: bool) -> Rules {
    let by_port = [0xffff << 48, 0, 0, 0, 0];
    let pattern = Pattern {
        mask: by_port,
        value: [1 << 48, 0, 0, 0, 0],
        source_port: (1, 1),
        destination_port: (0, u16::MAX),
    };
    let class = |flows: Option<_>| Class {
        first: if flows.is_some() { 2 } else { 32 },
        flows,
        most: 256,
        longest: u32::MAX,
    };
    Rules {
        rules: [vec![(pattern, 1)], Vec::new(), Vec::new()],
        default: 0,
        follows_fragments: false,
        classes: vec![class(flows.then_some([by_port; 3])), class(None)],
    }
}

fn early(test: &str, flows: bool) -> Option<EarlyDrop> {
    match EarlyDrop::new(&rules(flows)) {
        Ok(early) => Some(early),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fairlane_netlab::skip(test, error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns how many frames of this port pass before one is dropped, both where a socket is and
/// where an interface is, in turns.
fn pass(early: &EarlyDrop, port: u16, most: usize) -> usize {
    let (_, frame) = datagram(port);
    let trials = [false, true].map(|by_xdp| early.trial(by_xdp).unwrap());
    let passes = |&number: &usize| !trials[number % 2].drops(&frame).unwrap();
    (0..most).take_while(passes).count()
}

fn refuse(early: &EarlyDrop, class: u32, port: u16) {
    early.no_room(class, || Some((Family::V4, datagram(port).0)));
}

fn send(early: &EarlyDrop, class: u32, port: u16) {
    early.sent(class, || Some((Family::V4, datagram(port).0)));
}

#[test]
fn nothing_is_dropped_but_beyond_a_limit_under_overload() {
    let Some(early) = early("what is dropped early", false) else {
        return;
    };
    refuse(&early, 0, 7);
    assert!(!early.is_on());
    assert_eq!(pass(&early, 7, 100), 100, "there is no overload");
    early.start();
    assert!(early.is_on());
    assert_eq!(pass(&early, 7, 100), 100, "nobody was refused in it");
    assert!(!early.has_limits());
    refuse(&early, 0, 7);
    assert!(early.has_limits());
    assert_eq!(pass(&early, 7, 100), 32);
    assert_eq!(pass(&early, 8, 100), 0, "the class has one limit");
    assert_eq!(pass(&early, 1, 100), 100, "the other class has none");
    let dropped = Dropped {
        frames: 2,
        bytes: 120,
    };
    assert_eq!((early.dropped(0), early.total()), (dropped, 2));
    assert_eq!(early.dropped(1), Dropped::default());
    early.stop();
    assert!(!early.is_on() && !early.has_limits());
    assert_eq!(pass(&early, 7, 100), 100);
    early.start();
    assert_eq!(pass(&early, 7, 100), 100, "limits end with the overload");
    assert!(early.is_on() && !early.has_limits());
    // Earlier drops must not count for this epoch.
    early.renew();
    assert!(early.is_on() && !early.has_limits());
}

#[test]
fn a_window_is_as_large_as_what_is_sent_and_grows_by_an_eighth() {
    let Some(early) = early("windows of early drop", false) else {
        return;
    };
    early.start();
    refuse(&early, 0, 7);
    assert_eq!(pass(&early, 7, 100), 32);
    for _ in 0..16 {
        send(&early, 0, 7);
    }
    assert_eq!(pass(&early, 7, 100), 18);
    // A flow that is rejected again gets no further credit.
    refuse(&early, 0, 7);
    assert_eq!(pass(&early, 7, 100), 0);
    for _ in 0..10_000 {
        send(&early, 0, 7);
    }
    assert_eq!(pass(&early, 7, 1_000), 256, "no more than that at once");
}

#[test]
fn who_is_neither_refused_nor_dropped_for_two_epochs_has_no_limit() {
    let Some(early) = early("epochs of early drop", false) else {
        return;
    };
    early.start();
    refuse(&early, 0, 7);
    early.renew();
    assert_eq!(pass(&early, 7, 100), 32);
    refuse(&early, 0, 7);
    early.renew();
    assert_eq!(pass(&early, 7, 100), 0, "the same window");
    early.renew();
    assert_eq!(pass(&early, 7, 100), 0, "who goes on is kept out");
    early.renew();
    assert!(early.has_limits(), "nobody knows yet that it will end");
    early.renew();
    assert!(early.is_on() && !early.has_limits());
    assert_eq!(pass(&early, 7, 100), 100);
    early.renew();
    refuse(&early, 0, 7);
    assert_eq!(pass(&early, 7, 100), 32, "a new one");
    early.renew();
    assert!(early.has_limits());
}

#[test]
fn flows_have_limits_of_their_own() {
    let Some(early) = early("flows and early drop", true) else {
        return;
    };
    early.start();
    refuse(&early, 0, 7);
    assert_eq!(pass(&early, 7, 100), 2);
    // A few of them share the limit.
    let limited = (8..108).filter(|&port| pass(&early, port, 3) < 3).count();
    assert!(limited < 10, "{limited}");
    assert_eq!(early.dropped(0).frames, 1 + limited as u64);
}

#[test]
fn a_frame_beyond_its_limit_passes_for_each_probe() {
    let Some(early) = early("frames beyond a limit", false) else {
        return;
    };
    early.start();
    refuse(&early, 0, 7);
    assert_eq!(pass(&early, 7, 100), 32);
    early.probe();
    early.probe();
    assert_eq!(pass(&early, 7, 100), 1);
    assert_eq!(pass(&early, 7, 100), 0);
    assert_eq!(early.dropped(0).frames, 3);
}

/// Uses as many flow definitions as a file can name, and more rules than the program inspects, all
/// different: the program stays within the reach of its jumps, and the kernel loads it.
#[test]
fn the_longest_program_is_short_enough() {
    let bits = |number: u64| [!0 - number, !0 - number, !0, !1, !3];
    let rule = |number: u64| {
        let mask = bits(number);
        let pattern = Pattern {
            mask,
            value: [number << 32 & mask[0], 1 & mask[1], 2, 4, 8],
            source_port: (2, 60_000),
            destination_port: (3, 60_001),
        };
        (pattern, number as u32)
    };
    let class = |number: u64| Class {
        flows: Some([bits(number); 3]),
        first: 2,
        most: 16,
        longest: u32::MAX,
    };
    let all = Rules {
        rules: [(); 3].map(|()| (0..300).map(rule).collect()),
        default: 0,
        follows_fragments: false,
        classes: (0..300).map(class).collect(),
    };
    let early = match EarlyDrop::new(&all) {
        Ok(early) => early,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return fairlane_netlab::skip("the longest program", error);
        }
        Err(error) => panic!("{error}"),
    };
    for by_xdp in [false, true] {
        let trial = early.trial(by_xdp).unwrap();
        assert!(!trial.drops(&datagram(1).1).unwrap(), "no overload");
    }
}
