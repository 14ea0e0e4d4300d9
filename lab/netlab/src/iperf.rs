//! TCP flows, made by iperf3 and measured where they arrive.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::{Host, LabError, Program};

/// The program, and its package.
const IPERF: &str = "iperf3";

/// Time between two counts of arrivals, in seconds: the shortest that iperf3 has.
const INTERVAL: &str = "0.1";

/// The sender's congestion control (RFC 9438): it fills a queue and reacts to losses and marks,
/// whatever this machine's default is.
const CONGESTION_CONTROL: &str = "cubic";

/// How long the sender waits for a connection, in milliseconds.
const CONNECT_MS: &str = "3000";

/// Extra time allowed to a program beyond its configured duration.
const PATIENCE: Duration = Duration::from_secs(120);

/// Checks whether TCP flows are available.
///
/// # Errors
///
/// [`LabError::Missing`] if iperf3 is not installed.
pub fn iperf_is_installed() -> Result<(), LabError> {
    match Command::new(IPERF).arg("--version").output() {
        Ok(_) => Ok(()),
        Err(_) => Err(LabError::Missing {
            program: IPERF.to_owned(),
        }),
    }
}

/// A TCP flow that runs: one connection over which the sender sends as fast as CUBIC lets it.
#[derive(Debug)]
pub struct Flow {
    server: Program,
    client: Program,
    began: Instant,
    seconds: u32,
}

/// A TCP flow that is over.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Bytes of payload in a full segment.
    pub segment: u32,
    /// Segments that were sent again.
    pub retransmits: u64,
    /// The mean round-trip time as the sender estimated it.
    pub round_trip: Duration,
    /// Payload that arrived, by time.
    pub windows: Vec<Window>,
}

/// Payload that arrived in one piece of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Its start.
    pub start: Instant,
    /// Its end.
    pub end: Instant,
    /// Bytes.
    pub bytes: u64,
}

impl Flow {
    /// Starts a flow of `seconds` to `port` of `to`. It also has a second connection to the same
    /// port, over which little is said.
    ///
    /// # Errors
    ///
    /// If iperf3 is missing or does not start.
    pub fn start(from: &Host, to: &Host, port: u16, seconds: u32) -> Result<Flow, LabError> {
        let number = port.to_string();
        let time = seconds.to_string();
        let common = ["-4", "--json", "--interval", INTERVAL, "--port", &number];
        let server = Program::start(
            to.namespace(),
            Command::new(IPERF)
                .args(common)
                .args(["--server", "--one-off"]),
        )?;
        let deadline = Instant::now() + PATIENCE;
        while !listens(to, port) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let began = Instant::now();
        let address = to.address().to_string();
        let client = Program::start(
            from.namespace(),
            Command::new(IPERF)
                .args(common)
                .args(["--client", &address, "--time", &time])
                .args([
                    "--congestion",
                    CONGESTION_CONTROL,
                    "--connect-timeout",
                    CONNECT_MS,
                ]),
        )?;
        Ok(Flow {
            server,
            client,
            began,
            seconds,
        })
    }

    /// Returns whether it is over.
    pub fn has_ended(&mut self) -> bool {
        self.client.has_ended() && self.server.has_ended()
    }

    /// Waits until it is over.
    ///
    /// # Errors
    ///
    /// If there was no connection, or it broke, in iperf3's words.
    pub fn finish(self) -> Result<Transfer, LabError> {
        let patience = Duration::from_secs(self.seconds.into()) + PATIENCE;
        let client = report(self.client, patience)?;
        let server = report(self.server, PATIENCE)?;
        let sent = client
            .end
            .streams
            .first()
            .and_then(|stream| stream.sender.as_ref());
        let sent = sent.ok_or_else(|| broken("the report has no sender"))?;
        let windows = server.intervals.iter().map(|interval| Window {
            start: self.began + Duration::from_secs_f64(interval.sum.start),
            end: self.began + Duration::from_secs_f64(interval.sum.end),
            bytes: interval.sum.bytes,
        });
        Ok(Transfer {
            segment: client.start.tcp_mss_default,
            retransmits: sent.retransmits,
            round_trip: Duration::from_micros(sent.mean_rtt),
            windows: windows.collect(),
        })
    }
}

impl Transfer {
    /// Returns the bytes of payload that arrived between two moments. A window that lies partly
    /// outside counts in proportion.
    pub fn bytes(&self, from: Instant, to: Instant) -> f64 {
        let part = |window: &Window| {
            let length = (window.end - window.start).as_secs_f64();
            let start = window.start.max(from);
            let common = window.end.min(to).saturating_duration_since(start);
            if length > 0.0 {
                window.bytes as f64 * common.as_secs_f64() / length
            } else {
                0.0
            }
        };
        self.windows.iter().map(part).sum()
    }

