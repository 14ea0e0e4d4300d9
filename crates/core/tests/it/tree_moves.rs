//! Moves of classes below another parent, with everything in them.

use crate::support::{Random, length, weight};
use fairlane_core::aqm::{AqmConfig, CodelConfig, Probability, RedConfig, RedParameters};
use fairlane_core::sched::{Algorithm, Sharing};
use fairlane_core::tree::{Ceiling, ClassConfig, ClassId, FlowsConfig, LeafConfig, Tree};
use fairlane_core::{Dequeue, Nanos, Rate, SchedulerLimits};
use fairlane_testkit::check_is_due;

/// Makes a class and one more.
type Making = fn(&mut Tree<u32>, ClassId) -> [ClassId; 2];

const NOW: Nanos = Nanos::ZERO;

fn class(share: u32) -> ClassConfig {
    ClassConfig::new(weight(share), length(1500))
}

fn leaf(tree: &mut Tree<u32>, parent: ClassId) -> ClassId {
    let leaf = tree.add_leaf(parent, class(1), LeafConfig::default());
    leaf.unwrap()
}

/// Creates a tree, and where classes may be in it.
fn with_homes(algorithms: [Algorithm; 2]) -> (Tree<u32>, [ClassId; 3]) {
    let mut tree = Tree::new(Algorithm::Qfq, None, SchedulerLimits::default());
    let [one, other] = algorithms.map(|algorithm| {
        let home = tree.add_inner(ClassId::ROOT, class(1), algorithm);
        home.unwrap()
    });
    (tree, [ClassId::ROOT, one, other])
}

fn put(tree: &mut Tree<u32>, class: ClassId, number: u32) {
    let accepted = tree.enqueue(class, 0, length(1000), number, NOW);
    accepted.unwrap();
}

/// Returns the class and the packet that leave at a time; or the time when one may.
fn next(tree: &mut Tree<u32>, now: Nanos) -> Result<(ClassId, u32), Option<Nanos>> {
    let answer = tree.dequeue(now, |_| {});
    tree.invariants().unwrap();
    match answer {
        Dequeue::Packet(packet) => Ok((packet.owner, packet.payload)),
        Dequeue::NotBefore(time) => Err(Some(time)),
        Dequeue::Empty => Err(None),
    }
}

/// Packets come and go in the same way while a class stays and where it moves time and again.
fn leaves_in_the_same_order(mut stays: Tree<u32>, class_of: [ClassId; 5], moving: ClassId) {
    let homes: Vec<ClassId> = stays.children(ClassId::ROOT).collect();
    let homes = [ClassId::ROOT, homes[0], homes[1]];
    let mut moves = stays.clone();
    let mut random = Random(5);
    for number in 0..400 {
        if random.below(3) == 0 {
            let to = random.pick(&homes);
            let share = class(1 + random.below(9));
            moves.move_below(moving, to, share, NOW).unwrap();
            if check_is_due(6) {
                moves.invariants().unwrap();
            }
        }
        if random.below(5) < 2 {
            assert_eq!(next(&mut stays, NOW), next(&mut moves, NOW));
        } else {
            let flow = random.below(5);
            let (id, len) = (class_of[flow as usize], length(1 + random.below(1500)));
            for tree in [&mut stays, &mut moves] {
                let accepted = tree.enqueue(id, flow.into(), len, number, NOW);
                accepted.unwrap();
            }
        }
        assert_eq!(stays.stats(moving), moves.stats(moving));
    }
    assert!(stays.flows(moving).eq(moves.flows(moving)));
    while let Ok(packet) = next(&mut stays, NOW) {
        assert_eq!(next(&mut moves, NOW), Ok(packet));
    }
    assert!(moves.is_empty());
}

#[test]
fn flows_and_classes_leave_in_the_order_that_they_had_wherever_the_class_above_them_moves() {
    for &algorithm in Algorithm::ALL {
        let (mut tree, [root, ..]) = with_homes([Algorithm::Drr, Algorithm::Wf2qPlus]);
        let flows = tree.add_flows(root, class(1), FlowsConfig::new(algorithm));
        let flows = flows.unwrap();
        leaves_in_the_same_order(tree, [flows; 5], flows);

        let (mut tree, [root, ..]) = with_homes([Algorithm::Gfq, Algorithm::Priority]);
        let inner = tree.add_inner(root, class(1), algorithm).unwrap();
        let below = [1, 2, 3, 4, 5].map(|share| {
            let below = tree.add_leaf(inner, class(share), LeafConfig::default());
            below.unwrap()
        });
        leaves_in_the_same_order(tree, below, inner);
    }
}

#[test]
fn moved_class_has_neither_credit_nor_debt() {
    for &algorithm in Algorithm::ALL {
        if algorithm.follows_packets() || !matches!(algorithm.sharing(), Sharing::Weights) {
            continue;
        }
        let (mut tree, [_, here, there]) = with_homes([algorithm; 2]);
        let [old, new, moves] = [here, there, here].map(|home| leaf(&mut tree, home));
        for number in 0..300 {
            for id in [old, new, moves] {
                put(&mut tree, id, number);
            }
        }
        // It has a quarter of the link so far.
        for _ in 0..100 {
            next(&mut tree, NOW).unwrap();
        }
        tree.move_below(moves, there, class(1), NOW).unwrap();
        let sent: Vec<ClassId> = (0..160).map(|_| next(&mut tree, NOW).unwrap().0).collect();
        let of = |id: ClassId| sent.iter().filter(|&&sent| sent == id).count();
        for (id, expected) in [(old, 80), (new, 40), (moves, 40)] {
            let sent = of(id);
            assert!(sent.abs_diff(expected) <= 12, "{algorithm}: {sent} of {id}");
        }
    }
}

