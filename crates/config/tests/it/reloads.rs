//! A link is reloaded again and again. A class that keeps to its rate and burst throughout loses no packet, though
//! floods fill the link and everything else changes.

use std::fmt::Write;

use fairlane_config::{ClassKind, Link, Site, Steps};
use fairlane_core::tree::{ClassId, ClassQueue, Discarded};
use fairlane_core::{Dequeue, Discipline, Length, Nanos};

use crate::guarantees::Random;

const LONGEST: u64 = 1_500;

/// Owners of packets.
const MINE: u32 = 1;
const THEIRS: u32 = 0;

/// The rate of the class that is kept, in Mbit/s.
const OURS: u64 = 700;

/// Returns a link with our class and a few others, which may be in the next link too, with other parameters. `limit` is
/// the link's limit, in packets and bytes.
fn site(random: &mut Random, algorithm: &str, limit: Option<(u64, u64)>) -> String {
    let rate = random.of(&[6_000, 8_000, 9_000]);
    let mut text = format!(
        "[[link]]\nname = 'l'\nrate = '{rate}mbit'\nlongest = '{LONGEST}b'\nalgorithm = '{algorithm}'\n"
    );
    if let Some((packets, bytes)) = limit {
        writeln!(
            text,
            "limit = {{ packets = {packets}, bytes = '{bytes}b' }}"
        )
        .unwrap();
    }
    writeln!(text, "[[link.class]]\nname = 'ours'\nrate = '{OURS}mbit'").unwrap();
    let mut rest = rate - OURS;
    for number in 0..8 {
        if random.one_in(3) {
            continue;
        }
        writeln!(text, "[[link.class]]\nname = 'c{number}'").unwrap();
        let mut has = 0;
        if random.one_in(2) && rest > 10 {
            has = 1 + random.below(rest);
            rest -= has;
            writeln!(text, "rate = '{has}mbit'").unwrap();
        }
        if has == 0 || random.one_in(3) {
            writeln!(text, "weight = {}", 1 + random.below(20)).unwrap();
        }
        if random.one_in(4) {
            writeln!(text, "ceil = '{}mbit'", has + 1 + random.below(rate - has)).unwrap();
        }
        if number < 2 {
            let most = 1 + random.below(6);
            writeln!(text, "per = 'source-ip'\nflows = {{ most = {most} }}").unwrap();
        } else if random.one_in(3) {
            let packets = 10 + random.below(100);
            writeln!(
                text,
                "room = {{ packets = {packets}, bytes = '{}b' }}",
                packets * LONGEST
            )
            .unwrap();
        }
    }
    text
}

fn link(text: &str) -> Link {
    let site = Site::parse(text, "site.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    (*site.links[0]).clone()
}

/// A running link with floods and the class that keeps to its rate and burst.
struct Running<'a> {
    random: &'a mut Random,
    link: Link,
    queues: Discipline<u32>,
    ids: Vec<ClassId>,
    /// In bit/s.
    rate: u64,
    now: f64,
    /// Bytes that our class may send now, up to `burst`.
    tokens: f64,
    burst: f64,
    next: f64,
    /// Number of our packets sent.
    ours: u64,
}

