//! The limits of a client's, and a user's, resources in the daemon.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use fairlane_runtime::Idling;
use fairlane_runtime::attach::{AttachConfig, Mapping, Who, connect};
use rustix::fs::fstat;
use rustix::net::SendFlags;

use crate::processes::{Actor, wait_for_the_test};
use crate::raw::{HELLO, Raw, dial, receive, send, sentence};
use crate::rig::{Running, Still, class, config, mapping, my_uid, wait_until};

/// A user without privileges.
const NOBODY: u32 = 65_534;

/// Every process may attach.
fn open_to_all() -> Mapping {
    let mapping = Mapping::new().class(class("all", 1_000)).unwrap();
    mapping.rule(Who::Any, "all").unwrap()
}

/// Returns whether another user can be had, which only root can.
fn can_be_another() -> bool {
    let root = my_uid() == 0;
    if !root {
        println!("skipped: only root can be two users");
    }
    root
}

/// Bytes that the memory behind a handle takes now.
fn pages(handle: &OwnedFd) -> u64 {
    u64::try_from(fstat(handle).unwrap().st_blocks).unwrap() * 512
}

/// Attaches and leaves over and over, and keeps each handle and half of the mappings.
pub(crate) fn keep_memory(path: &Path, times: usize) {
    let mut handles = Vec::new();
    let mut mappings = Vec::new();
    while handles.len() < times {
        let socket = dial(path);
        let _ = send(&socket, HELLO, SendFlags::empty());
        let (reply, parts) = receive(&socket);
        // All places are taken until the daemon has released the client that left.
        if parts.len() != 2 {
            continue;
        }
        let raw = Raw::with(socket, &reply, parts);
        handles.push(raw.memory_handle);
        if handles.len().is_multiple_of(2) {
            mappings.push(raw.memory);
        }
    }
    wait_until("the daemon has its memory back", || {
        handles.iter().map(pages).sum::<u64>() == 0
    });
}

#[test]
fn who_attaches_and_leaves_and_keeps_the_memory_holds_nothing_of_the_daemons() {
    let config = AttachConfig {
        most_of_a_user: 8,
        ..AttachConfig::new(open_to_all())
    };
    let daemon = Running::new(config, Idling::default());
    let mut actor = match can_be_another() {
        true => Actor::start_as(NOBODY, "keep-memory 200", &daemon.path.get()),
        false => return keep_memory(&daemon.path.get(), 200),
    };
    assert!(actor.ended_well());
    daemon.finish();
}

#[test]
fn a_mailbox_is_given_back_when_the_arbiter_lets_go_and_not_before() {
    let mut daemon = Still::new(config());
    let raw = Raw::attach(&daemon.path.get());
    let handle = raw.memory_handle.try_clone().unwrap();
    let taken = pages(&handle);
    assert!(taken >= raw.geometry.bytes() as u64);
    raw.write(0, &crate::rig::packet(0));
    drop(raw);
    daemon.wait_until_left(1);
    assert_eq!(pages(&handle), taken, "a packet is still in it");
    assert_eq!(daemon.drain_the_dead().len(), 1);
    wait_until("the pages are given back", || pages(&handle) == 0);
}

#[test]
fn a_registration_that_ends_leaves_no_memory_behind() {
    let mut daemon = Still::new(config());
    let raw = Raw::attach(&daemon.path.get());
    let handle = raw.memory_handle.try_clone().unwrap();
    daemon.attach = None;
    daemon.drain_the_dead();
    assert_eq!(pages(&handle), 0);
}

/// Takes as many places as it gets and says hello for none of them.
pub(crate) fn keep_others_out(path: &Path, times: usize) {
    let silent: Vec<_> = (0..times).map(|_| dial(path)).collect();
    wait_for_the_test();
    drop(silent);
}

#[test]
fn a_user_whose_connections_say_nothing_keeps_no_other_user_out() {
    if !can_be_another() {
        return;
    }
    let config = AttachConfig {
        most_clients: 16,
        most_of_a_user: 4,
        hello_timeout: Duration::from_secs(600),
        ..AttachConfig::new(open_to_all())
    };
    let daemon = Still::new(config);
    let mut actor = Actor::start_as(NOBODY, "keep-others-out 40", &daemon.path.get());
    // Four places, eight that may wait to be refused, and the others are refused at once.
    wait_until("the others were refused", || {
        daemon.attach().stats().refused == 40 - 4 - 8
    });
    let told = daemon.attach().take_refusals().unwrap();
    assert_eq!(
        told.to_string(),
        "a process of uid 65534 may not attach: uid 65534 has 4 processes attached or about to be, \
         the most that one user may have (28 refusals since the last message)"
    );
    assert_eq!(daemon.attach().take_refusals(), None, "it is told once");
    let mine: Vec<_> = (0..4).map(|_| daemon.connect()).collect();
    assert!(
        daemon
            .refusal()
            .ends_with("the most that one user may have")
    );
    // Places that were never used are free again.
    actor.go_on();
    assert!(actor.ended_well());
    let mut another = Actor::start_as(NOBODY, "keep-others-out 4", &daemon.path.get());
    another.go_on();
    assert!(another.ended_well());
    drop(mine);
}

#[test]
fn silent_connections_of_a_user_count_like_clients_and_for_the_timeout_only() {
    let daemon = Still::new(AttachConfig {
        most_of_a_user: 2,
        hello_timeout: Duration::from_millis(300),
        ..config()
    });
    let silent = [dial(&daemon.path.get()), dial(&daemon.path.get())];
    let refused = connect(daemon.path.get()).unwrap_err().to_string();
    let uid = my_uid();
    assert_eq!(
        refused,
        format!(
            "the daemon refused: uid {uid} has 2 processes attached or about to be, the most that one user may have"
        )
    );
    for socket in &silent {
        assert_eq!(sentence(&receive(socket).0), "no hello within 300ms");
    }
    let _clients = [daemon.connect(), daemon.connect()];
}

#[test]
fn all_mailboxes_together_keep_to_their_memory() {
    let bytes = Raw::attach(&Still::new(config()).path.get())
        .geometry
        .bytes() as u64;
    let mut daemon = Still::new(AttachConfig {
        most_memory: 2 * bytes + bytes / 2,
        ..config()
    });
    let first = daemon.connect();
    let _second = daemon.connect();
    let sentence = format!(
        "the daemon refused: a mailbox takes {bytes} bytes, and {} of the {} for all of them are taken",
        2 * bytes,
        2 * bytes + bytes / 2
    );
    assert_eq!(daemon.refusal(), sentence);
    // The mailbox of the client that left exists until the arbiter has released it.
    drop(first);
    daemon.wait_until_left(1);
    assert_eq!(daemon.refusal(), sentence);
    daemon.steps();
    let _third = daemon.connect();

    let least = AttachConfig {
        most_memory: bytes - 1,
        ..AttachConfig {
            slots: 64,
            ..AttachConfig::new(mapping(class("tests", 9)))
        }
    };
    let path = crate::rig::Path::new();
    let refused = fairlane_runtime::attach::Attach::listen(
        path.get(),
        least,
        daemon.registrar.clone(),
        crate::rig::make,
    );
    assert_eq!(
        refused.unwrap_err().to_string(),
        format!(
            "the class \"tests\": a mailbox takes {bytes} bytes, and all of them may take {}",
            bytes - 1
        )
    );
}
