//! Round trips: UDP requests and replies, one at a time.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use fairlane_cli::arguments::seconds;
use fairlane_netlab::Echo;
use serde::Serialize;

use crate::bed::{BEGIN, Bed};

/// The port that replies.
const PORT: u16 = 9_000;

/// How long a reply is waited for; then it is lost, and not counted.
const PATIENCE: Duration = Duration::from_secs(1);

/// Options of `round-trip`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The daemon's site, with the interfaces `inside` (to the client) and `outside`; without it, the
    /// kernel's bridge forwards
    #[arg(long, value_name = "FILE")]
    site: Option<PathBuf>,
    /// Bytes of a request and of its reply, 1 to 8192; more than 1472 go in fragments. As often as there
    /// are sizes
    #[arg(long = "size", value_name = "REQUEST:REPLY", default_value = "64:64")]
    sizes: Vec<Size>,
    /// Seconds of all together
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    seconds: f64,
    /// How often each size has its turn, with threads of its own, which the system may put on other cores
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    passes: u32,
}

/// Bytes of a request and of its reply.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Size {
    request: usize,
    reply: usize,
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Size> {
        let bytes = |text: &str| {
            let number = text.parse::<usize>().ok();
            number.filter(|bytes| (1..=Echo::LONGEST).contains(bytes))
        };
        let size = || {
            let (request, reply) = text.split_once(':')?;
            Some(Size {
                request: bytes(request)?,
                reply: bytes(reply)?,
            })
        };
        size().with_context(|| {
            let most = Echo::LONGEST;
            format!("'{text}' is not REQUEST:REPLY, each 1 to {most} bytes, as in 1024:64")
        })
    }
}

/// The results for each size.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    sizes: Vec<Trips>,
}

/// Round trips of one size.
#[derive(Debug, Serialize)]
struct Trips {
    request_bytes: usize,
    reply_bytes: usize,
    /// The median of each pass.
    medians_us: Vec<f64>,
}

/// Sends requests for so long, all sizes in turns: they meet the same cores.
pub(super) fn measure(options: &Options, stop: &AtomicBool) -> Result<Measured> {
    let mut bed = Bed::new(stop, 1, options.site.as_deref())?;
    let trips = |size: &Size| Trips {
        request_bytes: size.request,
        reply_bytes: size.reply,
        medians_us: Vec::new(),
    };
    let mut sizes: Vec<Trips> = options.sizes.iter().map(trips).collect();
    let turns = f64::from(options.passes) * sizes.len() as f64;
    let turn = Duration::from_secs_f64(options.seconds / turns);
    for _ in 0..options.passes {
        for trips in &mut sizes {
            let size = (trips.request_bytes, trips.reply_bytes);
            trips.medians_us.push(median_us(&mut bed, size, turn)?);
        }
    }
    bed.finish()?;
    Ok(Measured { sizes })
}

/// Returns the median of the round trips within `time`, or the first one that ends after it.
fn median_us(bed: &mut Bed, (request, reply): (usize, usize), time: Duration) -> Result<f64> {
    let mut echo = Echo::between(bed.sender(0), bed.receiver(), PORT)?;
    let end = Instant::now() + time;
    let mut trips = Vec::new();
    loop {
        bed.goes_on()?;
        trips.extend(echo.round_trip(request, reply, PATIENCE));
        // At least one, unless no reply arrives at all.
        let now = Instant::now();
        if now >= end && (!trips.is_empty() || now >= end + BEGIN) {
            break;
        }
    }
    trips.sort_unstable();
    let Some(middle) = trips.get(trips.len() / 2) else {
        bail!("no reply came back through the middle");
    };
    Ok(middle.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_two_numbers_of_bytes() {
        let size = Size {
            request: 8_192,
            reply: 64,
        };
        assert_eq!("8192:64".parse::<Size>().unwrap(), size);
        for text in ["64", "0:64", "64:0", "8193:64", "64:64:64", "a:b"] {
            let sentence = text.parse::<Size>().unwrap_err().to_string();
            assert!(sentence.contains("REQUEST:REPLY"), "{sentence}");
        }
    }
}
