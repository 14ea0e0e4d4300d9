//! A program of one's own runs a site: opens it, watches it, changes it, stops it.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_config::{Attach, Site};
use fairlane_daemon::{
    Attaching, Daemon, Error, Notice, Options, Outcome, Report, Source, Standby, pipeline_terms,
};
use fairlane_io::{Backend, Umem, XdpBackend, XdpFrame, XdpOptions};
use fairlane_mailbox::shared::Geometry;
use fairlane_netlab::{Link, Namespace, Wire, or_skip, veth, veth_with_queues};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const PATIENCE: Duration = Duration::from_secs(120);

const INTERFACES: &str = "[interfaces]\ninside = \"inside\"\noutside = \"outside\"\n";

fn site(interfaces: &str, class: &str) -> Site {
    let text = format!(
        "{interfaces}\n[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"10mbit\"\n\
         [[link.class]]\nname = \"{class}\"\nrate = \"4mbit\"\n\
         [[link.class]]\nname = \"rest\"\ndefault = true\n"
    );
    Site::parse(&text, "test").unwrap()
}

fn options() -> Options {
    Options {
        interval: Duration::from_millis(50),
        ..Options::default()
    }
}

/// Waits for the first matching notice, up to a time limit.
fn wait(notices: &Receiver<Notice>, meant: impl Fn(&Notice) -> bool) -> Notice {
    let end = Instant::now() + PATIENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let notice = notices.recv_timeout(left).expect("it is told of in time");
        if meant(&notice) {
            return notice;
        }
    }
}

/// All events of these tests, each with message, name, fields and the thread that emitted it.
static EVENTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Keep;

