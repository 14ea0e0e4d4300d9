//! The threads that receive, schedule and transmit.

use fairlane_config::Site;

use crate::refusals::refuses;

/// Returns a site with these interfaces and these keys of `[workers]`.
fn with(interfaces: &str, keys: &str) -> String {
    format!(
        "[interfaces]\noutside = 'b'\n{interfaces}\n[workers]\n{keys}\n[[link]]\nname = 'up'\nrate = '40mbit'\n"
    )
}

const TWO: &str = "inside = 'a'";

#[test]
fn workers_that_can_be() {
    for sound in [
        "",
        "receive = 1",
        "receive = 16",
        "receive = 'auto'",
        "cores = [0, 7]",
        "cores = [3, 3]",
        "receive = 2\ncores = [0, 1, 2, 3]",
        "arbiters = 1",
        "arbiters = 2",
        "arbiters = 'auto'",
        "transmit = 0",
        "transmit = 16",
        "transmit = 'auto'",
        "transmit = 2\ncores = [0, 1, 2, 3, 4, 5]",
        "receive = 2\ntransmit = 1\ncores = [0, 1, 2, 3, 0, 1]",
    ] {
        refuses(&with(TWO, sound), &[]);
    }
    for sound in ["cores = [0]", "arbiters = 1", "arbiters = 'auto'"] {
        refuses(&with("tap = 't'", sound), &[]);
    }
    refuses(&with("inside = 'a'\nbackend = 'xdp'", "receive = 2"), &[]);
}

#[test]
fn arbiters_that_cannot_be() {
    refuses(
        &with(TWO, "arbiters = 3"),
        &["5:12: arbiters 3: threads that decide, a number from 1 to 2, or \"auto\""],
    );
    refuses(
        &with("tap = 't'", "arbiters = 2"),
        &[
            "5:12: arbiters 2: a thread for each link needs threads that receive on both sides: name inside in \
             [interfaces], or leave out 'arbiters'",
        ],
    );
}

#[test]
fn workers_that_cannot_be() {
    for (receive, shown) in [("17", "17"), ("0", "0"), ("-1", "-1"), ("'all'", "all")] {
        let sentence = format!(
            "5:11: receive {shown}: threads at each interface, a number from 1 to 16, or \"auto\""
        );
        refuses(
            &with(TWO, &format!("receive = {receive}")),
            &[sentence.as_str()],
        );
    }
    refuses(
        &with(TWO, "receive = 2\ncores = [0, 1]"),
        &["6:9: cores: 2 named, and 4 receive: name a core for each of them, or leave it out"],
    );
    refuses(
        &with(TWO, "cores = [0]"),
        &["5:9: cores: 1 named, and 2 receive: name a core for each of them, or leave it out"],
    );
    refuses(
        &with(TWO, "cores = [0, -1]"),
        &["5:9: cores: a core is a whole number from 0 to 65535"],
    );
}

#[test]
fn cores_are_those_of_threads_that_receive_and_then_of_those_that_transmit() {
    let workers = |near: &str, keys: &str| {
        let text = format!(
            "[interfaces]\noutside = 'b'\n{near}\n[workers]\n{keys}\n[[link]]\nname = 'up'\nrate = '40mbit'\n"
        );
        let workers = Site::parse(&text, "site.toml").unwrap().workers.unwrap();
        (workers.receive, workers.transmit, workers.cores.len())
    };
    let two = "inside = 'a'";
    for (near, keys, found) in [
        (two, "", (None, Some(0), 0)),
        (two, "transmit = 1", (None, Some(1), 0)),
        (two, "transmit = 'auto'", (None, None, 0)),
        (two, "receive = 'auto'\ntransmit = 2", (None, Some(2), 0)),
        (two, "cores = [0, 1, 2, 3]", (Some(2), Some(0), 4)),
        (
            two,
            "transmit = 1\ncores = [0, 1, 2, 3]",
            (Some(1), Some(1), 4),
        ),
        (
            "tap = 't'",
            "transmit = 1\ncores = [0, 1, 2]",
            (Some(2), Some(1), 3),
        ),
    ] {
        assert_eq!(workers(near, keys), found, "{near}, {keys}");
    }
}

#[test]
fn transmit_workers_that_cannot_be() {
    for (transmit, shown) in [("17", "17"), ("-1", "-1"), ("'all'", "all")] {
        let sentence = format!(
            "5:12: transmit {shown}: threads at each interface, a number from 0 to 16, or \"auto\""
        );
        refuses(
            &with(TWO, &format!("transmit = {transmit}")),
            &[sentence.as_str()],
        );
    }
    refuses(
        &with(TWO, "receive = 1\ntransmit = 2\ncores = [0, 1]"),
        &[
            "7:9: cores: 2 named, and 2 receive and 4 transmit: name a core for each of them, or leave it out",
        ],
    );
    // At least one thread receives.
    refuses(
        &with(TWO, "transmit = 1\ncores = [0, 1]"),
        &[
            "6:9: cores: 2 named, and 2 receive and 2 transmit: name a core for each of them, or leave it out",
        ],
    );
    refuses(
        &with(TWO, "transmit = 'auto'\ncores = [0, 1]"),
        &[
            "6:9: cores: there is one for each thread, and how many transmit is left to the machine: say how many, \
           or leave out cores",
        ],
    );
}
