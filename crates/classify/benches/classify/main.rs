//! The cost of a packet from its bytes to a rule, and of each part: by the number of rules and the
//! kind of list, compared with a walk through the rules in order.
//!
//! `cargo bench -p fairlane-classify`

mod lists;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fairlane_classify::{Classifier, DigestKey, Origin, Per, Rule};
use fairlane_wire::{Headers, Layer, mark_ce, parse};
use lists::{KINDS, frames, list};

const RULES: [usize; 4] = [10, 100, 1_000, 10_000];
/// Enough that no branch predictor learns them by heart.
const FRAMES: usize = 4096;

/// One frame after the other.
struct Turns {
    frames: Vec<Vec<u8>>,
    next: usize,
}

impl Turns {
    fn new(rules: &[Rule]) -> Self {
        let frames = frames(rules, FRAMES);
        Turns { frames, next: 0 }
    }

    fn frame(&mut self) -> &[u8] {
        self.next = (self.next + 1) % FRAMES;
        black_box(&self.frames[self.next])
    }

    fn headers(&mut self) -> Headers {
        parse(self.frame(), Layer::Ethernet).expect("whole")
    }
}

/// Returns the rules in order, until one matches.
fn walk(rules: &[Rule], headers: &Headers, origin: &Origin) -> Option<u32> {
    let matches = |rule: &&Rule| rule.matches.matches(headers, origin);
    rules.iter().find(matches).map(|rule| rule.target)
}

fn searches(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse+classify");
    group.throughput(Throughput::Elements(1));
    for kind in KINDS {
        for rules in RULES {
            let list = list(kind, rules);
            let classifier = Classifier::new(list.clone());
            let mut turns = Turns::new(&list);
            group.bench_function(BenchmarkId::new(kind, rules), |b| {
                b.iter(|| classifier.classify(&turns.headers(), &Origin::default()));
            });
            println!("{:?}", classifier.effort());
        }
    }
    group.finish();
}

fn walks(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse+walk");
    group.throughput(Throughput::Elements(1));
    for kind in ["destinations", "firewall"] {
        for rules in RULES {
            let list = list(kind, rules);
            let mut turns = Turns::new(&list);
            group.bench_function(BenchmarkId::new(kind, rules), |b| {
                b.iter(|| walk(&list, &turns.headers(), &Origin::default()));
            });
        }
    }
    group.finish();
}

fn parts(c: &mut Criterion) {
    let mut group = c.benchmark_group("parts");
    let mut turns = Turns::new(&list("firewall", 1000));
    group.bench_function("parse", |b| b.iter(|| black_box(turns.headers())));
    let mut v6 = Turns::new(&list("firewall v6", 1000));
    group.bench_function("parse v6", |b| b.iter(|| black_box(v6.headers())));
    let key = DigestKey([1, 2]);
    group.bench_function("parse+digest, 5-tuple", |b| {
        b.iter(|| Per::FiveTuple.digest(&turns.headers(), &Origin::default(), &key));
    });
    group.bench_function("parse+digest, source", |b| {
        b.iter(|| Per::SourceIp.digest(&turns.headers(), &Origin::default(), &key));
    });
    let mut frame = turns.frame().to_vec();
    group.bench_function("mark", |b| {
        b.iter(|| {
            frame[15] = 2;
            mark_ce(black_box(&mut frame), Layer::Ethernet)
        });
    });
    group.finish();
}

fn lists_made(c: &mut Criterion) {
    let mut group = c.benchmark_group("10,000 rules");
    group.sample_size(10);
    for kind in KINDS {
        let rules = list(kind, 10_000);
        group.bench_function(BenchmarkId::new("make", kind), |b| {
            b.iter(|| Classifier::new(black_box(rules.clone())));
        });
        let classifier = Classifier::new(rules);
        group.bench_function(BenchmarkId::new("find the unreachable", kind), |b| {
            b.iter(|| classifier.unreachable());
        });
    }
    group.finish();
}

criterion_group!(benches, parts, searches, walks, lists_made);
criterion_main!(benches);
