//! Admissions, rejections, and notices of the end.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_core::random::splitmix64;
use fairlane_core::{Length, Limits, Nanos, Weight};
use fairlane_runtime::attach::{
    Attach, AttachConfig, ConnectError, ListenError, Mapping, PushRefused, Told, Who, connect,
};
use fairlane_runtime::{ArbiterConfig, Idling, Link};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::raw::{HELLO, dial, receive, send, sentence};
use crate::rig::{
    LONGEST, Path, Running, Still, arbiter_config, class, config, make, mapping, my_uid, packet,
    push_waiting, wait_until,
};

#[test]
fn a_client_learns_its_class_and_pushes() {
    let mut daemon = Still::new(config());
    let mut client = daemon.connect();
    assert_eq!(client.class(), "tests");
    assert_eq!(client.weight(), Weight::new(3).unwrap());
    assert_eq!(client.max_length(), Length::new(LONGEST).unwrap());
    assert_eq!(client.capacity(), 64);
    client.push(b"hello").unwrap();
    let arrived = daemon.step();
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].bytes, b"hello");
    assert_eq!(arrived[0].from.pid, std::process::id());
    assert_eq!(arrived[0].from.uid, my_uid());
    let attached = daemon.attach().attached();
    assert_eq!(attached.len(), 1);
    assert_eq!(
        (attached[0].peer, &*attached[0].class),
        (arrived[0].from, "tests")
    );
}

#[test]
fn the_rule_that_matches_first_gives_the_class() {
    let mapping = Mapping::new().class(class("first", 9)).unwrap();
    let mapping = mapping.class(class("second", 9)).unwrap();
    let mapping = mapping.rule(Who::Uid(my_uid() + 1), "first").unwrap();
    let mapping = mapping.rule(Who::Any, "second").unwrap();
    let mapping = mapping.rule(Who::Uid(my_uid()), "first").unwrap();
    let daemon = Still::new(AttachConfig::new(mapping));
    assert_eq!(daemon.connect().class(), "second");
}

#[test]
fn a_client_without_a_mapping_is_refused_with_a_sentence() {
    let of_others = Mapping::new().class(class("others", 9)).unwrap();
    let of_others = of_others.rule(Who::Uid(my_uid() + 1), "others").unwrap();
    let daemon = Still::new(AttachConfig::new(of_others));
    let gid = rustix::process::getegid().as_raw();
    assert_eq!(
        daemon.refusal(),
        format!(
            "the daemon refused: no rule gives uid {}, gid {gid} a class: the daemon's configuration must name one",
            my_uid()
        )
    );
    wait_until("it is counted", || daemon.attach().stats().refused == 1);
    assert_eq!(daemon.attach().stats().attached, 0);
}

#[test]
fn a_class_takes_as_many_clients_as_it_may() {
    let daemon = Still::new(AttachConfig::new(mapping(class("few", 2))));
    let _clients = [daemon.connect(), daemon.connect()];
    assert_eq!(
        daemon.refusal(),
        "the daemon refused: the class \"few\" has 2 clients, its limit"
    );
}

#[test]
fn the_place_of_a_client_is_free_when_its_packets_are_sent_and_not_before() {
    let mut daemon = Still::new(AttachConfig::new(mapping(class("one", 1))));
    for number in 1..=3 {
        let mut client = daemon.connect();
        client.push(&packet(number)).unwrap();
        drop(client);
        daemon.wait_until_left(number);
        assert!(daemon.refusal().contains("has 1 clients, its limit"));
        assert_eq!(daemon.drain_the_dead().len(), 1);
    }
    assert_eq!(daemon.attach().stats().attached, 3);
}

#[test]
fn all_classes_together_have_a_limit_too() {
    let daemon = Still::new(AttachConfig {
        most_clients: 1,
        ..config()
    });
    let client = daemon.connect();
    assert_eq!(
        daemon.refusal(),
        "the daemon refused: there are 1 processes attached already, the most that were configured"
    );
    drop(client);
}

