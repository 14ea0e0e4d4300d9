//! `fairlane run CONFIG`: an invalid run is rejected as a whole, in one sentence.

use std::fs;
use std::time::{Duration, Instant};

use crate::program::{self, Finished, fairlane, start};
use crate::site::{self, PATIENCE, Site, class, interfaces, link, wire};
use crate::site_control::until_reloads;
use fairlane_config::Workers;
use fairlane_io::{Hold, Umem, XdpBackend, XdpOptions};
use fairlane_netlab::Echo;
use fairlane_runtime::attach;
use rustix::thread::sched_getaffinity;

const LINK: &str = "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"10mbit\"\n";

#[track_caller]
fn refused(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert_eq!(finished.stdout, "", "{finished:?}");
    let lines: Vec<_> = finished.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "one sentence: {finished:?}");
    for word in words {
        assert!(lines[0].contains(word), "{word}: {}", lines[0]);
    }
}

fn run(config: &str) -> (Finished, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    fs::write(&file, config).unwrap();
    (fairlane(&["run", file.to_str().unwrap()]), folder)
}

#[test]
fn a_file_that_is_not_there_or_says_nothing_to_run_is_refused() {
    refused(
        &fairlane(&["run", "/nowhere/site.toml"]),
        &["/nowhere/site.toml", "No such file"],
    );
    let (finished, _folder) = run(LINK);
    refused(&finished, &["site.toml", "interfaces"]);
}

#[test]
fn a_contradiction_is_refused_with_its_place() {
    let (finished, _folder) = run(&[&interfaces("packet"), LINK, "rte = \"1mbit\"\n"].concat());
    refused(&finished, &["site.toml:9:1", "rte", "rate"]);
}

#[test]
fn interface_with_the_hosts_addresses_is_refused() {
    let alone =
        "[interfaces]\noutside = \"lo\"\nbackend = \"xdp\"\n[attach]\nsocket = \"/tmp/x.sock\"\n";
    let (finished, _folder) = run(&[alone, LINK].concat());
    refused(&finished, &["xdp", "lo", "packet"]);
}

#[test]
fn more_packets_than_xdp_has_memory_for_are_refused_before_anything_is_opened() {
    let more = "limit = { packets = 200000 }\n";
    let (finished, _folder) = run(&[&interfaces("xdp"), LINK, more].concat());
    refused(&finished, &["xdp", "122368", "200000", "limit"]);
}

#[test]
fn options_of_the_built_in_senders_go_with_no_file() {
    let finished = fairlane(&["run", "site.toml", "--rate", "1mbit"]);
    refused(&finished, &["CONFIG", "--rate"]);
}