/// Eight seconds for a packet of 1,000 bytes.
fn held() -> ClassConfig {
    let rate = Rate::from_bps(1_000).unwrap();
    let ceiling = Some(Ceiling { rate, burst: 1000 });
    ClassConfig {
        ceiling,
        ..class(1)
    }
}

#[test]
fn moved_class_stays_held_by_its_ceiling() {
    let kinds: [Making; 3] = [
        |tree, home| [tree.add_leaf(home, held(), LeafConfig::default()).unwrap(); 2],
        |tree, home| {
            let flows = FlowsConfig::new(Algorithm::Qfq);
            [tree.add_flows(home, held(), flows).unwrap(); 2]
        },
        |tree, home| {
            let inner = tree.add_inner(home, held(), Algorithm::Drr).unwrap();
            [inner, leaf(tree, inner)]
        },
    ];
    for kind in kinds {
        let (mut tree, [_, here, there]) = with_homes([Algorithm::Drr, Algorithm::Qfq]);
        let [moves, below] = kind(&mut tree, here);
        (0..3).for_each(|number| put(&mut tree, below, number));
        assert_eq!(next(&mut tree, NOW), Ok((below, 0)));
        let Err(Some(release)) = next(&mut tree, NOW) else {
            panic!("nothing holds it");
        };
        let before = tree.stats(moves);
        tree.move_below(moves, there, held(), NOW).unwrap();
        assert_eq!(tree.stats(moves), before, "it is held, and not once more");
        assert_eq!(next(&mut tree, NOW), Err(Some(release)));
        assert_eq!(next(&mut tree, release), Ok((below, 1)));
        // Without a ceiling it may send at once.
        tree.move_below(moves, here, class(1), release).unwrap();
        assert_eq!(next(&mut tree, release), Ok((below, 2)));
        assert_eq!(next(&mut tree, release), Err(None));
    }
}

#[test]
fn moved_class_is_held_by_its_new_ceiling() {
    let (mut tree, [_, here, there]) = with_homes([Algorithm::Drr, Algorithm::Qfq]);
    let moves = tree.add_leaf(here, held(), LeafConfig::default()).unwrap();
    (0..2).for_each(|number| put(&mut tree, moves, number));
    assert_eq!(next(&mut tree, NOW), Ok((moves, 0)));
    let free = Nanos::from_millis(1);
    let rate = Rate::from_bps(1_000_000_000).unwrap();
    let fast = ClassConfig {
        ceiling: Some(Ceiling {
            rate,
            burst: 30_000,
        }),
        ..class(1)
    };
    tree.change(moves, fast, free).unwrap();
    assert_eq!(next(&mut tree, free), Ok((moves, 1)));
    for number in 2..4 {
        let accepted = tree.enqueue(moves, 0, length(1000), number, free);
        accepted.unwrap();
    }
    // It has its place in the order, and owes the slow ceiling two packets.
    tree.move_below(moves, there, held(), free).unwrap();
    let Err(Some(release)) = next(&mut tree, free) else {
        panic!("it is not held");
    };
    assert!(release > Nanos::from_millis(8_000), "{release:?}");
    assert_eq!(next(&mut tree, release), Ok((moves, 2)));
}

#[test]
fn move_keeps_the_state_of_queue_management() {
    let red = RedConfig::new(RedParameters {
        min: 2,
        max: 9,
        max_p: Probability::from_ppm(300_000).unwrap(),
        weight_shift: 2,
        ..RedParameters::default()
    });
    for aqm in [
        AqmConfig::Red(red.unwrap()),
        AqmConfig::Codel(CodelConfig::default()),
    ] {
        let (mut stays, homes) = with_homes([Algorithm::Drr, Algorithm::Gfq]);
        let queue = LeafConfig {
            aqm,
            ..LeafConfig::default()
        };
        let managed = stays.add_leaf(homes[1], class(1), queue).unwrap();
        let mut moves = stays.clone();
        let (mut random, mut now) = (Random(3), NOW);
        for number in 0..2_000 {
            now += Nanos::from_millis(1);
            if random.below(4) == 0 {
                let to = random.pick(&homes);
                moves.move_below(managed, to, class(1), now).unwrap();
            }
            let [here, there] = [&mut stays, &mut moves].map(|tree| {
                let accepted = tree.enqueue(managed, 0, length(500), number, now).is_ok();
                (accepted, (number % 8 > 0).then(|| next(tree, now)))
            });
            assert_eq!(here, there, "{number}");
        }
        let stats = stays.stats(managed).unwrap();
        assert!(stats.dropped.packets + stats.discarded.packets > 10);
        assert_eq!(moves.stats(managed), Some(stats));
    }
}

#[test]
fn moved_class_is_queued_behind_the_backlog_of_fifo() {
    let fifo = [Algorithm::Fifo; 2];
    let (mut tree, [_, here, there]) = with_homes(fifo);
    let [stays, moves, waits] = [here, here, there].map(|home| leaf(&mut tree, home));
    for number in 0..3 {
        for id in [stays, moves, waits] {
            put(&mut tree, id, number);
        }
    }
    tree.move_below(moves, there, class(1), NOW).unwrap();
    put(&mut tree, waits, 3);
    let mut sent = [Vec::new(), Vec::new()];
    while let Ok((id, number)) = next(&mut tree, NOW) {
        sent[usize::from(id != stays)].push((id, number));
    }
    assert_eq!(sent[0], [0, 1, 2].map(|number| (stays, number)));
    let behind = [0, 1, 2].map(|number| (moves, number));
    let before = [0, 1, 2].map(|number| (waits, number));
    assert_eq!(sent[1], [&before[..], &behind, &[(waits, 3)]].concat());
}
