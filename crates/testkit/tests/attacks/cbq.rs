//! Leaves of CBQ that attack others.
//!
//! Three promises are measured: a leaf within its buffer reservation loses nothing; a leaf that may not borrow stays
//! within two percent of its rate, but for a burst; and the link does not idle while a leaf has packets that may borrow
//! from the link.

use fairlane_core::aqm::{AqmConfig, CodelConfig, CodelParameters};
use fairlane_core::room::Room;
use fairlane_core::tree::cbq::{Bursts, Cbq, CbqClass, PRIORITIES};
use fairlane_core::tree::{ClassId, Discarded, LeafConfig};
use fairlane_core::{Dequeue, Length, Limits, Nanos, Rate, SchedulerLimits};
use fairlane_testkit::guarantee::RATE;
use fairlane_testkit::numbers::length;
use fairlane_testkit::tape::Tape;

const DEPARTURES: u32 = 200;

struct Leaf {
    id: ClassId,
    class: CbqClass,
    room: Room,
    /// Whether it may borrow from the link, by way of the class above.
    borrows: bool,
    waiting: Room,
    sent: u64,
    /// The time of its first arrival.
    since: Option<u64>,
}

pub(crate) struct Play {
    tree: Cbq<usize>,
    leaves: Vec<Leaf>,
    now: u64,
    ratio: f64,
}

fn class(tape: &mut Tape) -> CbqClass {
    let longest = tape.pick(&[1500, 1000, 64, 9000]);
    let rate = Rate::from_bps(RATE >> (1 + tape.below(8))).unwrap();
    let max = 1 + tape.below(16);
    let bursts = Bursts {
        max,
        min: 1 + tape.below(max),
        packet: length(longest),
    };
    CbqClass {
        priority: tape.below(PRIORITIES),
        borrow: tape.below(2) == 0,
        bursts,
        ..CbqClass::new(rate, length(longest))
    }
}

impl Play {
    pub(crate) fn new(tape: &mut Tape) -> Play {
        let above: Vec<CbqClass> = (0..1 + tape.below(2)).map(|_| class(tape)).collect();
        let mut leaves = Vec::new();
        let mut kept = Room::NONE;
        for _ in 0..2 + tape.below(4) {
            let class = class(tape);
            let packets = tape.below(6);
            let bytes = packets * class.max_length.get();
            kept.packets += packets;
            kept.bytes += bytes;
            leaves.push(Leaf {
                id: ClassId::ROOT,
                class,
                room: Room { packets, bytes },
                borrows: false,
                waiting: Room::NONE,
                sent: 0,
                since: None,
            });
        }
        let limits = SchedulerLimits {
            packets: kept.packets + 1 + tape.below(8),
            bytes: u64::from(kept.bytes) + 9000,
            per_flow: Limits::NONE,
        };
        let mut tree = Cbq::new(Rate::from_bps(RATE).unwrap(), limits);
        let mut parents = vec![(ClassId::ROOT, true)];
        for class in above {
            let (parent, borrows) = tape.pick(&parents);
            let id = tree.add_inner(parent, class).unwrap();
            parents.push((id, borrows && class.borrow));
        }
        let codel = CodelParameters {
            target: Nanos(1),
            interval: Nanos::from_micros(10),
            max_packet: length(1),
            ecn: false,
        };
        for leaf in &mut leaves {
            let (parent, borrows) = tape.pick(&parents);
            let aqm = match tape.below(3) {
                0 => AqmConfig::Codel(CodelConfig::new(codel).unwrap()),
                _ => AqmConfig::TailDrop,
            };
            let config = LeafConfig {
                room: leaf.room,
                aqm,
                ..LeafConfig::default()
            };
            leaf.id = tree.add_leaf(parent, leaf.class, config).unwrap();
            leaf.borrows = borrows && leaf.class.borrow;
        }
        Play {
            tree,
            leaves,
            now: 0,
            ratio: 0.0,
        }
    }