impl Subscriber for Keep {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        struct Told(String);
        impl Visit for Told {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let (thread, name) = (thread::current(), event.metadata().name());
        let thread = thread.name().unwrap_or_default();
        let level = event.metadata().level();
        let mut told = Told(format!("{level} {name} in {thread}: "));
        event.record(&mut told);
        EVENTS.lock().unwrap().push(told.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_mailbox_takes_what_the_file_is_checked_for() {
    for longest in [60, 1_514, 1_522, 1_528, 1_529, Attach::LONGEST] {
        let mailbox = Geometry::new(Attach::SLOTS, longest as usize).unwrap();
        assert_eq!(mailbox.bytes() as u64, Attach::mailbox(longest));
    }
}

#[test]
fn what_happens_is_told_with_its_fields_and_never_by_the_thread_that_forwards() {
    let _ = tracing::subscriber::set_global_default(Keep);
    let Some(wire) = or_skip("a site in a program of one's own", Wire::new(1)) else {
        return;
    };
    let (tell, notices) = channel();
    let notify = move |notice| tell.send(notice).unwrap();
    let opened =
        (wire.middle()).run(|| Daemon::open(site(INTERFACES, "logged"), &options(), notify));
    let daemon = opened.unwrap();
    let handle = daemon.handle();
    thread::scope(|scope| {
        let running = scope.spawn(|| daemon.run(|_| ()));
        handle.reload(Source::Site(Box::new(site(INTERFACES, "other"))));
        wait(&notices, |notice| matches!(notice, Notice::Reloaded { .. }));
        handle.reload(Source::File("/no/such/site.toml".into()));
        wait(&notices, |notice| {
            matches!(notice, Notice::ReloadRefused(_))
        });
        handle.detach("outside").unwrap();
        wait(&notices, |notice| matches!(notice, Notice::Detached(_)));
        handle.stop();
        running.join().unwrap().result.unwrap();
    });
    let events = EVENTS.lock().unwrap();
    let is_told = |begin: &str, part: &str| {
        let told = |event: &String| event.starts_with(begin) && event.contains(part);
        assert!(events.iter().any(told), "{begin} {part}: {events:#?}");
    };
    is_told(
        "INFO reloaded in",
        "message=applied another configuration: 2 classes changed (up/other, up/logged)",
    );
    is_told("WARN reload refused in", "error=/no/such/site.toml: ");
    is_told("INFO detached in", "interface=\"outside\"");
    let forwards = |event: &&String| event.contains(" in forward: ");
    assert_eq!(events.iter().find(forwards), None);
}

#[test]
fn a_site_tells_its_state_and_takes_over_another_while_frames_pass_and_stops_when_told() {
    let Some(wire) = or_skip("a site in a program of one's own", Wire::new(1)) else {
        return;
    };
    let (tell, notices) = channel();
    let notify = move |notice| tell.send(notice).unwrap();
    let opened =
        (wire.middle()).run(|| Daemon::open(site(INTERFACES, "voice"), &options(), notify));
    let daemon = opened.unwrap();
    assert_eq!(&*daemon.interfaces()[1].name, "outside");
    assert_eq!(daemon.links().count(), 1);
    let handle = daemon.handle();
    let (tell, reports) = channel::<Arc<Report>>();
    let Outcome { report, result, .. } = std::thread::scope(|scope| {
        let running = scope.spawn(move || {
            daemon.run(|report| {
                // The receiver may not wait for the last ones.
                let _ = tell.send(Arc::clone(report));
            })
        });
        assert!(wire.is_through(PATIENCE).unwrap());
        let first = reports.recv_timeout(PATIENCE).unwrap();
        assert_eq!(&*first.links[0].classes[0].terms.name, "voice");

        handle.reload(Source::Site(Box::new(site("", "voice"))));
        let refused = wait(&notices, |notice| {
            matches!(notice, Notice::ReloadRefused(_))
        });
        assert!(refused.to_string().contains("restart"), "{refused}");

        handle.reload(Source::Site(Box::new(site(INTERFACES, "calls"))));
        wait(&notices, |notice| {
            matches!(notice, Notice::Reloaded { file: None, .. })
        });
        assert!(wire.is_through(PATIENCE).unwrap());
        // The forwarding thread makes rounds, even without traffic.
        let rounds = handle.rounds();
        let begun = Instant::now();
        while handle.rounds() < rounds + 3 {
            assert!(begun.elapsed() < PATIENCE, "it hangs");
        }
        handle.stop();
        running.join().unwrap()
    });
    result.unwrap();
    let rounds = handle.rounds();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(handle.rounds(), rounds, "it has ended");
    assert_eq!(report.reloads, 1);
    let classes = report.links[0].classes.to_vec();
    let [calls, rest, _link_control] = &classes[..] else {
        panic!("{report:?}");
    };
    assert_eq!(&*calls.terms.name, "calls");
    assert_eq!(calls.terms.guaranteed_bps, Some(4_000_000));
    assert!(rest.sent_packets > 0 && rest.delay_us.is_some(), "{rest:?}");
}

#[test]
fn a_change_is_answered_and_is_made_only_to_what_it_was_made_from() {
    let Some(wire) = or_skip("a site that is changed by call", Wire::new(1)) else {
        return;
    };
    let opened =
        (wire.middle()).run(|| Daemon::open(site(INTERFACES, "voice"), &options(), |_| {}));
    let daemon = opened.unwrap();
    let handle = daemon.handle();
    let source = |class| Source::Site(Box::new(site(INTERFACES, class)));
    let Outcome { report, result, .. } = std::thread::scope(|scope| {
        let running = scope.spawn(move || daemon.run(|_| {}));
        let first = handle.site();
        let considered = handle.consider(source("calls")).unwrap();
        assert_eq!(&*considered.links[0].classes[0].name, "calls");
        assert!(Arc::ptr_eq(&handle.site(), &first), "nothing has changed");

        let second = handle
            .change(source("calls"), Some(Arc::clone(&first)))
            .unwrap();
        assert!(Arc::ptr_eq(&handle.site(), &second));
        assert_eq!(&*second.links[0].classes[0].name, "calls");
        let late = handle.change(source("voice"), Some(first));
        assert!(matches!(late, Err(Error::Outdated)), "{late:?}");
        let refused = handle.change(Source::Site(Box::new(site("", "voice"))), None);
        assert!(matches!(refused, Err(Error::Unfit(_))), "{refused:?}");
        let refused = handle.consider(Source::Text("rate = 7".to_owned()));
        assert!(matches!(refused, Err(Error::Site(_))), "{refused:?}");
        assert!(
            Arc::ptr_eq(&handle.site(), &second),
            "what is refused changes nothing"
        );

        // Of many concurrent changes, each is applied or rejected because another came first.
        let changers: Vec<_> = (0..8)
            .map(|_| {
                let (handle, second) = (handle.clone(), Arc::clone(&second));
                scope.spawn(move || handle.change(source("voice"), Some(second)).is_ok())
            })
            .collect();
        let made = changers.into_iter().map(|changer| changer.join().unwrap());
        assert_eq!(made.filter(|&made| made).count(), 1);
        handle.stop();
        running.join().unwrap()
    });
    result.unwrap();
    assert_eq!(report.reloads, 2);
    let late = handle.change(source("voice"), None);
    assert!(matches!(late, Err(Error::Ended)), "{late:?}");
}

#[test]
fn a_site_with_workers_forwards_takes_over_and_goes_on_with_another_interface() {
    let Some(wire) = or_skip("a site with workers", Wire::new(1)) else {
        return;
    };
    let with = |class| site(&format!("{INTERFACES}[workers]\n"), class);
    let (tell, notices) = channel();
    let notify = move |notice| tell.send(notice).unwrap();
    let opened = (wire.middle()).run(|| Daemon::open(with("voice"), &options(), notify));
    let daemon = opened.unwrap();
    for interface in daemon.interfaces() {
        assert_eq!(interface.backend, "packet, 1 worker");
    }
    let handle = daemon.handle();
    let Outcome { report, result, .. } = std::thread::scope(|scope| {
        let running = scope.spawn(move || daemon.run(|_| {}));
        assert!(wire.is_through(PATIENCE).unwrap());
        handle
            .change(Source::Site(Box::new(with("calls"))), None)
            .unwrap();
        assert!(wire.is_through(PATIENCE).unwrap());
        let refused = handle.change(Source::Site(Box::new(site(INTERFACES, "calls"))), None);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("[workers] cannot change"), "{refused}");
        handle.shape("outside", false).unwrap();
        assert!(wire.is_through(PATIENCE).unwrap());
        handle.shape("outside", true).unwrap();
        handle.detach("outside").unwrap();
        wait(&notices, |notice| matches!(notice, Notice::Detached(_)));
        let attaching = Attaching {
            place: "outside".to_owned(),
            interface: "outside".to_owned(),
        };
        let source = Source::Site(Box::new(with("calls")));
        handle.attach(attaching, source, handle.site()).unwrap();
        assert!(wire.is_through(PATIENCE).unwrap());
        handle.stop();
        running.join().unwrap()
    });
    result.unwrap();
    let classes = report.links[0].classes.to_vec();
    let [calls, rest, _link_control] = &classes[..] else {
        panic!("{report:?}");
    };
    assert_eq!((&*calls.terms.name, calls.drops.full), ("calls", 0));
    assert!(rest.sent_packets > 0 && rest.delay_us.is_some(), "{rest:?}");
    assert_eq!(report.interfaces[1].backend, "packet, 1 worker");
}

/// Creates an interface of the middle with four queues, and its peer in a separate namespace.
fn cable_of_four(middle: &Namespace, name: &str) -> Option<(Link, Link)> {
    let made = Namespace::new().and_then(|host| {
        let (near, far) = veth_with_queues((middle, name), (&host, "host"), 1_500, 4)?;
        near.up()?;
        far.up()?;
        near.wait_for_carrier()?;
        far.wait_for_carrier()?;
        Ok((near, far))
    });
    or_skip("a site of interfaces with four queues", made)
}

/// Returns a frame that contains the queue by which it was sent, and its number.
fn numbered(umem: &Umem, queue: u8, number: u32) -> XdpFrame {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, queue, 0x88, 0xb5];
    bytes.extend(number.to_be_bytes());
    bytes.resize(60, queue);
    umem.frame_from(&bytes).unwrap()
}

#[test]
fn every_frame_of_every_queue_passes_a_site_over_xdp_once_and_in_order_by_queue() {
    const FRAMES: u32 = 100;
    let Some(middle) = or_skip("a site of interfaces with four queues", Namespace::new()) else {
        return;
    };
    let Some((_inside, sender)) = cable_of_four(&middle, "inside") else {
        return;
    };
    let Some((_outside, receiver)) = cable_of_four(&middle, "outside") else {
        return;
    };
    let interfaces = format!("{INTERFACES}backend = \"xdp\"\n");
    let opened = middle.run(|| Daemon::open(site(&interfaces, "voice"), &options(), |_| {}));
    let daemon = opened.unwrap();
    for interface in daemon.interfaces() {
        assert_eq!(interface.backend, "xdp, native, 4 queues");
    }
    let handle = daemon.handle();
    let umem = Umem::new(16_384, 2_048).unwrap();
    let usual = XdpOptions::default();
    let mut sources: Vec<_> = (0..4)
        .map(|queue| {
            let bound = sender
                .namespace()
                .run(|| XdpBackend::bind(&umem, "host", queue, &usual));
            bound.unwrap()
        })
        .collect();
    let mut sink = receiver
        .namespace()
        .run(|| XdpBackend::bind_all(&umem, "host", &usual).unwrap());
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(move || daemon.run(|_| {}));
        let mut batches: Vec<VecDeque<_>> = (0..4)
            .map(|queue| {
                (0..FRAMES)
                    .map(|number| numbered(&umem, queue, number))
                    .collect()
            })
            .collect();
        let (mut arrived, mut came, mut expected) = (Vec::new(), 0, [0; 4]);
        let end = Instant::now() + PATIENCE;
        while came < 4 * FRAMES && Instant::now() < end {
            for (source, batch) in sources.iter_mut().zip(&mut batches) {
                source.transmit(batch).unwrap();
            }
            sink.receive(&mut arrived, 64).unwrap();
            for frame in arrived.drain(..) {
                let bytes = frame.bytes();
                if bytes[12..14] == [0x88, 0xb5] {
                    let number = u32::from_be_bytes(bytes[14..18].try_into().unwrap());
                    let next = &mut expected[usize::from(bytes[11])];
                    assert_eq!(number, *next, "queue {}", bytes[11]);
                    *next += 1;
                    came += 1;
                }
            }
        }
        handle.stop();
        assert_eq!(expected, [FRAMES; 4]);
        running.join().unwrap()
    });
    outcome.result.unwrap();
    let [inside, outside] = &outcome.report.interfaces[..] else {
        panic!("{:?}", outcome.report);
    };
    assert_eq!((inside.lost, outside.lost), (0, 0));
}

