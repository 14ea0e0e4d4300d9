//! A client in C of a daemon in this process.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fairlane_core::sched::Qfq;
use fairlane_core::{FlowConfig, Length, Nanos, Rate, Weight};
use fairlane_io::{Backend, MemoryBackend, memory};
use fairlane_runtime::attach::{Attach, AttachConfig, Class, Mapping, Who};
use fairlane_runtime::{Arbiter, ArbiterConfig, Clock, Link};

use crate::c::{Library, build};
use crate::programs::{compilers_or_skip, run};

#[test]
fn a_client_in_c_attaches_and_its_packets_leave() {
    let Some(compiler) = compilers_or_skip("a client in C").first().copied() else {
        return;
    };
    let program = build(compiler, "examples/attach.c", Library::Shared, &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");

    let (near, mut far): (MemoryBackend<Vec<u8>>, MemoryBackend<Vec<u8>>) =
        memory::pair(usize::MAX);
    let config = ArbiterConfig::new(Link::new(Rate::MAX));
    let mut arbiter = Arbiter::new(Qfq::new(), config, near, Nanos::ZERO);
    let flow = FlowConfig::new(Weight::new(3).unwrap(), Length::new(300).unwrap());
    let class = Class {
        name: "tests".into(),
        flow,
        most_clients: 10,
    };
    let mapping = Mapping::new().class(class).unwrap();
    let config = AttachConfig {
        slots: 64,
        ..AttachConfig::new(mapping.rule(Who::Any, "tests").unwrap())
    };
    let attach =
        Attach::listen(&path, config, arbiter.registrar(), |bytes, _process| bytes).unwrap();

    let over = AtomicBool::new(false);
    let (said, refused) = thread::scope(|scope| {
        scope.spawn(|| {
            let clock = Clock::start();
            while !over.load(Ordering::Relaxed) {
                arbiter.step(clock.now()).unwrap();
                thread::sleep(Duration::from_micros(200));
            }
            // The packets taken last are sent too.
            for _ in 0..100 {
                arbiter.step(clock.now()).unwrap();
            }
        });
        let of = |bytes| {
            let mut command = Command::new(&program);
            command.arg(&path).args(["1000", bytes]);
            command
        };
        let said = run(&mut of("200"));
        let refused = of("301").output().unwrap();
        over.store(true, Ordering::Relaxed);
        (said, refused)
    });
    assert_eq!(said, "tests weight 3: 1000 pushed, 1000 taken\n");
    let sentence = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(sentence.contains("longer than"), "{sentence}");

    let mut arrived = Vec::new();
    far.receive(&mut arrived, 2_000).unwrap();
    assert_eq!(arrived.len(), 1_000);
    assert!(arrived.iter().all(|packet| packet == &[0; 200]));
    drop(attach);
}