#[test]
fn an_arbiter_that_takes_nobody_more_says_so() {
    let arbiter = ArbiterConfig {
        max_clients: 1,
        ..arbiter_config()
    };
    let daemon = Still::with(config(), arbiter);
    let _client = daemon.connect();
    assert_eq!(
        daemon.refusal(),
        "the daemon refused: there are 1 clients already, the most that were configured"
    );
    // The refused one has given its place back.
    wait_until("it is counted", || daemon.attach().stats().refused == 1);
    assert_eq!(daemon.attach().attached().len(), 1);
}

#[test]
fn a_connection_that_says_nothing_is_told_so_and_closed() {
    let daemon = Still::new(AttachConfig {
        hello_timeout: Duration::from_millis(50),
        most_clients: 1,
        ..config()
    });
    let start = Instant::now();
    let silent = dial(&daemon.path.get());
    let (message, _) = receive(&silent);
    assert_eq!(sentence(&message), "no hello within 50ms");
    assert!(start.elapsed() >= Duration::from_millis(40));
    assert_eq!(receive(&silent).0, b"");
    // Its place is free again.
    drop(daemon.connect());
}

#[test]
fn a_hello_that_is_none_is_told_so_and_closed() {
    let daemon = Still::new(config());
    for garbage in [&b"GET / HTTP/1.1"[..], &[0xff; 64], &HELLO[..11], b"r"] {
        let socket = dial(&daemon.path.get());
        send(&socket, garbage, SendFlags::empty()).unwrap();
        assert_eq!(
            sentence(&receive(&socket).0),
            "the first message was no hello of this protocol"
        );
        assert_eq!(receive(&socket).0, b"");
    }
    let socket = dial(&daemon.path.get());
    send(&socket, b"fairlane\x07\0\0\0", SendFlags::empty()).unwrap();
    assert_eq!(
        sentence(&receive(&socket).0),
        "the daemon speaks version 1 of the protocol, and this client 7"
    );
}

#[test]
fn a_packet_that_the_class_does_not_allow_is_refused_at_once() {
    let daemon = Still::new(config());
    let mut client = daemon.connect();
    let max = Length::new(LONGEST).unwrap();
    for given in [0, LONGEST as usize + 1, 100_000] {
        let refused = Err(PushRefused::Length { given, max });
        assert_eq!(client.push(&vec![0; given]), refused);
    }
    assert_eq!(client.push(&vec![0; LONGEST as usize]), Ok(()));
    assert_eq!(
        PushRefused::Length { given: 301, max }.to_string(),
        "the packet has 301 bytes, and its class takes 1 to 300"
    );
}

#[test]
fn a_mailbox_that_nobody_empties_is_full_at_once() {
    let mut daemon = Still::new(config());
    let mut client = daemon.connect();
    for number in 0..64 {
        client.push(&packet(number)).unwrap();
    }
    assert_eq!(client.push(&packet(64)), Err(PushRefused::Full));
    assert_eq!(daemon.step().len(), 64);
    assert_eq!(client.push(&packet(64)), Ok(()));
}

#[test]
fn a_client_is_told_what_became_of_its_packets() {
    let mut class = class("short", 9);
    class.flow.limits = Some(Limits {
        packets: 2,
        ..Limits::NONE
    });
    let mut daemon = Still::new(AttachConfig::new(mapping(class)));
    let mut client = daemon.connect();
    for number in 0..5 {
        client.push(&packet(number)).unwrap();
    }
    assert_eq!(client.told(), Told::default());
    let arrived = daemon.step();
    assert_eq!(arrived.len(), 2);
    assert_eq!(
        client.told(),
        Told {
            accepted: 5,
            malformed: 0,
            dropped: 3
        }
    );
}