#[test]
fn interfaces_with_more_queues_than_the_memory_has_sockets_are_refused_with_their_counts() {
    let made = Namespace::new().and_then(|middle| {
        let far = Namespace::new()?;
        veth_with_queues((&middle, "inside"), (&far, "one"), 1_500, 40)?;
        veth_with_queues((&middle, "outside"), (&far, "other"), 1_500, 25)?;
        Ok((middle, far))
    });
    let Some((middle, _far)) = or_skip("too many queues", made) else {
        return;
    };
    let interfaces = format!("{INTERFACES}backend = \"xdp\"\n");
    let opened = middle.run(|| Daemon::open(site(&interfaces, "voice"), &options(), |_| {}));
    let refused = opened.map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        refused,
        "with the backend xdp the interfaces have at most 64 receive queues together, and inside \
         has 40 and outside has 25: leave each at most 32 (ethtool -L <interface> combined 32), or \
         use the backend packet"
    );
}

#[test]
fn a_site_whose_time_is_over_ends_by_itself() {
    let Some(wire) = or_skip("a site for a time", Wire::new(1)) else {
        return;
    };
    let options = Options {
        time: Some(Duration::from_millis(100)),
        ..options()
    };
    let Outcome { report, result, .. } = wire.middle().run(|| {
        let daemon = Daemon::open(site(INTERFACES, "voice"), &options, |_| {});
        daemon.unwrap().run(|_| {})
    });
    result.unwrap();
    assert!(report.seconds >= 0.1, "{}", report.seconds);
}

