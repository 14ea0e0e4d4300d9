//! Possible and impossible bindings, by mode.

use std::io::ErrorKind;

use fairlane_io::{Budget, Umem, XdpBackend, XdpMode, XdpOptions};
use fairlane_netlab::{cable, or_skip};

use crate::rig::*;

#[test]
fn left_open_the_mode_is_the_best_that_the_interface_offers() {
    let Some(lab) = lab("the best mode", &XdpOptions::default()) else {
        return;
    };
    assert_eq!(lab.near.mode(), XdpMode::Native);
    drop(lab.near);
    let error = bind(&lab.umem, &lab.near_link, &options(XdpMode::ZeroCopy)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("interface near does not offer the mode"),
        "{sentence}"
    );

    // A device that reads frames itself needs them aligned: unaligned ones are copied, without a device.
    let unaligned = Umem::unaligned(2_048, 2_048).unwrap();
    let error = bind(&unaligned, &lab.near_link, &options(XdpMode::ZeroCopy)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("the frames for interface near are unaligned"),
        "{sentence}"
    );
    let backend = bind(&unaligned, &lab.near_link, &XdpOptions::default()).unwrap();
    assert_eq!(backend.mode(), XdpMode::Native);
    drop(backend);

    // The driver of virtual cables wants a packet to fit a page, with room before and behind it.
    let Some((long, _other)) = or_skip("a long MTU", cable(3_800)) else {
        return;
    };
    let umem = Umem::new(2_048, 4_096).unwrap();
    let backend = bind(&umem, &long, &XdpOptions::default()).unwrap();
    assert_eq!(backend.mode(), XdpMode::Generic);
}

#[test]
fn what_cannot_be_bound_is_said_in_a_sentence() {
    let Some((near, _far)) = or_skip("errors", cable(1_500)) else {
        return;
    };
    let umem = Umem::new(512, 2_048).unwrap();
    let refusal = |interface: &str, queue, options: &XdpOptions| {
        let bound = near
            .namespace()
            .run(|| XdpBackend::bind(&umem, interface, queue, options));
        let error = bound.unwrap_err();
        (error.kind(), error.to_string())
    };
    let usual = XdpOptions::default;
    let rings = |rx_ring, tx_ring| XdpOptions {
        rx_ring,
        tx_ring,
        ..usual()
    };
    let budget = XdpOptions {
        budget: Budget::from_bytes(1_521),
        ..usual()
    };
    let absent = ["near9", "", "a-name-of-16-by."].map(|name| {
        let start = format!("there is no interface {name} in");
        (ErrorKind::NotFound, name, 0, usual(), start)
    });
    let queues = [1, 256].map(|queue| {
        let start = format!("interface near has no queue {queue}: ");
        (ErrorKind::InvalidInput, "near", queue, usual(), start)
    });
    let others = [
        (
            "lo",
            usual(),
            "interface lo has an MTU of 65536, and frames of 2048 bytes serve one of up to 1770: ",
        ),
        (
            "near",
            rings(32, 256),
            "a receive ring of 32 places is not possible: ",
        ),
        (
            "near",
            rings(1_024, 65_536),
            "a transmit ring of 65536 places is not possible: ",
        ),
        (
            "near",
            rings(96, 256),
            "a receive ring of 96 places is not possible: ",
        ),
        (
            "near",
            budget,
            "a transmit budget of 1521 bytes is less than ",
        ),
    ];
    let others = others.map(|(interface, options, start)| {
        (
            ErrorKind::InvalidInput,
            interface,
            0,
            options,
            start.to_owned(),
        )
    });
    for (kind, interface, queue, options, start) in absent.into_iter().chain(queues).chain(others) {
        let (found, sentence) = refusal(interface, queue, &options);
        assert!(sentence.starts_with(&start), "{sentence}");
        assert_eq!(found, kind, "{sentence}");
    }
    assert_eq!(
        umem.free_frames(),
        umem.frames(),
        "a refused backend leaves nothing behind"
    );
}

#[test]
fn the_smallest_rings_and_budget_serve() {
    let Some((near, _far)) = or_skip("the smallest rings", cable(1_500)) else {
        return;
    };
    let umem = Umem::new(512, 2_048).unwrap();
    let least = XdpOptions {
        rx_ring: 64,
        tx_ring: 64,
        budget: Budget::from_bytes(1_522),
        mode: None,
        deaf: false,
    };
    bind(&umem, &near, &least).unwrap();
}

#[test]
fn memory_comes_in_frames_of_two_sizes_and_in_no_more_than_four_gigabytes() {
    for memory in MEMORIES {
        for (frames, size) in [
            (0, 2_048),
            (1_048_577, 2_048),
            (1_048_577, 4_096),
            (1, 1_024),
            (1, 8_192),
            (1, 3_000),
        ] {
            let error = memory(frames, size).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{frames} of {size}");
        }
        a_frame_has_its_bytes_and_no_more(memory(1, 4_096).unwrap());
    }
    let error = Umem::unaligned(1_032_445, 4_096).unwrap_err().to_string();
    assert!(error.ends_with("there are 1 to 1032444"), "{error}");
}

fn a_frame_has_its_bytes_and_no_more(umem: Umem) {
    assert!(umem.frame_from(&[1; 4_097]).is_none());
    let mut frame = umem.frame_from(&[1; 4_096]).unwrap();
    assert!(umem.frame_from(&[]).is_none(), "there is one");
    frame.bytes_mut()[0] = 2;
    frame.truncate(5_000);
    assert_eq!(frame.len(), 4_096);
    frame.truncate(3);
    assert_eq!(frame.bytes(), [2, 1, 1]);
    drop(frame);
    assert!(umem.frame_from(&[]).is_some());
}

#[test]
fn without_privilege_the_error_says_which_is_needed() {
    let Some((near, _far)) = or_skip("no privilege", cable(1_500)) else {
        return;
    };
    let umem = Umem::new(512, 2_048).unwrap();
    let error = near.namespace().run(|| {
        // This thread's, and no other's.
        caps::clear(None, caps::CapSet::Effective).unwrap();
        XdpBackend::bind(&umem, near.name(), 0, &XdpOptions::default()).unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("no privilege for AF_XDP on interface near: "),
        "{sentence}"
    );
}

#[test]
fn beyond_the_limit_of_pinned_memory_the_error_says_what_to_raise() {
    let Some((near, _far)) = or_skip("pinned memory", cable(1_500)) else {
        return;
    };
    let umem = Umem::new(32_768, 2_048).unwrap();
    let error = near.namespace().run(|| {
        let limit = rustix::process::Resource::Memlock;
        let mut lower = rustix::process::getrlimit(limit);
        lower.current = Some(1 << 20);
        rustix::process::setrlimit(limit, lower).unwrap();
        caps::drop(
            None,
            caps::CapSet::Effective,
            caps::Capability::CAP_IPC_LOCK,
        )
        .unwrap();
        XdpBackend::bind(&umem, near.name(), 0, &XdpOptions::default()).unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("the memory for interface near cannot be pinned: "),
        "{sentence}"
    );
}