    fn send(&mut self, which: usize, packets: u32, short: bool) -> Result<(), String> {
        for _ in 0..packets {
            let leaf = &mut self.leaves[which];
            let longest = leaf.class.max_length.get();
            let len = length(if short { longest.div_ceil(8) } else { longest });
            let within = leaf.waiting.packets < leaf.room.packets
                && leaf.waiting.bytes + len.get() <= leaf.room.bytes;
            leaf.since.get_or_insert(self.now);
            let (id, now) = (leaf.id, Nanos(self.now));
            let mut gone = Vec::new();
            let outcome = self
                .tree
                .offer(id, len, which, now, |packet| gone.push(packet));
            match outcome {
                Ok(()) => self.leaves[which].add(len),
                Err(rejected) if within => {
                    return Err(format!("rejected within its room: {:?}", rejected.reason));
                }
                Err(_) => {}
            }
            self.discard(&gone, true)?;
        }
        Ok(())
    }

    /// Counts packets that were evicted for others, or dropped by CoDel.
    fn discard(&mut self, gone: &[Discarded<usize>], evicted: bool) -> Result<(), String> {
        for packet in gone {
            let leaf = &mut self.leaves[packet.payload];
            let within =
                leaf.waiting.packets <= leaf.room.packets && leaf.waiting.bytes <= leaf.room.bytes;
            if within {
                return Err(format!("lost a packet within its room, evicted: {evicted}"));
            }
            leaf.take(packet.len);
        }
        Ok(())
    }

    fn react(&mut self, last: usize, tape: &mut Tape) -> Result<(), String> {
        for _ in 0..tape.below(4) {
            let which = match tape.below(3) {
                0 => last,
                _ => tape.below(64) as usize % self.leaves.len(),
            };
            let packets = tape.pick(&[0, 1, 1, 4, 20]);
            self.send(which, packets, tape.below(3) == 2)?;
        }
        Ok(())
    }

    pub(crate) fn run(&mut self, tape: &mut Tape) -> Result<(), String> {
        let (mut last, mut waits) = (0, 0);
        let mut sent = 0;
        while sent < DEPARTURES && waits < 2000 {
            self.react(last, tape)?;
            let mut gone = Vec::new();
            let next = self
                .tree
                .dequeue(Nanos(self.now), |packet| gone.push(packet));
            self.discard(&gone, false)?;
            match next {
                Dequeue::Packet(packet) => {
                    sent += 1;
                    last = packet.payload;
                    self.leaves[last].take(packet.len);
                    self.now += u64::from(packet.len.get());
                    self.measure(last, packet.len);
                }
                Dequeue::NotBefore(time) => {
                    let idles = |leaf: &&Leaf| leaf.borrows && leaf.waiting.packets > 0;
                    if let Some(leaf) = self.leaves.iter().find(idles) {
                        return Err(format!("the link idles, and {} may borrow", leaf.id));
                    }
                    self.now = time.0.min(self.now + 1 + u64::from(tape.below(65_536)));
                    waits += 1;
                }
                Dequeue::Empty => {
                    self.now += 1 + u64::from(tape.below(4096));
                    waits += 1;
                }
            }
        }
        let invariants = self.tree.invariants();
        invariants.map_err(|violation| violation.to_string())
    }

    /// Compares what a leaf sent that may not borrow with its rate and burst.
    fn measure(&mut self, which: usize, len: Length) {
        let leaf = &mut self.leaves[which];
        leaf.sent += u64::from(len.get());
        if leaf.class.borrow {
            return;
        }
        let time = (self.now - leaf.since.unwrap_or(0)) as f64;
        let rate = leaf.class.rate.bps() as f64 / RATE as f64;
        let burst =
            (leaf.class.bursts.max + leaf.class.bursts.min + 2) * leaf.class.max_length.get();
        let most = 1.02 * rate * time + f64::from(burst);
        self.ratio = self.ratio.max(leaf.sent as f64 / most);
    }
}

impl Leaf {
    fn add(&mut self, len: Length) {
        self.waiting.packets += 1;
        self.waiting.bytes += len.get();
    }

    fn take(&mut self, len: Length) {
        self.waiting.packets -= 1;
        self.waiting.bytes -= len.get();
    }
}

/// Returns the largest ratio of a play.
pub(crate) fn play(tape: &mut Tape) -> Result<f64, String> {
    let mut play = Play::new(tape);
    tape.repeat();
    play.run(tape)?;
    Ok(play.ratio)
}
