//! The number of threads, and numbers that are rejected.

use super::*;

#[test]
fn a_machine_has_a_worker_for_each_queue_and_core_beside_one_and_at_least_one() {
    for (queues, cores, count) in [(1, 8, 1), (4, 8, 4), (8, 4, 3), (4, 1, 1), (64, 64, 16)] {
        assert_eq!(
            automatic(queues, cores),
            count,
            "{queues} queues, {cores} cores"
        );
    }
}

#[test]
fn a_link_has_an_arbiter_of_its_own_where_it_is_asked_for_or_all_threads_have_a_core() {
    let with = |interfaces: &str, keys: &str| {
        let text = format!(
            "[interfaces]\noutside = 'o'\n{interfaces}\n[workers]\n{keys}\n\
             [[link]]\nname = 'up'\nrate = '1mbit'\n"
        );
        Site::parse(&text, "test").unwrap()
    };
    let cores = sched_getaffinity(None).unwrap().count() as usize;
    let both = |most| [Some(most), Some(1)];
    for (keys, counts, transmit, count) in [
        ("", both(1), [0, 0], if cores >= 4 { 2 } else { 1 }),
        ("", both(1), [cores.max(2), 0], 1),
        ("", both(cores.max(2)), [0, 0], 1),
        ("arbiters = 1", both(1), [0, 0], 1),
        ("arbiters = 2", both(16), [16, 16], 2),
    ] {
        let site = with("inside = 'i'", keys);
        assert_eq!(arbiters(&site, counts, transmit), count, "{keys}");
    }
    // Frames from the host pass no worker.
    let tap = with("tap = 't'", "");
    assert_eq!(arbiters(&tap, [None, Some(1)], [0, 0]), 1);
}

#[test]
fn more_threads_than_can_be_are_refused_in_a_sentence() {
    let with = |receive: &str| {
        let text = format!(
            "[interfaces]\ninside = 'i'\noutside = 'o'\n[workers]\nreceive = {receive}\n\
             [[link]]\nname = 'up'\nrate = '1mbit'\n"
        );
        Site::parse(&text, "test").unwrap()
    };
    let refused = |receive, alone| {
        let options = worker_options(&with(receive), Clock::start(), alone);
        options.unwrap_err().to_string()
    };
    let cores = sched_getaffinity(None).unwrap().count();
    if cores < 16 {
        let sentence = refused("16", false);
        let why = format!(
            "16 threads at each interface, and the cores that this process may run on are {cores}:"
        );
        assert!(sentence.contains(&why), "{sentence}");
    }
    if cores > 1 {
        let sentence = refused("2", true);
        assert!(
            sentence.contains("with --fail-open there can be one"),
            "{sentence}"
        );
    }
    let alone = worker_options(&with("'auto'"), Clock::start(), true).unwrap();
    assert_eq!(alone.map(|options| options.unwrap().count), [1; 2]);
}

#[test]
fn a_core_that_is_not_there_is_named_before_anything_is_opened() {
    let text = "[interfaces]\ninside = 'i'\noutside = 'o'\n[workers]\ncores = [0, 65535]\n\
                [[link]]\nname = 'up'\nrate = '1mbit'\n";
    let site = Site::parse(text, "test").unwrap();
    let clock = Clock::start();
    let sentence = worker_options(&site, clock, false).unwrap_err().to_string();
    assert!(
        sentence.contains("[workers] names core 65535"),
        "{sentence}"
    );
    let without = Site::parse(&text.replace("cores = [0, 65535]\n", ""), "test").unwrap();
    let both = worker_options(&without, clock, false).unwrap();
    let ingress = both.map(|options| options.unwrap().ingress);
    assert_eq!(ingress, [Role::Inside, Role::Outside].map(Role::ingress));
}

#[test]
fn a_machine_has_threads_that_transmit_for_the_cores_that_others_leave() {
    for (queues, cores, receive, count) in [
        (1, 8, 1, 1),
        (4, 8, 4, 3),
        (4, 2, 1, 0),
        (8, 1, 1, 0),
        (64, 64, 16, 16),
    ] {
        let told = format!("{queues} queues, {cores} cores, {receive} receive");
        assert_eq!(automatic_transmit(queues, cores, receive), count, "{told}");
    }
    let with = |near: &str, keys: &str| {
        let text = format!(
            "[interfaces]\noutside = 'o'\n{near}\n[workers]\n{keys}\n[[link]]\nname = 'up'\nrate = '1mbit'\n"
        );
        let site = Site::parse(&text, "test").unwrap();
        let options = worker_options(&site, Clock::start(), false).unwrap();
        options.map(|options| {
            let options = options?;
            let transmit = options
                .transmit
                .map_or(Vec::new(), |transmit| transmit.cores);
            Some((options.cores, transmit))
        })
    };
    let cores = "receive = 1\ntransmit = 1\ncores = [0, 0, 0, 0]";
    let both = Some((vec![0], vec![0]));
    assert_eq!(with("inside = 'i'", cores), [both.clone(), both]);
    let one = "receive = 1\ntransmit = 1";
    let neither = Some((vec![], vec![]));
    assert_eq!(
        with("inside = 'i'", one),
        [neither.clone(), neither.clone()]
    );
    // A tap device sends at once.
    assert_eq!(with("tap = 't'", one), [None, neither]);
}
