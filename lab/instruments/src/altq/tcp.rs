//! TCP flows, and what arrived of each over time, as the paper's `cbqmonitor` showed it.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};
use fairlane_cli::arguments::seconds;
use fairlane_netlab::{Flow, Namespace, Transfer, iperf_is_installed};
use serde::Serialize;

use crate::bed::Bed;

/// Bytes of a full frame on the wire: 1500 of IP, an Ethernet header, and preamble, checksum and
/// gap, which a site's `overhead = "ethernet"` adds.
const FRAME: f64 = 1500.0 + 14.0 + 24.0;

/// Options of `tcp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The daemon's site, with the interfaces `inside` (to the senders) and `outside`; without it, the
    /// kernel's bridge forwards
    #[arg(long, value_name = "FILE")]
    site: Option<PathBuf>,
    /// Hosts that send: 10.0.0.1, 10.0.0.2 and so on. The receiver is 10.0.0.254
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    senders: u8,
    /// A flow: its sender's number, from 0; the receiver's port; when it starts, in seconds; how long it
    /// sends, in whole seconds. As often as there are flows
    #[arg(
        long = "flow",
        value_name = "SENDER:PORT:START:SECONDS",
        required = true
    )]
    flows: Vec<Plan>,
    /// Seconds at a flow's start that do not count in its steady rate
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    warm: f64,
    /// Seconds of a step of what arrived over time
    #[arg(long, value_name = "S", default_value = "0.4", value_parser = seconds)]
    step: f64,
}

/// A TCP flow to be.
#[derive(Clone, Debug, PartialEq)]
struct Plan {
    sender: usize,
    port: u16,
    start: Duration,
    /// The whole seconds that iperf3 knows.
    seconds: u32,
}

impl FromStr for Plan {
    type Err = Error;

    fn from_str(text: &str) -> Result<Plan> {
        let plan = || {
            let [sender, port, start, seconds] = *text.split(':').collect::<Vec<_>>() else {
                return None;
            };
            Some(Plan {
                sender: sender.parse().ok()?,
                port: port.parse::<u16>().ok().filter(|port| *port > 0)?,
                start: Duration::try_from_secs_f64(start.parse().ok()?).ok()?,
                seconds: seconds.parse::<u32>().ok().filter(|seconds| *seconds > 0)?,
            })
        };
        plan().with_context(|| {
            format!("'{text}' is not SENDER:PORT:START:SECONDS, as in 0:5201:2.5:10")
        })
    }
}

impl Plan {
    fn end(&self) -> Duration {
        self.start + Duration::from_secs(self.seconds.into())
    }
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    step_s: f64,
    /// In the order of the plans.
    flows: Vec<Arrived>,
}

/// The arrivals of a flow.
#[derive(Debug, Serialize)]
struct Arrived {
    sender: usize,
    port: u16,
    start_s: f64,
    seconds: u32,
    segment_bytes: u32,
    retransmitted_segments: u64,
    /// Payload in steady state.
    tcp_mbit: f64,
    /// The same with the frames around it, full ones.
    on_link_mbit: f64,
    /// Likewise in each step since the first flow could start.
    steps_on_link_mbit: Vec<f64>,
}

/// Runs the flows to their end.
pub(super) fn measure(options: &Options, stop: &AtomicBool) -> Result<Measured> {
    let strangers = options.flows.iter().map(|plan| plan.sender);
    let stranger = strangers
        .filter(|sender| *sender >= usize::from(options.senders))
        .max();
    ensure!(
        stranger.is_none(),
        "there is no sender {}: --senders has {}, counted from 0",
        stranger.unwrap_or_default(),
        options.senders
    );
    // Privileges first: without them an installed program does not help.
    Namespace::new()?;
    iperf_is_installed()?;
    let mut bed = Bed::new(stop, options.senders, options.site.as_deref())?;
    let began = Instant::now();
    let mut order: Vec<usize> = (0..options.flows.len()).collect();
    order.sort_by_key(|&place| options.flows[place].start);
    let mut flows: Vec<(usize, Flow)> = Vec::new();
    for place in order {
        let plan = &options.flows[place];
        bed.pause(began + plan.start)?;
        let (from, to) = (bed.sender(plan.sender), bed.receiver());
        flows.push((place, Flow::start(from, to, plan.port, plan.seconds)?));
    }
    bed.until(|| flows.iter_mut().all(|(_, flow)| flow.has_ended()))?;
    flows.sort_by_key(|(place, _)| *place);
    let transfers = flows.into_iter().map(|(_, flow)| flow.finish());
    let transfers = transfers.collect::<Result<Vec<_>, _>>()?;
    bed.finish()?;
    measured(options, began, &transfers)
}

