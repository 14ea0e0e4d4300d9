//! All algorithms of the core conform, each with its claims.

use fairlane_core::sched::{AUTOMATIC_MEMBERS, Algorithm, Plus, Qfq, SKps};
use fairlane_core::{Scheduler, VirtualTime, with_algorithm};
use fairlane_testkit::{Conformance, Scale, Shares};

/// Adds the claims of the algorithm that differ from the usual ones.
fn claims<A: Scheduler + 'static>(algorithm: Algorithm, all: Conformance<A>) -> Conformance<A> {
    let all = match algorithm {
        Algorithm::Fifo | Algorithm::Sfq => all.shares(Shares::Not).scale(Scale::Exact),
        Algorithm::Priority => all.shares(Shares::AmongEquals).scale(Scale::Exact),
        Algorithm::Drr | Algorithm::DrrPlus(_) => all.scale(Scale::Exact),
        // Its fluid server divides by the sum of the backlogged weights, which can be any number.
        Algorithm::Wfq | Algorithm::Wf2q => all.scale(Scale::Free),
        _ => all,
    };
    let has_aggregates = algorithm != algorithm.with_members(core::num::NonZeroU32::MAX);
    let all = if has_aggregates {
        all.never_held()
    } else {
        all
    };
    all.guarantees(algorithm)
}

fn conforms(algorithm: Algorithm) {
    with_algorithm!(algorithm, new => claims(algorithm, Conformance::of(new)).assert());
}

/// One test per algorithm, so that they run in parallel.
macro_rules! tests {
    ($($test:ident: $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                conforms($name.parse().unwrap());
            }
        )*

        #[test]
        fn every_algorithm_is_tested() {
            let all = Algorithm::ALL.iter().copied();
            assert!(all.map(Algorithm::name).eq([$($name),*]));
        }
    };
}

tests! {
    fifo_conforms: "fifo";
    drr_conforms: "drr";
    wfq_conforms: "wfq";
    wf2q_conforms: "wf2q";
    wf2q_plus_conforms: "wf2q+";
    scfq_conforms: "scfq";
    qfq_conforms: "qfq";
    qfq_plus_conforms: "qfq+";
    s_kps_conforms: "s-kps";
    gfq_conforms: "gfq";
    priority_conforms: "priority";
    sfq_conforms: "sfq";
    wf2q_plus_plus_conforms: "wf2q++";
    s_kps_plus_conforms: "s-kps+";
    gfq_plus_conforms: "gfq+";
    drr_plus_conforms: "drr+";
}

/// Variants without a name: for owners that see the next packet, and for comparison with the papers.
#[test]
fn qfq_plus_that_sees_the_next_packet_conforms() {
    let most = AUTOMATIC_MEMBERS;
    let seeing = Conformance::of(move || Plus::seeing(Qfq::new(), most));
    claims(Algorithm::QfqPlus(most), seeing).assert();
}

#[test]
fn s_kps_with_late_release_conforms() {
    let late = Conformance::of(|| SKps::late(VirtualTime::new(0)));
    claims(Algorithm::SKps, late).assert();
}