#[test]
fn packets_are_charged_with_the_links_overhead() {
    let mut link = Link::new("8mbit".parse().unwrap());
    link.overhead = 900;
    let mut daemon = Still::with(config(), ArbiterConfig::new(link));
    let mut client = daemon.connect();
    client.push(&[0; 100]).unwrap();
    assert_eq!(daemon.step().len(), 1);
    assert_eq!(daemon.arbiter().total_stats().sent.bytes, 1_000);
    assert!(daemon.arbiter().idle_at() >= Nanos::from_millis(1));
}

#[test]
fn a_client_sees_that_the_daemon_takes_no_registrations_or_lost_its_arbiter() {
    for ends_registration in [true, false] {
        let mut daemon = Still::new(config());
        let mut client = daemon.connect();
        daemon.steps();
        assert!(!client.is_abandoned());
        if ends_registration {
            daemon.attach = None;
            daemon.drain_the_dead();
        } else {
            daemon.arbiter = None;
        }
        wait_until("the client sees it", || client.is_abandoned());
        let refused = (0..=client.capacity()).find_map(|_| client.push(&[1]).err());
        assert_eq!(refused, Some(PushRefused::Gone));
    }
}

#[test]
fn without_an_arbiter_nobody_attaches() {
    let mut daemon = Still::new(config());
    daemon.arbiter = None;
    assert_eq!(daemon.refusal(), "the daemon refused: the arbiter is gone");
}

#[test]
fn a_push_wakes_an_arbiter_that_sleeps() {
    // Without a wake-up, each of these packets would take an hour.
    let arbiter = ArbiterConfig {
        linger: Nanos::from_micros(50),
        ..arbiter_config()
    };
    let idling = Idling {
        spin_for: Nanos::from_micros(20),
        longest_sleep: Nanos::from_millis(3_600_000),
        ..Idling::default()
    };
    let daemon = Running::with(config(), arbiter, idling);
    let mut client = connect(daemon.path.get()).unwrap();
    let mut random = 12345_u64;
    let start = Instant::now();
    for number in 0..300 {
        assert!(push_waiting(&mut client, &packet(number)));
        let arrives = Instant::now();
        while daemon.arrived() <= number {
            assert!(
                arrives.elapsed() < Duration::from_secs(60),
                "packet {number}"
            );
            thread::yield_now();
        }
        // Around the time after which the arbiter goes to sleep.
        let pause = splitmix64(&mut random) % 200;
        thread::sleep(Duration::from_micros(pause));
    }
    println!("300 packets in {:?}", start.elapsed());
    daemon.end_with_the_last_client();
    drop(client);
    daemon.wait_until_left(1);
    daemon.finish();
}

#[test]
fn the_socket_of_a_daemon_that_died_is_replaced_and_that_of_a_living_one_is_not() {
    let path = Path::new();
    let daemon = Still::new(config());
    // As a killed daemon leaves it: a file without a listener.
    let dead = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        None,
    )
    .unwrap();
    let address = rustix::net::SocketAddrUnix::new(path.get()).unwrap();
    rustix::net::bind(&dead, &address).unwrap();
    drop(dead);
    assert!(path.get().exists());
    let listen = || Attach::listen(path.get(), config(), daemon.registrar.clone(), make);
    let attach = listen().unwrap();
    drop(connect(path.get()).unwrap());

    let second = listen().unwrap_err();
    assert!(matches!(second, ListenError::InUse(_)));
    assert!(
        second
            .to_string()
            .ends_with("another process listens there")
    );
    drop(connect(path.get()).unwrap());

    drop(attach);
    assert!(!path.get().exists(), "it takes its file away");
}

#[test]
fn a_file_in_the_way_stays() {
    let path = Path::new();
    let daemon = Still::new(config());
    fs::write(path.get(), "precious").unwrap();
    let refused = Attach::listen(path.get(), config(), daemon.registrar.clone(), make);
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.ends_with("there is a file that is not a socket"),
        "{refused}"
    );
    assert_eq!(fs::read_to_string(path.get()).unwrap(), "precious");
}