#[test]
fn a_site_without_interfaces_is_not_opened() {
    let opened = Daemon::open(site("", "voice"), &options(), |_| {});
    assert!(matches!(opened, Err(Error::Unfit(sentence)) if sentence.contains("[interfaces]")));
}

#[test]
fn a_link_is_left_unshaped_and_its_queues_are_emptied_by_call() {
    let Some(wire) = or_skip("a link that is left unshaped", Wire::new(1)) else {
        return;
    };
    let opened =
        (wire.middle()).run(|| Daemon::open(site(INTERFACES, "voice"), &options(), |_| {}));
    let daemon = opened.unwrap();
    let handle = daemon.handle();
    let (tell, reports) = channel::<Arc<Report>>();
    let Outcome { report, result, .. } = std::thread::scope(|scope| {
        let running = scope.spawn(move || {
            daemon.run(|report| {
                let _ = tell.send(Arc::clone(report));
            })
        });
        assert!(wire.is_through(PATIENCE).unwrap());
        handle.shape("outside", false).unwrap();
        let unshaped = reports.iter().find(|report| !report.links[0].shaped);
        assert!(!unshaped.unwrap().interfaces[1].shaped);
        assert!(wire.is_through(PATIENCE).unwrap());
        handle
            .change(Source::Site(Box::new(site(INTERFACES, "calls"))), None)
            .unwrap();
        assert!(wire.is_through(PATIENCE).unwrap());
        handle.shape("outside", true).unwrap();

        assert_eq!(handle.flush("up", None).unwrap().packets, 0);
        assert_eq!(handle.flush("up", Some("calls")).unwrap().packets, 0);
        let refused = handle.flush("up", Some("voice")).unwrap_err();
        assert!(matches!(refused, Error::Missing(_)), "{refused}");
        let refused = handle.flush("down", None).unwrap_err();
        assert!(refused.to_string().contains("there is up"), "{refused}");
        let refused = handle.shape("inside", false).unwrap_err();
        assert!(matches!(refused, Error::Conflict(_)), "{refused}");
        let refused = handle.shape("", false).unwrap_err();
        assert!(matches!(refused, Error::Missing(_)), "{refused}");
        handle.stop();
        running.join().unwrap()
    });
    result.unwrap();
    let link = &report.links[0];
    assert!(link.shaped && link.passed_frames > 0, "{link:?}");
    assert!(link.passed_bytes > 40 * link.passed_frames, "{link:?}");
    let late = handle.shape("outside", false);
    assert!(matches!(late, Err(Error::Ended)), "{late:?}");
}