#[test]
fn a_missing_interface_leaves_nothing_attached() {
    let Some(wire) = wire("a missing interface", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("fairlane.sock");
    let config = format!(
        "[interfaces]\ninside = \"inside\"\noutside = \"nosuch0\"\n\
         [attach]\nsocket = {socket:?}\n{LINK}"
    );
    let file = folder.path().join("site.toml");
    fs::write(&file, config).unwrap();
    let arguments = ["run", file.to_str().unwrap()];
    let finished = wire.middle().run(|| start(&arguments)).finish();
    refused(&finished, &["nosuch0", "no interface"]);
    assert!(!socket.exists(), "nobody can attach");
    // The existing interface can be used by the next process.
    let site = Site::start(&wire, &[&interfaces("packet"), LINK].concat());
    site.stop();
}

#[test]
fn threads_that_cannot_receive_are_refused_and_nothing_is_attached() {
    let Some(wire) = wire("threads that cannot receive", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("fairlane.sock");
    let file = folder.path().join("site.toml");
    let attach = format!("[attach]\nsocket = {socket:?}\n");
    // The cores of this process, and so of the program.
    let cores = sched_getaffinity(None).unwrap().count() as usize;
    let [more, more_that_transmit] =
        ["receive", "transmit"].map(|key| format!("{key} = {}", cores + 1));
    let so_many = format!("the cores that this process may run on are {cores}");
    let mut cases = vec![
        (
            "packet",
            "transmit = 17",
            None,
            vec!["site.toml:6:12: transmit 17", "0 to 16"],
        ),
        (
            "packet",
            "receive = 1\ntransmit = 1\ncores = [0, 0, 0, 65535]",
            None,
            vec!["core 65535", "this process may run on"],
        ),
        (
            "packet",
            "cores = [0, 65535]",
            None,
            vec!["core 65535", "this process may run on"],
        ),
    ];
    if cores < Workers::MOST {
        cases.push(("packet", &more, None, vec![&so_many]));
        let words = vec!["threads that transmit at each interface", &so_many];
        cases.push(("packet", &more_that_transmit, None, words));
    }
    if cores > 1 {
        cases.push((
            "xdp",
            "receive = 2",
            None,
            vec![
                "asks for 2 threads",
                "inside has 1",
                "at most 1 or for \"auto\"",
                "packet",
            ],
        ));
        let words = vec![
            "2 threads that transmit",
            "a queue that receives and transmits of its own, of which inside has 1",
            "at most 1 or for \"auto\"",
        ];
        cases.push(("xdp", "transmit = 2", None, words));
        let fail_open = Some("--fail-open");
        cases.push((
            "packet",
            "receive = 2",
            fail_open,
            vec!["2 threads", "--fail-open"],
        ));
    }
    for (backend, keys, option, words) in cases {
        let workers = format!("[workers]\n{keys}\n");
        let config = [&interfaces(backend), &workers, &attach, LINK].concat();
        fs::write(&file, config).unwrap();
        let arguments = ["run", file.to_str().unwrap()].into_iter().chain(option);
        let arguments: Vec<_> = arguments.collect();
        let finished = wire.middle().run(|| start(&arguments)).finish();
        refused(&finished, &words);
        assert!(!socket.exists(), "nobody can attach: {keys}");
        for name in ["inside", "outside"] {
            let held = wire.middle().run(|| Hold::take(name));
            assert!(
                held.is_ok_and(|hold| hold.complaint().is_none()),
                "{name}: {keys}"
            );
        }
    }
}

#[test]
fn one_thread_of_each_kind_serves_either_backend() {
    let Some(wire) = wire("one thread of each kind", 1) else {
        return;
    };
    for (backend, described) in [
        ("packet", "packet, 1 worker, 1 transmit worker"),
        ("xdp", "xdp, native, 1 worker, 1 transmit worker"),
    ] {
        let config = [&interfaces(backend), "[workers]\ntransmit = 1\n", LINK].concat();
        let report = Site::start(&wire, &config).stop();
        assert_eq!(report["interfaces"][0]["backend"], described);
    }
}

#[test]
fn memory_that_threads_may_not_pin_is_refused_with_what_to_raise() {
    let Some(wire) = wire("memory that may not be pinned", 1) else {
        return;
    };
    let config = [&interfaces("xdp"), "[workers]\nreceive = 1\n", LINK].concat();
    let limited = || {
        let limit = rustix::process::Resource::Memlock;
        let before = rustix::process::getrlimit(limit);
        let mut lower = before;
        lower.current = Some(1 << 20);
        // This thread and its children only: the bounding set limits the programs of root.
        for set in [caps::CapSet::Bounding, caps::CapSet::Effective] {
            caps::drop(None, set, caps::Capability::CAP_IPC_LOCK).unwrap();
        }
        rustix::process::setrlimit(limit, lower).unwrap();
        let finished = run(&config);
        rustix::process::setrlimit(limit, before).unwrap();
        finished
    };
    let (finished, _folder) = wire.middle().run(limited);
    refused(
        &finished,
        &["the memory for interface inside cannot be pinned", "ulimit"],
    );
    let held = wire.middle().run(|| Hold::take("inside"));
    assert!(held.is_ok_and(|hold| hold.complaint().is_none()));
}

#[test]
fn an_interface_whose_queue_another_program_has_is_refused() {
    let Some(wire) = wire("a queue that another program has", 1) else {
        return;
    };
    let umem = Umem::new(1 << 12, 2_048).unwrap();
    let bind = || XdpBackend::bind(&umem, "outside", 0, &XdpOptions::default()).unwrap();
    let other = wire.middle().run(bind);
    for workers in ["", "[workers]\n"] {
        let config = [&interfaces("xdp"), workers, LINK].concat();
        let (finished, _folder) = wire.middle().run(|| run(&config));
        refused(&finished, &["outside", "XDP program"]);
    }
    drop(other);
    let held = wire.middle().run(|| Hold::take("inside"));
    assert!(held.is_ok_and(|hold| hold.complaint().is_none()));
}

#[test]
fn an_interface_that_goes_away_ends_the_run_with_a_sentence_and_the_report() {
    let Some(wire) = wire("an interface that goes away", 1) else {
        return;
    };
    let config = [&interfaces("packet"), LINK].concat();
    let site = Site::start_with(&wire, &config, &["--exit-on-loss"]);
    wire.sender(0).link().delete().unwrap();
    let finished = site.finish();
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    let sent = &site::link(&report, "up")["transmitted"];
    assert!(sent.as_u64() > Some(0), "what was until then: {report:#}");
    let stdout = String::new();
    refused(
        &program::Finished { stdout, ..finished },
        &["inside", "removed"],
    );
}

#[test]
fn reload_succeeds_without_a_log_reader() {
    let Some(wire) = wire("a file read again unheard", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ctl.sock");
    let control = format!("[control]\nsocket = {socket:?}\n");
    let config = [&interfaces("packet"), LINK, &control].concat();
    let mut site = Site::start_unheard(&wire, &config);
    // A closed terminal sends this signal, and accepts no more output.
    site.signal("HUP");
    until_reloads(&socket, 1);
    assert_eq!(site.stop()["reloads"], 1);
}

#[test]
fn without_the_privilege_the_sentence_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    let socket = folder.path().join("fairlane.sock");
    let config = format!("[interfaces]\noutside = \"lo\"\n[attach]\nsocket = {socket:?}\n{LINK}");
    fs::write(&file, config).unwrap();
    if !matches!(
        caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_NET_RAW),
        Ok(true)
    ) {
        return fairlane_netlab::skip("without the privilege", "it is missing already");
    }
    let finished = std::thread::spawn(move || {
        // This thread and its children only: the bounding set limits the programs of root.
        for set in [caps::CapSet::Bounding, caps::CapSet::Effective] {
            caps::drop(None, set, caps::Capability::CAP_NET_RAW).unwrap();
        }
        fairlane(&["run", file.to_str().unwrap()])
    });
    refused(&finished.join().unwrap(), &["CAP_NET_RAW"]);
}

/// Returns a broadcast frame of an unknown protocol.
fn to_everybody() -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([0x88, 0xb5]);
    frame.resize(60, 7);
    frame
}

