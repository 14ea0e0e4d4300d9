//! The number of threads of a site at each interface, and their cores.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use fairlane_config::{Backend, Interfaces, Near, Role, Site, Workers};
use fairlane_io::interface::rx_queues;
use fairlane_runtime::Clock;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::classifier::random_key;
use crate::device::opener::properties;
use crate::device::xdp;
use crate::error::{Context, Result, unfit};
use crate::interfaces::{named, near_role};
use crate::transmitting::TransmitOptions;
use crate::workers::WorkerOptions;

/// More than a worker's stack ever has.
pub const STACK: usize = 1 << 20;

/// Returns the configured workers of a site, by side. If the file leaves their number to the machine, it is one with
/// `alone` and packet sockets.
///
/// # Errors
///
/// It names a core that is not there, or asks for more workers than can be.
pub fn worker_options(
    site: &Site,
    clock: Clock,
    alone: bool,
) -> Result<[Option<WorkerOptions>; 2]> {
    let (Some(workers), Some(interfaces)) = (&site.workers, &site.interfaces) else {
        return Ok([None, None]);
    };
    let here = sched_getaffinity(None).doing("asking which cores there are")?;
    let is_here = |&core: &usize| core < CpuSet::MAX_CPU && here.is_set(core);
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(is_here).collect();
    if let Some(core) = workers.cores.iter().find(|core| !is_here(core)) {
        let all: Vec<_> = all.iter().map(ToString::to_string).collect();
        return unfit(format!(
            "[workers] names core {core}, and this process may run on {} alone: name one of these, or \
             leave out 'cores'",
            all.join(", ")
        ));
    }
    for (asked, that) in [(workers.receive, ""), (workers.transmit, " that transmit")] {
        if let Some(count) = asked.filter(|&count| count > all.len().max(1)) {
            return unfit(format!(
                "[workers] asks for {count} threads{that} at each interface, and the cores that this process may run \
                 on are {}: ask for no more than these, or for \"auto\"",
                all.len()
            ));
        }
    }
    if interfaces.backend == Backend::Xdp {
        have_queues(interfaces, workers)?;
    }
    let is_limited = alone && interfaces.backend == Backend::Packet;
    if let Some(count) = workers.receive.filter(|&count| is_limited && count > 1) {
        return unfit(format!(
            "[workers] asks for {count} threads at each interface, and with --fail-open there can be one: \
             their sockets cannot wait for the moment at which this process begins"
        ));
    }
    if workers.arbiters == Some(2) && all.len() < 2 {
        return unfit(
            "[workers] asks for a thread that decides for each link, and this process may run on one core alone: \
             leave out 'arbiters'",
        );
    }
    let receive = counts(site, alone);
    let [near, outside] = transmit_counts(site, receive);
    // A list of cores requires the number of threads.
    let [of_receive, of_transmit] =
        [workers.receive, workers.transmit].map(Option::unwrap_or_default);
    let sides = receive.iter().flatten().count();
    let (to_receive, to_transmit) = match workers.cores.is_empty() {
        true => workers.cores.split_at(0),
        false => workers.cores.split_at(sides * of_receive),
    };
    let mut to_receive = to_receive.chunks(of_receive.max(1));
    let mut to_transmit = to_transmit.chunks(of_transmit.max(1));
    let backend = properties(interfaces.backend);
    let mut options = |role: Role, count, transmit| WorkerOptions {
        clock,
        filters: Arc::default(),
        ingress: role.ingress(),
        count,
        cores: to_receive.next().unwrap_or_default().to_vec(),
        stack: STACK,
        transmit: (transmit > 0).then(|| TransmitOptions {
            clock,
            count: transmit,
            cores: to_transmit.next().unwrap_or_default().to_vec(),
            key: random_key(),
            stack: STACK,
            budget: backend.budget,
            cost: backend.cost,
        }),
    };
    let [of_near, of_outside] = receive;
    let near = of_near.map(|count| options(near_role(interfaces), count, near));
    let outside = of_outside.map(|count| options(Role::Outside, count, outside));
    Ok([near, outside])
}

/// Returns the number of queues of a kind that an interface has, if it exists here; else the most that are ever used.
fn queues_of(name: &str, kind: fn(&str) -> io::Result<u32>) -> usize {
    kind(name).map_or(Workers::MOST, |queues| queues as usize)
}

