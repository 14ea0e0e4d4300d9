//! The flows of a replay: what each is entitled to.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use fairlane_core::scheduler::MAX_ENTITIES;
use fairlane_core::units::{MAX_LENGTH, MAX_WEIGHT};
use fairlane_core::{Length, Weight};

use crate::replay::csv::Rows;

/// What one flow is entitled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its share of the link, beside those of others.
    pub weight: Weight,
    /// Longest packet it may bring, without overhead.
    pub max_len: Length,
}

/// The flows of arrivals that declare none, by number: each of weight 1 and up to its longest packet.
#[derive(Clone, Debug, Default)]
pub struct Found(Vec<u32>);

impl Found {
    /// Adds a packet of `len` bytes, without overhead, of the flow with this number. O(1) amortised.
    pub fn add(&mut self, flow: u32, len: u32) {
        let flow = flow as usize;
        if self.0.len() <= flow {
            self.0.resize(flow + 1, 0);
        }
        self.0[flow] = self.0[flow].max(len);
    }

    /// Returns the flows. One that sends nothing may send packets of any length.
    pub fn flows(&self) -> Vec<Flow> {
        let flow = |&longest: &u32| Flow {
            weight: Weight::ONE,
            max_len: Length::new(longest).unwrap_or(Length::MAX),
        };
        self.0.iter().map(flow).collect()
    }
}

/// Reads `flow,weight,max_len`: flow n is at place n of what is returned.
pub fn read(path: &Path) -> Result<Vec<Flow>> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("opening {name}"))?;
    let columns = ["flow", "weight", "max_len"];
    let rows = Rows::new(BufReader::new(file), name.clone(), columns)?;
    let mut rows = (rows.within(0, 0..=MAX_ENTITIES as u64 - 1))
        .within(1, 1..=MAX_WEIGHT.into())
        .within(2, 1..=MAX_LENGTH.into());
    let mut read = Vec::new();
    while let Some([flow, weight, max_len]) = rows.next()? {
        let place = rows.place();
        ensure!(
            read.len() < MAX_ENTITIES,
            "{place}: there are {MAX_ENTITIES} flows at most"
        );
        let weight = u32::try_from(weight).ok().and_then(Weight::new);
        let max_len = u32::try_from(max_len).ok().and_then(Length::new);
        let in_range = "each column has its range";
        let flow_of = Flow {
            weight: weight.expect(in_range),
            max_len: max_len.expect(in_range),
        };
        read.push((flow, rows.line(), flow_of));
    }
    ensure!(
        !read.is_empty(),
        "{name}: there is no flow below the header"
    );
    let count = read.len();
    let mut flows: Vec<Option<(u64, Flow)>> = vec![None; count];
    for (number, line, flow) in read {
        let place = usize::try_from(number).ok().and_then(|n| flows.get_mut(n));
        match place {
            None => bail!(
                "{name}:{line}: flow {number} leaves a gap, {count} flows are numbered 0 to {}",
                count - 1
            ),
            Some(Some((first, _))) => {
                bail!("{name}:{line}: flow {number} is on line {first} already, a flow has one row")
            }
            Some(place) => *place = Some((line, flow)),
        }
    }
    Ok(flows.into_iter().flatten().map(|(_, flow)| flow).collect())
}

/// Checks what every packet of a flow must fulfil; `place` is only made for an error.
pub(super) fn check_length(
    len: u64,
    flow: u64,
    declared: &Flow,
    overhead: u32,
    place: impl Fn() -> String,
) -> Result<u32> {
    let max = u64::from(declared.max_len.get());
    if len == 0 || len > max {
        bail!(
            "{}: len {len} of flow {flow} is not from 1 to its max_len {max}",
            place()
        );
    }
    if len + u64::from(overhead) > u64::from(MAX_LENGTH) {
        bail!(
            "{}: len {len} and the overhead of {overhead} make more than {MAX_LENGTH} bytes",
            place()
        );
    }
    Ok(len as u32)
}