#[test]
fn attached_processes_need_no_inside_interface() {
    let Some(wire) = wire("processes alone", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("fairlane.sock");
    let config =
        format!("[interfaces]\noutside = \"outside\"\n[attach]\nsocket = {socket:?}\n{LINK}");
    let site = Site::start_unseen(&wire, &config);
    let begun = Instant::now();
    let mut client = loop {
        match attach::connect(&socket) {
            Ok(client) => break client,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    for _ in 0..10 {
        client.push(&to_everybody()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let before = site.processor_time();
    std::thread::sleep(Duration::from_secs(1));
    let used = site.processor_time() - before;
    let report = site.stop();
    // A thousand checks of the client's mailbox.
    assert!(used < Duration::from_millis(200), "{used:?} of a second");
    assert_eq!(link(&report, "up")["transmitted"], 10);
}

#[test]
fn an_attached_process_is_in_the_class_of_its_user() {
    let Some(wire) = wire("an attached process", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("fairlane.sock");
    let uid = rustix::process::getuid().as_raw();
    let config = interfaces("packet")
        + &format!(
            "[attach]\nsocket = {socket:?}\n{LINK}\
             [[link.class]]\nname = \"ours\"\n\
             [[link.class]]\nname = \"theirs\"\n\
             [[link.class]]\nname = \"wire\"\ndefault = true\n\
             [[link.filter]]\nclass = \"ours\"\nuser = {uid}\n\
             [[link.filter]]\nclass = \"theirs\"\nuser = {}\n",
            uid + 1
        );
    let site = Site::start(&wire, &config);
    let mut client = attach::connect(&socket).unwrap();
    let frame = to_everybody();
    for _ in 0..20 {
        client.push(&frame).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut echo = Echo::between(wire.sender(0), wire.receiver(), 9).unwrap();
    assert!(echo.round_trip(100, 100, PATIENCE).is_some());
    let report = site.stop();
    assert_eq!(report["attached"], 1);
    assert_eq!(class(&report, "up", "ours")["sent_packets"], 20);
    assert_eq!(class(&report, "up", "theirs")["sent_packets"], 0);
    assert!(class(&report, "up", "wire")["sent_packets"].as_u64() > Some(0));
    assert!(!socket.exists(), "the socket's file is gone");
}