/// Returns the number of cores that this process may run on.
fn cores() -> usize {
    sched_getaffinity(None).map_or(1, |here| here.count() as usize)
}

/// Checks that each of the configured workers at each interface has its own queue, as AF_XDP requires.
fn have_queues(interfaces: &Interfaces, workers: &Workers) -> Result<()> {
    for name in named(interfaces) {
        // An absent interface is reported when it is opened.
        let refused = |count, queues, that: &str, what: &str| {
            unfit(format!(
                "[workers] asks for {count} threads{that} at each interface, and with the backend xdp each has {what} of \
                 its own, of which {name} has {queues}: ask for at most {queues} or for \"auto\", give {name} more \
                 (ethtool -L {name} combined {count}), or use the backend packet"
            ))
        };
        let (receive, transmit) = (workers.receive, workers.transmit);
        let (to_receive, to_send) = (
            queues_of(name, rx_queues),
            queues_of(name, xdp::transmit_queues),
        );
        if let Some(count) = receive.filter(|&count| count > to_receive) {
            return refused(count, to_receive, "", "receive queues");
        }
        if let Some(count) = transmit.filter(|&count| count > to_send) {
            let what = "a queue that receives and transmits";
            return refused(count, to_send, " that transmit", what);
        }
    }
    Ok(())
}

/// Returns the number of receive workers at each interface, by side. If the file leaves it to the machine, it is one
/// with `alone` and packet sockets; for an interface that does not exist here, it is as many as this machine has cores
/// for.
pub fn counts(site: &Site, alone: bool) -> [Option<usize>; 2] {
    let (Some(workers), Some(interfaces)) = (&site.workers, &site.interfaces) else {
        return [None, None];
    };
    let by_machine = |name: &str| match alone && interfaces.backend == Backend::Packet {
        true => 1,
        false => automatic(queues_of(name, rx_queues), cores()),
    };
    let count = |name: &str| workers.receive.unwrap_or_else(|| by_machine(name));
    let near = match &interfaces.near {
        Near::Inside(name) => Some(count(name)),
        Near::Tap(_) | Near::Nothing => None,
    };
    [near, Some(count(&interfaces.outside))]
}

/// Returns the number of arbiter threads for a site with this many receive and transmit workers at each interface: one
/// for both links, or one for each. If the site leaves that to the machine, it is one for each if all of these threads
/// can have a core of their own.
pub fn arbiters(site: &Site, receive: [Option<usize>; 2], transmit: [usize; 2]) -> usize {
    let (Some(workers), [Some(near), Some(outside)]) = (&site.workers, receive) else {
        return 1;
    };
    let others = near + outside + transmit.iter().sum::<usize>();
    let have_room = || others + 2 <= cores();
    workers
        .arbiters
        .unwrap_or_else(|| if have_room() { 2 } else { 1 })
}

/// Returns the number of workers for an interface with this many queues on a machine with this many cores, one of which
/// is the forwarding thread's.
fn automatic(queues: usize, cores: usize) -> usize {
    queues.min(cores.saturating_sub(1)).clamp(1, Workers::MOST)
}

/// Returns the number of transmit workers at each interface, by side, given the number of receive workers there.
pub fn transmit_counts(site: &Site, receive: [Option<usize>; 2]) -> [usize; 2] {
    let (Some(workers), Some(interfaces)) = (&site.workers, &site.interfaces) else {
        return [0; 2];
    };
    let near = match &interfaces.near {
        Near::Inside(name) => name,
        Near::Tap(_) | Near::Nothing => "",
    };
    let by_machine = |name: &str, receive| {
        let queues = queues_of(name, properties(interfaces.backend).transmit_queues);
        automatic_transmit(queues, cores(), receive)
    };
    let [of_near, of_outside] = receive;
    let count = |name: &str, receive: Option<usize>| match receive {
        Some(receive) => workers
            .transmit
            .unwrap_or_else(|| by_machine(name, receive)),
        None => 0,
    };
    [count(near, of_near), count(&interfaces.outside, of_outside)]
}

/// Returns the number of transmit workers for an interface with this many queues and receive workers on a machine with
/// this many cores: none if the receive workers and the forwarding thread occupy all cores.
fn automatic_transmit(queues: usize, cores: usize, receive: usize) -> usize {
    let left = cores.saturating_sub(1 + receive);
    queues.min(left).min(Workers::MOST)
}