#[test]
fn the_socket_has_the_permissions_that_were_configured() {
    for mode in [0o666, 0o600] {
        let daemon = Still::new(AttachConfig { mode, ..config() });
        let metadata = fs::metadata(daemon.path.get()).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, mode);
    }
}

/// Puts a link to `target` in the socket's place, over and over, until the end of the test.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Swapper {
    fn new(path: PathBuf, target: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (link, socket) = (path.with_extension("link"), path.with_extension("old"));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let _ = symlink(&target, &link);
                // As soon as the socket is there.
                while !stopped.load(Ordering::Relaxed) && fs::rename(&path, &socket).is_err() {}
                let _ = fs::rename(&link, &path);
                thread::sleep(Duration::from_micros(50));
                let _ = fs::remove_file(&path);
            }
        });
        Swapper {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

#[test]
fn a_file_that_a_link_in_the_sockets_place_names_keeps_its_mode_and_is_not_removed() {
    let path = Path::new();
    let precious = path.get().with_extension("precious");
    fs::write(&precious, "precious").unwrap();
    fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).unwrap();
    let daemon = Still::new(config());
    let _swapper = Swapper::new(path.get(), precious.clone());
    let mut started = 0;
    let mut refused = 0;
    while started < 1_000 || refused < 50 {
        match Attach::listen(path.get(), config(), daemon.registrar.clone(), make) {
            Ok(attach) => {
                started += 1;
                drop(attach);
            }
            Err(ListenError::NotASocket(_) | ListenError::Io { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        let metadata = fs::symlink_metadata(&precious).unwrap();
        assert_eq!(
            metadata.permissions().mode() & 0o777,
            0o600,
            "after {started} starts"
        );
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }
}

#[test]
fn the_socket_has_its_permissions_from_the_moment_it_is_there() {
    let path = Path::new();
    let daemon = Still::new(config());
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    let folder = path.get().parent().unwrap().to_owned();
    inotify::add_watch(&watch, &folder, WatchFlags::CREATE | WatchFlags::ATTRIB).unwrap();
    let _attach = Attach::listen(path.get(), config(), daemon.registrar.clone(), make).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    let created = events.next().unwrap();
    assert!(created.events().contains(ReadFlags::CREATE));
    let changed = events.next().map(|event| event.events());
    assert_eq!(
        changed,
        Err(Errno::AGAIN),
        "its mode was changed afterwards"
    );
    let metadata = fs::metadata(path.get()).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o666);
}

#[test]
fn a_configuration_that_cannot_be_is_refused_with_a_sentence() {
    let path = Path::new();
    let daemon = Still::new(config());
    let refused = |config: AttachConfig, registrar| {
        let refused = Attach::listen(path.get(), config, registrar, make);
        assert!(!path.get().exists());
        refused.unwrap_err().to_string()
    };
    let slots = AttachConfig {
        slots: 100,
        ..config()
    };
    assert_eq!(
        refused(slots, daemon.registrar.clone()),
        "the class \"tests\": a shared mailbox cannot have 100 slots: the number must be a power of two from 2 to 65536"
    );
    let mut long = class("long", 1);
    long.flow.max_length = Length::MAX;
    let mut link = Link::new("1gbit".parse().unwrap());
    link.overhead = 24;
    let framed = Still::with(config(), ArbiterConfig::new(link));
    assert_eq!(
        refused(AttachConfig::new(mapping(long)), framed.registrar.clone()),
        "the class \"long\": packets of 65535 bytes and 24 bytes of overhead are longer than 65535 bytes"
    );
    let nowhere = path.get().join("deeper");
    let refused = Attach::listen(nowhere, config(), daemon.registrar.clone(), make);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .starts_with("cannot listen at ")
    );
}

#[test]
fn nobody_there_is_told_with_the_path() {
    let path = Path::new();
    let refused = connect(path.get()).unwrap_err();
    assert!(matches!(refused, ConnectError::Unreachable { .. }));
    let sentence = refused.to_string();
    assert!(
        sentence.contains(&*path.get().to_string_lossy()),
        "{sentence}"
    );
}
