//! Arrivals and links of simulations: the options that `fairlane replay` and `fairlane compare` share.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use fairlane_config::{Link, Site};
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{FlowId, Length, Rate};
use fairlane_traffic::choose_link;
use fairlane_traffic::replay::by_class::{self, AsFlows, Classified, Queues};
use fairlane_traffic::replay::by_flow::{self, Capture, Flow, ObservedFlows, Per};
use fairlane_traffic::replay::{
    Arrival, Arrivals, Disorder, Format, Frame, Input, Packets, Recording, Segmented,
};
use indicatif::ProgressBar;

use crate::output;

/// Size of the buffers of readers and writers.
pub(crate) const BUFFER: usize = 1 << 16;

/// The longest frame with an MTU of 1500, plus an Ethernet header and two VLAN tags.
const LONGEST: u32 = 1_522;

/// The longest jumbo frame: with an MTU of 9216.
const JUMBO: u32 = 9_238;

/// The least value; a shorter frame may not hold its headers.
const LEAST: i64 = 576;

/// A link, and a file of arrivals.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Source {
    /// Rate of the link: a number with bit, kbit, mbit, gbit or tbit
    #[arg(long, value_name = "R", required_unless_present = "config")]
    pub(crate) rate: Option<Rate>,
    /// A site file, whose link replaces --rate, --flows, --flow-by and --overhead, in a
    /// replay also --alg and --aggregate
    #[arg(
        long,
        value_name = "SITE.toml",
        conflicts_with_all = ["rate", "flows", "flow_by", "longest", "overhead"]
    )]
    pub(crate) config: Option<PathBuf>,
    /// The site's link [default: its only link]
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// The flows; optional for a capture
    #[arg(long, value_name = "FLOWS.csv")]
    pub(crate) flows: Option<PathBuf>,
    /// The arrivals: CSV or a capture, detected by content
    #[arg(value_name = "ARRIVALS.csv|IN.pcap")]
    pub(crate) input: PathBuf,
    /// Flow key of packets of a capture [default: 5-tuple]
    #[arg(long, value_parser = flow_by(), value_name = "KEY")]
    flow_by: Option<Per>,
    /// Longest frame of a capture: longer TCP and UDP frames (segmentation offload) are
    /// segmented [default: 1522, with --flows the longest max_len]
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(LEAST..=i64::from(MAX_LENGTH))
    )]
    longest: Option<u32>,
    /// Bytes of overhead of each packet on the link, which also count for the shares: 24 for Ethernet's preamble, checksum and gap
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_LENGTH) - 1)
    )]
    pub(crate) overhead: u32,
}

/// Parses `--flow-by`.
fn flow_by() -> impl TypedValueParser<Value = Per> {
    let five_tuple = PossibleValue::new("5-tuple").help(
        "Source and destination address, protocol, source and destination port; all fragments \
         between two addresses are one flow",
    );
    let source = PossibleValue::new("source").help("Source address");
    PossibleValuesParser::new([five_tuple, source]).map(|name| match &*name {
        "source" => Per::SourceIp,
        _ => Per::FiveTuple,
    })
}

impl Source {
    /// Reads the site, if there is one, and prints its warnings.
    pub(crate) fn site(&self) -> Result<Option<Site>> {
        let Some(config) = &self.config else {
            ensure!(
                self.link.is_none(),
                "--link names a link of a site, which takes --config"
            );
            return Ok(None);
        };
        let site = Site::read(config)?;
        output::warn(&site.warnings);
        Ok(Some(site))
    }

    /// Returns the selected link of that site.
    pub(crate) fn link<'a>(&self, site: &'a Site) -> Result<&'a Link> {
        let config = self.config.as_deref().unwrap_or(Path::new(""));
        choose_link(site, self.link.as_deref())
            .map_err(|sentence| anyhow!("{}: {sentence}", config.display()))
    }

    /// Returns the longest frame of a capture that is not segmented, given the declared flows.
    pub(crate) fn longest(&self, declared: Option<&[Flow]>) -> u32 {
        let declared = declared.and_then(|flows| flows.iter().map(|flow| flow.max_len).max());
        self.longest
            .unwrap_or(declared.map_or(LONGEST, Length::get))
    }

    /// Reads the flows, if they are declared.
    pub(crate) fn declared(&self) -> Result<Option<Vec<Flow>>> {
        self.flows.as_deref().map(by_flow::read_flows).transpose()
    }
}

