//! A language-model server with four slots, and three tenants with a constant backlog of requests. The length of an
//! answer is not known in advance: requests are charged by an estimate, and corrected after the answer. Shares of the
//! tokens follow the weights, whatever the estimates: `cargo run -p fairlane --example inference`

use std::error::Error;

use fairlane::sched::Qfq;
use fairlane::{Cost, CostScheduler, FlowConfig, SchedulerLimits, Unit, Weight};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Tokens;

impl Unit for Tokens {
    const NAME: &'static str = "tokens";
}

/// Most that a request and its answer may have together.
const CONTEXT: u32 = 131_072;
const PLACES: usize = 4;

/// Weight, estimate, and actual length of requests and answers.
const TENANTS: [(u32, u32, u32); 3] = [
    (1, 2_000, 2_000),  // knows
    (2, 300, 9_000),    // says less
    (1, 60_000, 1_200), // says more
];

fn main() -> Result<(), Box<dyn Error>> {
    let limits = SchedulerLimits::for_costs();
    let mut queue: CostScheduler<_, u32, Tokens> =
        CostScheduler::for_costs(Qfq::for_costs(), limits);
    let mut tenants = Vec::new();
    for (weight, estimate, length) in TENANTS {
        let config = FlowConfig::new(Weight::try_from(weight)?, Cost::try_from(CONTEXT)?);
        let tenant = queue.add_flow(config)?;
        for _ in 0..PLACES {
            queue.enqueue(tenant, Cost::try_from(estimate)?, length)?;
        }
        tenants.push((tenant, 0u64));
    }
    let mut answering = std::collections::VecDeque::new();
    for _ in 0..20_000 {
        // A place is free: the oldest answer is complete, and its length known.
        if answering.len() == PLACES {
            let (ticket, length) = answering.pop_front().ok_or("no request is answered")?;
            queue.correct(ticket, Cost::clamped(length))?;
        }
        let (request, ticket) = queue.serve().ok_or("nobody asks")?;
        tenants[request.owner.number() as usize].1 += u64::from(request.payload);
        answering.push_back((ticket, request.payload.into()));
        queue.enqueue(request.owner, request.len, request.payload)?;
    }
    let all: u64 = tenants.iter().map(|(_, tokens)| tokens).sum();
    for ((tenant, tokens), (weight, estimate, length)) in tenants.iter().zip(TENANTS) {
        let share = 100.0 * *tokens as f64 / all as f64;
        println!("tenant {tenant} of weight {weight}, {estimate} for {length}: {share:.1}%");
    }
    Ok(())
}