fn measured(options: &Options, began: Instant, transfers: &[Transfer]) -> Result<Measured> {
    let end = options
        .flows
        .iter()
        .map(Plan::end)
        .max()
        .unwrap_or_default();
    let count = (end.as_secs_f64() / options.step + 1e-9) as u32;
    let (step, warm) = (options.step, Duration::from_secs_f64(options.warm));
    let arrived = |(plan, transfer): (&Plan, &Transfer)| {
        let segment = transfer.segment;
        ensure!(segment > 0, "iperf3 did not say how long its segments are");
        // Converts bits of payload into bits on the link, if all segments are full.
        let on_link = |mbit: f64| mbit * FRAME / f64::from(segment);
        let tcp_mbit = transfer.steady_rate(warm) / 1e6;
        let steps = (0..count).map(|number| {
            let from = began + Duration::from_secs_f64(step * f64::from(number));
            let bytes = transfer.bytes(from, from + Duration::from_secs_f64(step));
            on_link(bytes * 8.0 / step / 1e6)
        });
        Ok(Arrived {
            sender: plan.sender,
            port: plan.port,
            start_s: plan.start.as_secs_f64(),
            seconds: plan.seconds,
            segment_bytes: segment,
            retransmitted_segments: transfer.retransmits,
            tcp_mbit,
            on_link_mbit: on_link(tcp_mbit),
            steps_on_link_mbit: steps.collect(),
        })
    };
    let flows = options.flows.iter().zip(transfers).map(arrived);
    Ok(Measured {
        step_s: step,
        flows: flows.collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairlane_netlab::Window;

    #[test]
    fn a_flow_is_read_as_it_is_written() {
        let plan: Plan = "1:5201:2.5:10".parse().unwrap();
        assert_eq!((plan.sender, plan.port, plan.seconds), (1, 5_201, 10));
        assert_eq!(plan.end(), Duration::from_millis(12_500));
        for text in [
            "1:5201:2.5",
            "1:0:0:1",
            "0:5201:-1:1",
            "0:5201:0:0",
            "0:5201:0:1:2",
            "",
        ] {
            let sentence = text.parse::<Plan>().unwrap_err().to_string();
            assert!(sentence.contains("SENDER:PORT:START:SECONDS"), "{sentence}");
        }
    }

    /// Returns a flow that brings `mbit` of payload from `from` to `to`, in seconds since `began`.
    fn transfer(began: Instant, from: f64, to: f64, mbit: f64) -> Transfer {
        let at = |seconds| began + Duration::from_secs_f64(seconds);
        let count = ((to - from) / 0.1).round() as u32;
        let windows = (0..count).map(|number| Window {
            start: at(from + f64::from(number) * 0.1),
            end: at(from + f64::from(number + 1) * 0.1),
            bytes: (mbit * 1e5 / 8.0) as u64,
        });
        Transfer {
            segment: 1_448,
            retransmits: 7,
            round_trip: Duration::ZERO,
            windows: windows.collect(),
        }
    }

    #[test]
    fn a_trace_has_what_arrived_in_each_step_with_the_frames_around_it() {
        let began = Instant::now();
        let options = Options {
            site: None,
            senders: 1,
            flows: ["0:5201:0:2", "0:5202:1:1"]
                .map(|flow| flow.parse().unwrap())
                .into(),
            warm: 0.5,
            step: 0.4,
        };
        // Windows do not begin with steps.
        let transfers = [
            transfer(began, 0.05, 2.05, 14.48),
            transfer(began, 1.05, 2.05, 28.96),
        ];
        let found = measured(&options, began, &transfers).unwrap();
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-3 * expected;
        let [first, second] = &*found.flows else {
            panic!("two flows: {found:?}");
        };
        // 1,538 bytes on the wire for 1,448 of payload.
        assert_eq!(first.steps_on_link_mbit.len(), 5);
        assert!(near(first.steps_on_link_mbit[1], 15.38), "{found:?}");
        assert!(near(first.steps_on_link_mbit[0], 15.38 * 0.35 / 0.4));
        assert_eq!(second.steps_on_link_mbit[..2], [0.0, 0.0]);
        assert!(near(second.steps_on_link_mbit[2], 30.76 * 0.15 / 0.4));
        assert!(near(first.tcp_mbit, 14.48) && near(first.on_link_mbit, 15.38));
        assert_eq!((second.start_s, first.retransmitted_segments), (1.0, 7));
        let unknown = Transfer {
            segment: 0,
            ..transfers[0].clone()
        };
        assert!(measured(&options, began, &[unknown]).is_err());
    }
}