/// A source that is being read, with its progress bar.
pub(crate) struct Reading<'a> {
    pub(crate) source: &'a Source,
    pub(crate) progress: &'a ProgressBar,
}

/// All arrivals of a source, and the link.
pub(crate) struct Recorded {
    pub(crate) rate: Rate,
    pub(crate) overhead: u32,
    /// The flows with their weights.
    pub(crate) flows: Vec<Flow>,
    /// The name of each flow; empty if they have only numbers.
    pub(crate) names: Vec<String>,
    pub(crate) arrivals: Recording,
}

impl Reading<'_> {
    /// Opens the file of arrivals; returns it with its name for errors.
    pub(crate) fn open(&self) -> Result<(Input, String)> {
        let path = &self.source.input;
        Ok((Input::open(path)?, path.display().to_string()))
    }

    /// Returns a reader of the input that updates the progress bar.
    fn watched<'i>(&self, input: &'i Input) -> impl Read + use<'i> {
        self.progress.set_position(0);
        if let Some(bytes) = input.bytes {
            self.progress.set_length(bytes);
        }
        self.progress.wrap_read(input.reader())
    }

    /// Returns the same with a buffer, for reading lines.
    pub(crate) fn lines<'i>(&self, input: &'i Input) -> BufReader<impl Read + use<'i>> {
        BufReader::with_capacity(BUFFER, self.watched(input))
    }

    /// Returns the arrivals of declared flows.
    pub(crate) fn rows(
        &self,
        input: &Input,
        name: String,
        declared: Option<&[Flow]>,
    ) -> Result<impl Arrivals<FlowId, ()>> {
        let declared = declared.with_context(|| {
            format!("{name}: arrivals in CSV need --flows, only a capture can do without")
        })?;
        ensure!(
            self.source.flow_by.is_none(),
            "{name}: --flow-by is for captures, rows of CSV name their flows"
        );
        by_flow::rows(self.lines(input), name, declared, self.source.overhead)
    }

    /// Returns the packets of a capture, in frames up to `longest` bytes.
    pub(crate) fn packets<'i>(
        &self,
        input: &'i Input,
        name: String,
        longest: u32,
    ) -> Result<Packets<impl Read + use<'i>>> {
        Packets::new(self.watched(input), name, longest)
    }

    /// Returns the flows of a capture when none are declared. Reads all of it.
    pub(crate) fn found(&self, input: &Input, name: String, longest: u32) -> Result<Vec<Flow>> {
        let mut packets = self.capture(self.packets(input, name, longest)?, None);
        let mut found = ObservedFlows::default();
        while let Some(arrival) = Arrivals::<FlowId, ()>::next(&mut packets)? {
            found.add(arrival.to.number(), arrival.len);
        }
        Ok(found.flows())
    }

    /// Returns packets as arrivals of flows.
    pub(crate) fn capture<'a, R: Read>(
        &self,
        packets: Packets<R>,
        declared: Option<&'a [Flow]>,
    ) -> Capture<'a, R> {
        let per = self.source.flow_by.unwrap_or(Per::FiveTuple);
        Capture::new(packets, per, declared, self.source.overhead)
    }

    /// Reports how many arrivals were reordered, if any.
    pub(crate) fn tell(&self, disorder: Disorder, what: &str) {
        let Disorder { moved, of, most } = disorder;
        if moved > 0 {
            self.progress.suspend(|| {
                output::aside(format_args!(
                    "{moved} of {of} {what} were out of order by up to {} us, and were put in \
                     order",
                    most.div_ceil(1_000)
                ));
            });
        }
    }

    /// Reports how many packets were reordered, and how many were segmented.
    pub(crate) fn tell_packets<R: Read>(&self, packets: &Packets<R>) {
        self.tell(packets.disorder(), "packets");
        let Segmented {
            frames,
            into,
            longest: most,
        } = packets.segmented();
        if frames > 0 {
            let (of, longest) = (packets.disorder().of, packets.longest());
            let option = match self.source.config {
                Some(_) => format!("longest = \"{most}b\" in the file"),
                None => format!("--longest {most}"),
            };
            let whole = match most <= JUMBO {
                true => format!("; if they are jumbo frames, {option} keeps them whole"),
                false => String::new(),
            };
            self.progress.suspend(|| {
                output::aside(format_args!(
                    "{frames} of {of} packets are longer than {longest} bytes, as segmentation \
                     offload leaves them, and were cut into {into}{whole}"
                ));
            });
        }
    }

    /// Reports how many packets were dropped because they are too long for the link.
    pub(crate) fn tell_dropped(&self, oversized: u64) {
        if oversized > 0 {
            self.progress.suspend(|| {
                output::aside(format_args!(
                    "dropped packets (longer than the link carries, and not plain TCP or UDP that can \
                     be cut): {oversized}"
                ));
            });
        }
    }

    /// Reads the whole source once.
    pub(crate) fn recorded(&self) -> Result<Recorded> {
        let recorded = match self.source.site()? {
            Some(site) => self.of_classes(&site)?,
            None => self.of_flows()?,
        };
        let arrivals = &recorded.arrivals;
        let (long, held) = (arrivals.left_out(), arrivals.packets() as u64);
        ensure!(
            held > 0,
            "{}: there is no packet{}, and nothing to compare",
            self.source.input.display(),
            if long > 0 {
                " that the link carries"
            } else {
                ""
            }
        );
        if long > 0 {
            let all = long + held;
            self.progress.suspend(|| {
                output::aside(format_args!(
                    "{long} of {all} packets are longer than the link carries, and are left out"
                ));
            });
        }
        Ok(recorded)
    }

    fn of_flows(&self) -> Result<Recorded> {
        let rate = (self.source.rate).context("--rate is needed, or --config")?;
        let declared = self.source.declared()?;
        let (input, name) = self.open()?;
        let number = |arrival: &Arrival<FlowId, ()>| Some(arrival.to.number());
        let (arrivals, names) = match input.format {
            Format::Rows => {
                let mut rows = self.rows(&input, name.clone(), declared.as_deref())?;
                let arrivals = Recording::of::<FlowId, ()>(name, &mut rows, number)?;
                self.tell(rows.disorder(), "rows");
                (arrivals, Vec::new())
            }
            Format::Capture => {
                let longest = self.source.longest(declared.as_deref());
                let packets = self.packets(&input, name.clone(), longest)?;
                let mut packets = self.capture(packets, declared.as_deref());
                let arrivals = Recording::of::<FlowId, ()>(name, &mut packets, number)?;
                self.tell_packets(packets.packets());
                self.tell_dropped(packets.oversized());
                (arrivals, packets.names())
            }
        };
        Ok(Recorded {
            rate,
            overhead: self.source.overhead,
            flows: declared.unwrap_or_else(|| arrivals.found().flows()),
            names,
            arrivals,
        })
    }

    /// Reads the arrivals with the classes of a site's link instead of flows.
    fn of_classes(&self, site: &Site) -> Result<Recorded> {
        let link = self.source.link(site)?;
        let (input, name) = self.open()?;
        let (_, ids): Queues<Frame> = link.discipline();
        let classes = AsFlows::of(link, &ids);
        let arrivals = match input.format {
            Format::Rows => {
                let mut rows = by_class::rows(self.lines(&input), name.clone(), link, ids)?;
                let arrivals = classes.record(name, &mut rows)?;
                self.tell(rows.disorder(), "rows");
                arrivals
            }
            Format::Capture => {
                let longest = link.longest.get() - link.overhead;
                let packets = self.packets(&input, name.clone(), longest)?;
                let mut packets = Classified::new(packets, site, link, &ids);
                let arrivals = classes.record(name, &mut packets)?;
                self.tell_packets(packets.packets());
                arrivals
            }
        };
        Ok(Recorded {
            rate: link.rate,
            overhead: link.overhead,
            flows: classes.flows,
            names: classes.names,
            arrivals,
        })
    }
}