    /// Returns the bits of payload a second, without the arrivals in the first `warm` and the last
    /// tenth of a second: as a flow starts it has not filled its link, and its end is not exact.
    ///
    /// It is the slope of the arrivals over time (least squares): payload behind a lost segment
    /// arrives all at once with the retransmission, which at either end would distort a plain sum.
    /// 0 if less than two windows are left.
    pub fn steady_rate(&self, warm: Duration) -> f64 {
        let (Some(first), Some(last)) = (self.windows.first(), self.windows.last()) else {
            return 0.0;
        };
        let (from, to) = (first.start + warm, last.end - Duration::from_millis(100));
        let mut bytes = 0;
        let arrived = |window: &Window| {
            bytes += window.bytes;
            (window.end, bytes as f64)
        };
        let arrived = self.windows.iter().map(arrived);
        let steady = arrived.filter(|&(end, _)| end >= from && end <= to);
        let points: Vec<(f64, f64)> = steady
            .map(|(end, bytes)| ((end - first.start).as_secs_f64(), bytes))
            .collect();
        let count = points.len() as f64;
        let middle = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (time, level) = (middle(|point| point.0), middle(|point| point.1));
        let square = |point: &(f64, f64)| (point.0 - time).powi(2);
        let product = |point: &(f64, f64)| (point.0 - time) * (point.1 - level);
        let squares: f64 = points.iter().map(square).sum();
        if points.len() < 2 || squares <= 0.0 {
            return 0.0;
        }
        points.iter().map(product).sum::<f64>() / squares * 8.0
    }
}

/// Returns whether a TCP server waits at `port` of `host`.
fn listens(host: &Host, port: u16) -> bool {
    // Local address in hexadecimal, state 0A (include/net/tcp_states.h).
    let table = host
        .namespace()
        .run(|| fs::read_to_string("/proc/thread-self/net/tcp").unwrap_or_default());
    let address = format!(":{port:04X} 00000000:0000 0A");
    table.contains(&address)
}

/// The needed part of iperf3's output with `--json`.
#[derive(Deserialize)]
struct Report {
    start: Start,
    #[serde(default)]
    intervals: Vec<Interval>,
    #[serde(default)]
    end: End,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    tcp_mss_default: u32,
}

#[derive(Deserialize)]
struct Interval {
    sum: Sum,
}

#[derive(Deserialize)]
struct Sum {
    start: f64,
    end: f64,
    bytes: u64,
}

#[derive(Default, Deserialize)]
struct End {
    #[serde(default)]
    streams: Vec<Stream>,
}

#[derive(Deserialize)]
struct Stream {
    sender: Option<Sender>,
}

#[derive(Deserialize)]
struct Sender {
    #[serde(default)]
    retransmits: u64,
    /// In microseconds.
    #[serde(default)]
    mean_rtt: u64,
}

fn report(program: Program, patience: Duration) -> Result<Report, LabError> {
    let ended = program.finish(patience)?;
    let report: Report = serde_json::from_str(&ended.output())
        .map_err(|error| broken(&format!("{error}: {}", ended.errors.trim())))?;
    match report.error {
        None => Ok(report),
        Some(error) => Err(broken(&error)),
    }
}

fn broken(why: &str) -> LabError {
    LabError::new("measure a TCP flow", std::io::Error::other(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a flow with these bytes in each tenth of a second.
    fn transfer(bytes: &[u64]) -> Transfer {
        let began = Instant::now();
        let tenth = Duration::from_millis(100);
        let windows = (0..).zip(bytes).map(|(number, &bytes)| Window {
            start: began + tenth * number,
            end: began + tenth * (number + 1),
            bytes,
        });
        Transfer {
            segment: 1_448,
            retransmits: 0,
            round_trip: Duration::ZERO,
            windows: windows.collect(),
        }
    }

    #[test]
    fn the_steady_rate_is_what_arrives_between_start_and_end() {
        let mut bytes = [25_000; 40];
        bytes[..8].fill(1_000_000);
        *bytes.last_mut().unwrap() = 3;
        let rate = transfer(&bytes).steady_rate(Duration::from_secs(1));
        assert!((rate - 2e6).abs() < 1.0, "{rate}");
    }

    #[test]
    fn payload_that_waited_for_a_lost_segment_hardly_changes_the_rate() {
        let mut bytes = [25_000; 40];
        (bytes[9], bytes[10]) = (0, 50_000);
        let rate = transfer(&bytes).steady_rate(Duration::from_secs(1));
        assert!((rate / 2e6 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn a_flow_that_was_too_short_has_no_rate() {
        for bytes in [&[][..], &[1], &[5_000; 11]] {
            assert_eq!(transfer(bytes).steady_rate(Duration::from_secs(1)), 0.0);
        }
        let flow = transfer(&[5_000; 20]);
        let (from, to) = (
            flow.windows[2].start,
            flow.windows[4].start + Duration::from_millis(50),
        );
        assert!((flow.bytes(from, to) - 12_500.0).abs() < 1.0);
    }
}