impl Running<'_> {
    fn time(&self) -> Nanos {
        Nanos(self.now as u64)
    }

    /// Enqueues a packet of our class.
    fn offer_ours(&mut self, bytes: u64) {
        let place = self.link.classes.iter().position(|c| &*c.name == "ours");
        let class = self.ids[place.unwrap()];
        let length = Length::new(bytes as u32).unwrap();
        let now = self.time();
        let gone =
            |gone: Discarded<u32>| assert_ne!(gone.payload, MINE, "ours gives way to itself");
        let offered = self.queues.enqueue(class, 0, length, MINE, now, gone);
        offered.unwrap_or_else(|refused| panic!("ours is refused at {now:?}: {}", refused.reason));
    }

    /// Enqueues packets to classes other than ours.
    fn flood(&mut self, packets: usize) {
        for _ in 0..packets {
            let place = self.random.below(self.link.classes.len() as u64) as usize;
            let class = &self.link.classes[place];
            if &*class.name == "ours" || matches!(class.kind, ClassKind::Inner(_)) {
                continue;
            }
            let length = Length::new(self.random.of(&[1u32, 60, 1500])).unwrap();
            let flow = self.random.below(20);
            let (id, now) = (self.ids[place], self.time());
            let _ = self.queues.enqueue(id, flow, length, THEIRS, now, kept);
        }
    }

    /// Runs arrivals and departures for `span` nanoseconds.
    fn go_on(&mut self, span: f64) {
        let until = self.now + span;
        while self.now < until {
            if self.now >= self.next {
                self.next = self.now + self.random.below(30_000) as f64;
                let bytes = self.random.of(&[60, LONGEST]);
                while self.tokens >= bytes as f64 && !self.random.one_in(50) {
                    self.tokens -= bytes as f64;
                    self.offer_ours(bytes);
                }
            }
            self.queues.expire_idle(self.time());
            self.flood(6);
            let before = self.now;
            match self
                .queues
                .dequeue(self.time(), |_| panic!("nothing is dropped late"))
            {
                Dequeue::Packet(packet) => {
                    self.now += f64::from(packet.len.get()) * 8e9 / self.rate as f64;
                    self.ours += u64::from(packet.payload == MINE);
                }
                Dequeue::NotBefore(time) => {
                    self.now = (time.0 as f64).clamp(self.now + 1.0, self.now + 10_000.0);
                }
                Dequeue::Empty => self.now += 1_000.0,
            }
            let rate = OURS as f64 * 1e6 / 8e9;
            self.tokens = (self.tokens + rate * (self.now - before)).min(self.burst);
        }
    }

    /// Runs the link for up to a few packets between two steps.
    fn between(&mut self) {
        let span = self.random.of(&[0.0, 1.0, 5_000.0]);
        self.go_on(span);
    }

    /// Changes to another link, one class at a time, as the program does in steps of many.
    fn become_link(&mut self, new: Link, steps: &Steps) {
        let mut ids: Vec<ClassId> = (steps.stays.iter())
            .map(|was| was.map_or(ClassId::ROOT, |was| self.ids[was]))
            .collect();
        for &place in &steps.added {
            ids[place] = new
                .add_class(&mut self.queues, place, ClassId::ROOT)
                .unwrap();
            self.between();
        }
        for &place in &steps.changed {
            let now = self.time();
            new.change_class(&mut self.queues, place, ids[place], now)
                .unwrap();
            self.queues.invariants().unwrap();
            self.between();
            while !self.queues.go_on_changing(ids[place], &mut 2, self.time()) {
                self.queues.invariants().unwrap();
                self.between();
            }
        }
        // In one step, since few packets move.
        let former = std::mem::replace(&mut self.ids, ids);
        let default = self.ids[new.default as usize];
        self.rate = new.rate.bps();
        self.link = new;
        let now = self.time();
        let mut moved = Vec::new();
        for &place in &steps.gone {
            let mut from = 0;
            let take = |packet| moved.push(packet);
            assert!(
                self.queues
                    .take_out(former[place], &mut from, &mut { usize::MAX }, now, take)
            );
        }
        for packet in moved {
            let Discarded { len, payload, .. } = packet;
            let _ = self.queues.enqueue(default, 0, len, payload, now, kept);
        }
        for &place in &steps.gone {
            let id = former[place];
            while (self.queues)
                .go_on_removing(id, &mut 1, |_| panic!("it is empty"))
                .unwrap()
                .is_none()
            {
                self.between();
            }
            self.between();
        }
        self.queues.invariants().unwrap();
    }
}

/// Checks that an evicted packet is not ours.
fn kept(gone: Discarded<u32>) {
    assert_ne!(gone.payload, MINE, "a packet of ours gives way to a flood");
}

/// Returns the burst that a link guarantees to our class.
fn burst(link: &Link) -> u64 {
    let place = link.classes.iter().position(|class| &*class.name == "ours");
    link.guarantees()[place.unwrap()].burst.unwrap()
}

#[test]
fn whoever_keeps_to_his_rate_loses_nothing_while_all_others_are_changed() {
    let cases = std::env::var("FAIRLANE_CASES").map_or(30, |cases| cases.parse().unwrap());
    let (mut reloads, mut ours) = (0, 0);
    for seed in 0..cases {
        println!("seed {seed}");
        let mut random = Random(seed);
        let algorithm = random.of(&["wf2q+", "qfq", "drr", "qfq+", "s-kps", "gfq"]);
        // The same random sites with the smallest shared part that suffices for all of them.
        let seeds: Vec<u64> = (0..12).map(|n| seed * 100 + n).collect();
        let free = |seed: &u64| link(&site(&mut Random(*seed), algorithm, None));
        let kept: Vec<(u64, u64)> = seeds.iter().map(|seed| free(seed).kept()).collect();
        let packets = kept.iter().map(|kept| kept.0).max().unwrap();
        let bytes = kept.iter().map(|kept| kept.1).max().unwrap();
        // Enough for classes that are added before others are removed.
        let limit = (packets * 3 / 2, bytes * 3 / 2);
        let links = seeds
            .iter()
            .map(|seed| link(&site(&mut Random(*seed), algorithm, Some(limit))));
        let mut links: Vec<Link> = links.collect();
        let burst = links.iter().map(burst).min().unwrap() as f64;
        let first = links.remove(0);
        let (queues, ids) = first.discipline();
        let mut running = Running {
            random: &mut random,
            rate: first.rate.bps(),
            link: first,
            queues,
            ids,
            now: 0.0,
            tokens: burst,
            burst,
            next: 0.0,
            ours: 0,
        };
        for next in links {
            let span = running.random.below(300_000) as f64;
            running.go_on(span);
            if let Some(steps) = next.steps_from(&running.link) {
                reloads += 1;
                running.become_link(next, &steps);
            }
        }
        running.go_on(300_000.0);
        ours += running.ours;
    }
    println!("{reloads} reloads, {ours} packets of ours");
    assert!(reloads > 5 * cases, "only {reloads} reloads class by class");
    assert!(ours > 100 * cases, "only {ours} packets of ours");
}
