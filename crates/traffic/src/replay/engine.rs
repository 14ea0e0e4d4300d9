//! The simulated link between two files: arrivals in, departures out.

use anyhow::{Context, Result, ensure};
use fairlane_core::Nanos;
use fairlane_sim::{Completion, Label, Observer, Picos, Queue, Server, Step, Waiting};

use super::arrivals::{Arrival, Arrivals, Body};
use super::departures::{Departure, Departures};

/// The stage before the link: flows, or the classes of a site.
pub(super) trait ReplayStage<Q, O, L, B> {
    /// Returns the overhead in bytes per packet on the link.
    fn overhead(&self) -> u32;

    /// Passes an arriving packet to the queue.
    fn arrive(&mut self, at: &mut Server<Q, O, L, B>, arrival: Arrival<L, B>) -> Result<()>;

    /// Returns the number of `whose` in the departures.
    fn number(&self, whose: L) -> u32;

    /// Returns its name in errors.
    fn name(&self, whose: L) -> String;
}

/// Sends all `arrivals` over the link. Returns the time from the first arrival to the last departure. Memory depends on
/// the backlog and the number of flows, not on the number of packets.
pub(super) fn replay<Q, O, L, B>(
    server: &mut Server<Q, O, L, B>,
    course: &mut impl ReplayStage<Q, O, L, B>,
    arrivals: &mut (impl Arrivals<L, B> + ?Sized),
    departures: &mut (impl Departures + ?Sized),
) -> Result<Picos>
where
    Q: Queue<L, Waiting<L, B>>,
    O: Observer<L>,
    L: Label,
    B: Body,
{
    let mut next = arrivals.next()?;
    let first = next.as_ref().map_or(Picos::ZERO, Arrival::at);
    let (mut last, mut until) = (first, next.as_ref().map_or(Picos::MAX, Arrival::at));
    loop {
        // Arrivals precede departures at the same instant: they count when the next packet is selected.
        let dequeued = match server.step_before(until) {
            Some(Step::Completed(sent, body)) => {
                last = sent.end.time;
                departures.write(&departure(course, &sent, &body)?)?;
                continue;
            }
            Some(step) => matches!(step, Step::Dequeued(..)),
            None => {
                let Some(arrival) = next.take() else { break };
                let arrived = course.arrive(server, arrival);
                arrived.with_context(|| arrivals.place())?;
                next = arrivals.next()?;
                until = next.as_ref().map_or(Picos::MAX, Arrival::at);
                continue;
            }
        };
        // The queue was asked.
        if dequeued || server.is_idle() {
            server.expire_idle();
        }
    }
    server.finish();
    Ok(last - first)
}

fn departure<'a, Q, O, L: Label, B: Body>(
    course: &impl ReplayStage<Q, O, L, B>,
    sent: &Completion<L>,
    body: &'a B,
) -> Result<Departure<'a>> {
    let packet = &sent.packet;
    let (start, end) = (sent.start.time.to_nanos(), sent.end.time.to_nanos());
    let arrival = packet.arrival.to_nanos();
    ensure!(
        end < Nanos::MAX,
        "the packet of {} that arrives at {} leaves after {} ns, the end of the time range",
        course.name(packet.flow),
        arrival.0,
        u64::MAX
    );
    Ok(Departure {
        start: start.0,
        end: end.0,
        flow: course.number(packet.flow),
        len: packet.len.get() - course.overhead(),
        arrival: arrival.0,
        bytes: body.bytes(),
    })
}
