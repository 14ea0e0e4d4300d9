//! Every algorithm there is, for the property test and the fuzz target of operations.

/// Hands every algorithm to the macro `$with`, for which `fairlane_core::sched` must be in
/// scope: its name, and how to make it from a starting virtual time and the most members of
/// an aggregate. New ones go to the end, so that the fuzzer's inputs keep their meaning.
macro_rules! algorithms {
    ($with:ident) => {
        $with! {
            fifo: |_, _| Fifo::new();
            drr: |_, _| Drr::new();
            qfq: |start, _| Qfq::starting_at(start);
            fifo_plus: |_, members| Plus::<Fifo>::new(members);
            drr_plus: |_, members| Plus::<Drr>::new(members);
            qfq_plus: |start, members| Plus::over(Qfq::starting_at(start), members);
            wf2q: |start, _| Wf2q::starting_at(start);
            wf2q_in_aggregates: |start, members| Plus::over(Wf2q::starting_at(start), members);
            wf2q_plus: |start, _| Wf2qPlus::starting_at(start);
            wf2q_plus_plus: |start, members| Plus::over(Wf2qPlus::starting_at(start), members);
            s_kps: |start, _| SKps::starting_at(start);
            s_kps_plus: |start, members| Plus::over(SKps::starting_at(start), members);
            gfq: |start, _| Gfq::starting_at(start);
            gfq_plus: |start, members| Plus::over(Gfq::starting_at(start), members);
            priority: |_, _| Priority::new();
            priority_plus: |_, members| Plus::<Priority>::new(members);
            sfq: |_, _| Sfq::new();
            sfq_of_few_buckets: |start, members| {
                Sfq::with(members, start.units(), core::num::NonZeroU64::new(100_000))
            };
            sfq_plus: |_, members| Plus::<Sfq>::new(members);
            scfq: |start, _| Scfq::starting_at(start);
            scfq_plus: |start, members| Plus::over(Scfq::starting_at(start), members);
            qfq_plus_seeing: |start, members| Plus::seeing(Qfq::starting_at(start), members);
            drr_plus_seeing: |_, members| Plus::seeing(Drr::new(), members);
            s_kps_late: |start, _| SKps::late(start);
            wfq: |start, _| Wfq::starting_at(start);
        }
    };
}
pub(crate) use algorithms;