#[test]
fn a_change_while_an_interface_is_away_leaves_packets_as_long_as_they_may_be() {
    const JUMBO: u32 = 9_000;
    let made = || {
        let middle = Namespace::new()?;
        let cable = |near| veth((&middle, near), (&Namespace::new()?, "host"), JUMBO);
        let cables = [cable("inside")?, cable("outside")?];
        Ok((middle, cables))
    };
    let Some((middle, [_inside, (outside, _far)])) = or_skip("an interface that is away", made())
    else {
        return;
    };
    let (tell, notices) = channel();
    let notify = move |notice| tell.send(notice).unwrap();
    middle.run(move || {
        let mtu = |name: &str| fairlane_io::interface::mtu(name).ok();
        let text = |class| site(INTERFACES, class).text.to_string();
        let site = Site::parse_for(&text("voice"), "test", &mtu).unwrap();
        let longest = site.links[0].longest;
        assert!(longest.get() > JUMBO);
        let daemon = Daemon::open(site, &options(), notify).unwrap();
        let handle = daemon.handle();
        thread::scope(|scope| {
            let running = scope.spawn(|| daemon.run(|_| ()));
            outside.delete().unwrap();
            wait(&notices, |notice| matches!(notice, Notice::Gone(_)));
            let changed = handle.change(Source::Text(text("calls")), None).unwrap();
            assert_eq!(&*changed.links[0].classes[0].name, "calls");
            assert_eq!(changed.links[0].longest, longest);
            handle.stop();
            running.join().unwrap().result.unwrap();
        });
    });
}

