//! Our bounds next to the best published ones: the table of `docs/bounds.md`.

use crate::support::{length, weight};
use fairlane_core::bounds::{Head, Service, Siblings, Transmit};
use fairlane_core::sched::{AUTOMATIC_MEMBERS, Algorithm};
use fairlane_core::{Length, Nanos, Rate, Weight};

/// A byte in a microsecond.
const BYTE: u64 = 8_000_000;
const L: u32 = 1000;

fn rate(bps: u64) -> Rate {
    Rate::from_bps(bps).unwrap()
}

/// Returns a link without a packet on the wire: published bounds count none either.
fn link() -> Service {
    Service::of_level(rate(BYTE), None, 0, 0).unwrap()
}

/// Flows by weight, `L` long.
fn flows(algorithm: Algorithm, weights: &[(u32, u32)]) -> Siblings {
    let of = |&(of, count): &(u32, u32)| (weight(of), length(L), count);
    Siblings::new(algorithm, weights.iter().map(of))
}

/// Returns the delay in us of a flow that keeps to its rate and to a burst of one packet; of one packet at an idle
/// flow.
fn delays(siblings: &Siblings, of: u32) -> [f64; 2] {
    let (of, long) = (weight(of), length(L));
    let wfi = siblings
        .bound(of, long, Head::Known, Transmit::Between)
        .unwrap();
    let (share, link) = (siblings.share(of), link());
    [
        link.conforming_delay(share, wfi, L.into()),
        link.delay_below(share, wfi, L.into()),
    ]
    .map(micros)
}

fn micros(delay: Nanos) -> f64 {
    delay.0 as f64 / 1000.0
}

/// Returns a class of half the link, and a flow of a quarter of that.
fn two_levels() -> f64 {
    let (one, long) = (Weight::ONE, length(L));
    let bound = |of: u32, head| {
        let siblings = flows(Algorithm::Wf2qPlus, &[(1, of)]);
        siblings.bound(one, long, head, Transmit::Between).unwrap()
    };
    let class = link().child(0.5, bound(2, Head::Longest));
    micros(class.conforming_delay(0.25, bound(4, Head::Known), L.into()))
}

/// Returns a flow of 1% next to one of 99% that keeps to 2 of 8 Mbit/s and bursts of 3 packets.
fn next_to_a_ceiling() -> f64 {
    let long = length(L);
    let siblings = flows(Algorithm::Wf2qPlus, &[(1, 1), (99, 1)]);
    let siblings = siblings.with_ceilings([(weight(99), long, rate(2_000_000), 3 * L)]);
    let child = (weight(1), long, Head::Known);
    let (left, share, wfi) = siblings
        .residual(Service::of_link(rate(BYTE), length(1)), child, None)
        .unwrap();
    micros(left.conforming_delay(share, wfi, L.into()))
}

/// 100 bytes at 0.8 Mbit/s before 1,500 at 12 Mbit/s on 1 Gbit/s.
fn levels() -> [f64; 2] {
    let of = |below: Option<u32>, bps, burst, own| {
        let below = below.map(length);
        let service: Option<Service> = Service::of_level(rate(1_000_000_000), below, bps, burst);
        micros(service.unwrap().delay(own))
    };
    [of(Some(1500), 0, 0, 100), of(None, 800_000, 100, 1500)]
}

/// A setting and the source of its formula, the published bound and ours in us.
fn table() -> Vec<(&'static str, f64, f64)> {
    let equal = |algorithm| delays(&flows(algorithm, &[(1, 10)]), 1);
    let plus = Algorithm::QfqPlus(AUTOMATIC_MEMBERS);
    let [high, low] = levels();
    let length: Length = length(L);
    let (l, all) = (f64::from(length.get()), 10.0 * f64::from(L));
    vec![
        (
            "WF2Q+, 10 equal flows: Bennett, Zhang 1997, b / g + L / R",
            all + l,
            equal(Algorithm::Wf2qPlus)[0],
        ),
        (
            "SCFQ, 10 equal flows: Golestani 1994, b / g + 9 L / R",
            all + 9.0 * l,
            equal(Algorithm::Scfq)[0],
        ),
        (
            "DRR, 10 equal flows: Stiliadis, Varma 1998, b / g + (3 F - 2 q) / R",
            all + 28.0 * l,
            equal(Algorithm::Drr)[0],
        ),
        (
            "DRR, weight 9 next to 1: Stiliadis, Varma 1998, b / g + (3 F - 2 q) / R",
            l / 0.9 + 12.0 * l,
            delays(&flows(Algorithm::Drr, &[(9, 1), (1, 1)]), 9)[0],
        ),
        (
            "DRR, 10 equal flows, a packet at an idle flow: Tabatabaee, Le Boudec 2022, Theorem 1 with Q = L, d = L - 1",
            1.0 + 9.0 * (3.0 * l - 1.0) + l - 1.0,
            equal(Algorithm::Drr)[1],
        ),
        (
            "GFQ, 10 equal flows: QFQ+ paper, Eq. 2 with sigma = 2 L / phi, b / g + (5 L / phi) / R",
            all + 5.0 * all,
            equal(Algorithm::Gfq)[0],
        ),
        (
            "QFQ, 10 equal flows: QFQ+ paper, Eq. 2, b / g + (7 L / phi) / R",
            all + 7.0 * all,
            equal(Algorithm::Qfq)[0],
        ),
        (
            "QFQ+, 16 equal flows, M = 8: QFQ+ paper, Eq. 22, b / g + (11 - 1 / 8) (L / phi) / R",
            16.0 * l + (11.0 - 1.0 / 8.0) * 16.0 * l,
            delays(&flows(plus, &[(1, 16)]), 1)[0],
        ),
        (
            "S-KPS, 10 equal flows: QFQ report, b / g + (6 sigma + 2 L) / R with sigma = 2 L / phi",
            all + 12.0 * all + 2.0 * l,
            equal(Algorithm::SKps)[0],
        ),
        (
            "WF2Q+ in two levels, 1/4 of 1/2: Bennett, Zhang 1997, b / g + L / g + L / (R / 2)",
            8.0 * l + 8.0 * l + 2.0 * l,
            two_levels(),
        ),
        (
            "WF2Q+, 1% next to 99% that sends 3 L + 2/8 R t: Parekh, Gallager 1993, (b + 3 L) / (R - 2/8 R) + L / R",
            4.0 * l / 0.75 + l,
            next_to_a_ceiling(),
        ),
        ("Priority, high level of the hand calculation", 12.800, high),
        ("Priority, low level of the hand calculation", 12.955, low),
    ]
}

#[test]
fn no_published_bound_is_below_ours() {
    let page = include_str!("../../../../docs/bounds.md");
    for (setting, published, ours) in table() {
        assert!(ours <= published + 0.01, "{setting}: {ours} of {published}");
        let row = format!("| {setting} | {published:.3} | {ours:.3} |");
        assert!(page.contains(&row), "docs/bounds.md: no row {row}");
    }
}