#[test]
fn a_wire_at_rest_waits_for_no_pipe_in_the_place_of_the_file() {
    let Some(wire) = or_skip("a wire at rest", Wire::new(1)) else {
        return;
    };
    let fifo = std::env::temp_dir().join(format!("fairlane-standby-{}", std::process::id()));
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let (tell, rested) = channel();
    let file = fifo.clone();
    thread::spawn(move || {
        wire.middle().run(|| {
            let interfaces = site(INTERFACES, "voice").interfaces;
            let mut standby = Standby::open(interfaces.unwrap()).unwrap();
            standby.rest(&file);
        });
        tell.send(()).unwrap();
    });
    let rested = rested.recv_timeout(PATIENCE);
    fs::remove_file(fifo).unwrap();
    rested.expect("nobody writes to it");
}

/// A port that sends slower than the link: frames queue in their classes, and at the port as many as `check` prints.
#[test]
fn a_slow_port_queues_no_more_than_its_budget() {
    let Some(wire) = or_skip("a slow port", Wire::new(1)) else {
        return;
    };
    let outside = Link::find(wire.middle(), "outside").unwrap();
    outside.limit_rate(500_000, 10_000_000).unwrap();
    let host = wire.sender(0);
    let bound = (host.namespace()).run(|| UdpSocket::bind((host.address(), 0)));
    let (socket, to) = (bound.unwrap(), (wire.receiver().address(), 9));
    for workers in ["", "[workers]\nreceive = 1\ntransmit = 1\n"] {
        let site = |rate: &str| {
            let link = format!("[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"{rate}\"\n");
            Site::parse(&format!("{INTERFACES}{workers}{link}"), "test").unwrap()
        };
        // Two frames of 2,304 bytes of kernel memory, and a millisecond.
        let (slow, fast) = (site("10mbit"), site("100mbit"));
        let budgets =
            [&slow, &fast].map(|site| pipeline_terms(site, &site.links[0]).unwrap().device_bytes);
        assert_eq!(budgets, [4_608, 12_500]);
        let daemon = (wire.middle()).run(|| Daemon::open(slow, &options(), |_| {}));
        let daemon = daemon.unwrap();
        let handle = daemon.handle();
        let (tell, reports) = channel::<Arc<Report>>();
        thread::scope(|scope| {
            let running = scope.spawn(move || {
                daemon.run(|report| {
                    // The receiver may not wait for the last ones.
                    let _ = tell.send(Arc::clone(report));
                })
            });
            assert!(wire.is_through(PATIENCE).unwrap());
            for (budget, least) in [(budgets[0], 2_305), (budgets[1], 4_609)] {
                let begun = Instant::now();
                loop {
                    for _ in 0..20 {
                        // A full socket buffer is the test's own loss.
                        let _ = socket.send_to(&[0; 1_400], to);
                    }
                    let report = reports.recv_timeout(PATIENCE).unwrap();
                    let pipeline = &report.links[0].pipeline;
                    let most = pipeline.device_most_bytes;
                    assert!(most <= budget, "{most} of {budget} bytes, {workers}");
                    if most >= least && pipeline.terms.device_bytes == budget {
                        break;
                    }
                    assert!(begun.elapsed() < PATIENCE, "{most} of {budget} bytes");
                }
                handle
                    .change(Source::Site(Box::new(fast.clone())), None)
                    .unwrap();
            }
            handle.stop_at_once();
            running.join().unwrap().result.unwrap();
        });
    }
}
