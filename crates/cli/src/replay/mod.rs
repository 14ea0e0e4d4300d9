//! `fairlane replay`: from arrivals to departures, a pure function.

mod outfile;
mod report;

use std::cell::Cell;
use std::fs;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, RangedI64ValueParser, TypedValueParser};
use fairlane_config::Site;
use fairlane_core::Rate;
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use fairlane_core::units::MAX_LENGTH;
use fairlane_traffic::choose_link;
use fairlane_traffic::replay::by_flow::{self, Capture, Per, Setup};
use fairlane_traffic::replay::{
    Arrivals, Captured, Departures, Disorder, Format, Frame, Input, Packets, PcapHeader, Rows,
    Unwritten, WRITING, by_class, is_capture,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::algorithm::{self, Algorithm, members};
use crate::output;
use outfile::OutFile;
use report::Shown;

const HELP: &str = "\
Sends the arrivals of a file over a simulated link of rate RATE. The link is never idle
while anything is queued, and chooses the next packet when it becomes free, among those
that have arrived by that instant. The same input gives the same output, to the byte. CSV
files hold whole numbers:

  FLOWS.csv     flow,weight,max_len                     flows 0, 1, .. with weights from
                                                        1 to 1000000, lengths in bytes
  ARRIVALS.csv  time_ns,flow,len                        in order of time, but for 1 ms
  departures    start_ns,end_ns,flow,len,arrival_ns     in order of service

Time is exact: the end of a packet is the start of its busy period plus all bits sent
in it over the rate, rounded down once to a nanosecond. Within a busy period a packet
starts when the one before ends.

Arrivals up to 1 ms out of order, as in captures of a machine with several processors, are
sorted, and their number is printed on standard error; more than that is an error.

Recorded traffic does not react. At another rate, or with other queues, TCP would have
sent other packets: a replay shows the order and the delays of exactly this traffic, not
what TCP would make of the link. For that, `fairlane sim` simulates TCP
(traffic = \"tcp\").

Captures are pcap files of micro- or nanoseconds; convert pcapng files first, as with
editcap -F nsecpcap. Flows are numbered as they appear. Without --flows each has
weight 1 and max_len 65535; with it, row n is for the n-th flow to appear, from 0.
Ports count for TCP, UDP, UDP-Lite, DCCP and SCTP; other protocols have port 0. All
fragments between two addresses are one flow, first fragments included, whatever their
protocol, as in a site's per = \"5-tuple\". VLAN tags do not count. All that is not IP is
one flow. The length of a packet is that on the wire, even if less was captured.

Departures are CSV, or a capture if OUT ends in .pcap: the packets in order of service
with the times at which their transmission ended. OUT appears whole at the end, and not
at all after an error. What went to standard output before an error stays there: look at
the exit status.

No packet is dropped, and what is queued is held in memory: arrivals far above RATE
take some 40 bytes for each packet that waits, its own bytes if OUT is a capture, 60
with a report, which also takes up to 30 KiB for each flow. A flow can hold 2 GiB of
packets; more is an error.

With --config, the classes of a site's link take the place of flows, and its rate and
overhead those of the options. Packets of a capture go where the site's filters send them,
as if they came from the other side of the link; those of CSV say their class in the
column flow, by its name or its number in the order of the file, from 0, and in a class
of flows their flow in a fourth column, a number:

  ARRIVALS.csv  time_ns,flow,len[,key]

In departures the flow is the number of the class. The limits of the site count, and its
queue management: what is dropped does not depart, and is counted in the report, which
has the guaranteed rate of each class, its delays and their bound. Marks are set in the
packets of captures.

Examples:
  fairlane replay --alg qfq --rate 8mbit --flows examples/replay/flows.csv \\
      examples/replay/arrivals.csv
  fairlane replay --alg drr --rate 100mbit --overhead 24 in.pcap -o out.pcap --report
  fairlane replay --alg qfq --rate 1gbit --flow-by source in.pcap --json
  fairlane replay --config examples/home-gateway.toml --link up in.pcap --report -o out.pcap";

/// Options of `fairlane replay`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Scheduling algorithm
    #[arg(long, value_parser = algorithm::parser(), value_name = "A", required_unless_present = "config")]
    alg: Option<Algorithm>,
    /// Rate of the link: a number with bit, kbit, mbit, gbit or tbit
    #[arg(long, value_name = "R", required_unless_present = "config")]
    rate: Option<Rate>,
    /// A site file, whose link replaces --alg, --rate, --flows, --flow-by, --overhead and
    /// --aggregate
    #[arg(
        long,
        value_name = "SITE.toml",
        conflicts_with_all = ["alg", "rate", "flows", "flow_by", "overhead", "aggregate"]
    )]
    config: Option<PathBuf>,
    /// The site's link; its only one if there is one
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// The flows; a capture can do without
    #[arg(long, value_name = "FLOWS.csv")]
    pub(crate) flows: Option<PathBuf>,
    /// The arrivals: CSV or a capture, as the file's beginning tells
    #[arg(value_name = "ARRIVALS.csv|IN.pcap")]
    input: PathBuf,
    /// File for the departures [default: standard output, unless --json is given]
    #[arg(short, value_name = "OUT")]
    output: Option<PathBuf>,
    /// What makes packets of a capture one flow [default: 5-tuple]
    #[arg(long, value_parser = flow_by(), value_name = "KEY")]
    pub(crate) flow_by: Option<Per>,
    /// Bytes that each packet takes on the link beside its own, which count for the
    /// shares too: 24 for Ethernet's preamble, checksum and gap
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 0,
        value_parser = overhead()
    )]
    pub(crate) overhead: u32,
    /// Most flows in an aggregate (M), for algorithms whose name ends in +
    #[arg(
        long,
        value_name = "M",
        default_value_t = AUTOMATIC_MEMBERS,
        value_parser = members
    )]
    pub(crate) aggregate: NonZeroU32,
    /// Report each flow's delays and how far it fell behind its share, beside the
    /// algorithm's bounds: on standard output where departures go to OUT, else on
    /// standard error
    #[arg(long)]
    report: bool,
    /// Report as one JSON object on standard output; departures go to OUT, if anywhere
    #[arg(long)]
    json: bool,
}

/// Reads `--overhead`.
pub(crate) fn overhead() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=i64::from(MAX_LENGTH) - 1)
}

/// Reads `--flow-by`.
pub(crate) fn flow_by() -> impl TypedValueParser<Value = Per> {
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

/// Replays, and prints what is asked for.
pub(crate) fn run(options: &Options) -> Result<()> {
    let progress = options.progress();
    let outcome = Replay {
        options,
        progress: &progress,
        departures: Cell::default(),
    }
    .run();
    progress.finish_and_clear();
    if let Some(report) = outcome? {
        report.print(options)?;
    }
    Ok(())
}

impl Options {
    /// A report of flows and nothing else.
    pub(crate) fn measuring(algorithm: Algorithm, rate: Rate, input: PathBuf) -> Self {
        Options {
            alg: Some(algorithm),
            rate: Some(rate),
            config: None,
            link: None,
            flows: None,
            input,
            output: None,
            flow_by: None,
            overhead: 0,
            aggregate: AUTOMATIC_MEMBERS,
            report: false,
            json: true,
        }
    }

    /// The report of such a replay, whose departures go there.
    pub(crate) fn report_to(&self, departures: &mut dyn Departures) -> Result<by_flow::Report> {
        let replay = Replay {
            options: self,
            progress: &ProgressBar::hidden(),
            departures: Cell::new(Some(departures)),
        };
        replay.by_flow()?.context("it was measured")
    }

    fn wants_report(&self) -> bool {
        self.report || self.json
    }

    /// A bar on standard error, unless it is no terminal, or shares one with the output.
    fn progress(&self) -> ProgressBar {
        let printing = self.output.is_none() && !self.json && io::stdout().is_terminal();
        if self.json || printing {
            return ProgressBar::hidden();
        }
        ProgressBar::no_length().with_style(
            ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {elapsed}, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        )
    }

    /// Whether departures are to be a capture.
    fn to_capture(&self) -> bool {
        self.output.as_deref().is_some_and(is_capture)
    }

    /// Refuses to write over what is read.
    fn check_output(&self) -> Result<()> {
        let Some(output) = &self.output else {
            return Ok(());
        };
        let place = |path: &Path| fs::canonicalize(path).ok();
        let written = place(output);
        let inputs = [self.flows.as_ref(), self.config.as_ref()];
        for read in inputs.into_iter().flatten().chain([&self.input]) {
            ensure!(
                written.is_none() || written != place(read),
                "{}: this is an input, departures need a file of their own",
                output.display()
            );
        }
        Ok(())
    }
}

/// One run.
struct Replay<'a> {
    options: &'a Options,
    progress: &'a ProgressBar,
    /// Where departures go, if the options do not say it.
    departures: Cell<Option<&'a mut dyn Departures>>,
}

impl Replay<'_> {
    fn run(&self) -> Result<Option<Shown>> {
        let options = self.options;
        ensure!(
            options.link.is_none() || options.config.is_some(),
            "--link names a link of a site, which takes --config"
        );
        if let Some(config) = &options.config {
            return self.through_site(config);
        }
        let shown = |report| Shown::new(&report, report::of_flows(&report));
        self.by_flow()?.map(shown).transpose()
    }

    /// Through a packet scheduler.
    fn by_flow(&self) -> Result<Option<by_flow::Report>> {
        let options = self.options;
        let (Some(algorithm), Some(rate)) = (options.alg, options.rate) else {
            bail!("--alg and --rate are needed, or --config");
        };
        let declared = options
            .flows
            .as_deref()
            .map(by_flow::read_flows)
            .transpose()?;
        let input = Input::open(&options.input)?;
        options.check_output()?;
        let setup = Setup {
            algorithm,
            aggregate: options.aggregate,
            rate,
            overhead: options.overhead,
            flows: declared.as_deref().unwrap_or_default(),
        };
        let name = options.input.display().to_string();
        let measured = options.wants_report();
        let report = match input.format {
            Format::Rows => {
                ensure!(
                    declared.is_some(),
                    "{name}: arrivals in CSV need --flows, only a capture can do without"
                );
                ensure!(
                    options.flow_by.is_none(),
                    "{name}: --flow-by is for captures, rows of CSV name their flows"
                );
                self.refuse_capture(&name)?;
                let reader = BufReader::with_capacity(BUFFER, self.watched(input));
                let mut arrivals = by_flow::rows(reader, name, setup.flows, setup.overhead)?;
                let report = self.written(|departures| {
                    by_flow::replay(&setup, &mut arrivals, departures, measured)
                })?;
                self.tell(arrivals.disorder(), "rows");
                report
            }
            Format::Capture => {
                let per = options.flow_by.unwrap_or(Per::FiveTuple);
                let packets = Packets::new(self.watched(input), name)?;
                let header = packets.header();
                let mut arrivals = Capture::new(packets, per, declared.as_deref(), setup.overhead);
                let mut report = match options.to_capture() {
                    true => self.captured(header, |departures| {
                        by_flow::replay::<Frame>(&setup, &mut arrivals, departures, measured)
                    })?,
                    false => self.written(|departures| {
                        by_flow::replay::<()>(&setup, &mut arrivals, departures, measured)
                    })?,
                };
                self.tell(arrivals.packets().disorder(), "packets");
                if let Some(report) = &mut report {
                    arrivals.name_flows(report);
                }
                report
            }
        };
        Ok(report)
    }

    /// Through the classes of a site's link.
    fn through_site(&self, config: &Path) -> Result<Option<Shown>> {
        let options = self.options;
        let site = Site::read(config)?;
        output::warn(&site.warnings);
        let link = choose_link(&site, options.link.as_deref())
            .map_err(|sentence| anyhow!("{}: {sentence}", config.display()))?;
        let input = Input::open(&options.input)?;
        options.check_output()?;
        let name = options.input.display().to_string();
        let report = match input.format {
            Format::Rows => {
                self.refuse_capture(&name)?;
                let reader = BufReader::with_capacity(BUFFER, self.watched(input));
                let (queue, ids) = link.discipline();
                let mut arrivals = by_class::rows(reader, name, link, ids.clone())?;
                let report = self.written(|departures| {
                    by_class::replay(link, (queue, ids), &mut arrivals, departures)
                })?;
                self.tell(arrivals.disorder(), "rows");
                report
            }
            Format::Capture => {
                let packets = Packets::new(self.watched(input), name)?;
                let header = packets.header();
                let (queue, ids) = link.discipline();
                let mut arrivals = by_class::Classified::new(packets, &site, link, &ids);
                let run = |departures: &mut dyn Departures| {
                    by_class::replay(link, (queue, ids), &mut arrivals, departures)
                };
                let mut report = match options.to_capture() {
                    true => self.captured(header, run)?,
                    false => self.written(run)?,
                };
                self.tell(arrivals.disorder(), "packets");
                arrivals.complete(&mut report);
                report
            }
        };
        let shown = || Shown::new(&report, report::of_classes(&report, link));
        options.wants_report().then(shown).transpose()
    }

    /// Says how many arrivals were put in order, if any.
    fn tell(&self, disorder: Disorder, what: &str) {
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

    /// A capture cannot be made of rows.
    fn refuse_capture(&self, name: &str) -> Result<()> {
        ensure!(
            !self.options.to_capture(),
            "{name}: -o {} asks for a capture, which takes a capture to make",
            self.options
                .output
                .as_deref()
                .unwrap_or(Path::new(""))
                .display()
        );
        Ok(())
    }

    /// The input, with the bar following.
    fn watched(&self, input: Input) -> impl Read + use<> {
        if let Some(bytes) = input.bytes {
            self.progress.set_length(bytes);
        }
        self.progress.wrap_read(input.reader())
    }

    /// Departures as CSV, wherever they go, as `run` says them.
    fn written<T>(&self, run: impl FnOnce(&mut dyn Departures) -> Result<T>) -> Result<T> {
        if let Some(departures) = self.departures.take() {
            return run(departures);
        }
        match &self.options.output {
            None if self.options.json => run(&mut Unwritten),
            None => {
                let mut output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
                let done = run(&mut Rows::new(&mut output)?)?;
                output.flush().context(WRITING)?;
                Ok(done)
            }
            Some(path) => {
                let (outfile, file) = OutFile::create(path)?;
                let mut output = BufWriter::with_capacity(BUFFER, file);
                let done = run(&mut Rows::new(&mut output)?)?;
                output.flush().context(WRITING)?;
                outfile.finish()?;
                Ok(done)
            }
        }
    }

    /// Departures as a capture, as `run` says them, with the header of that of the arrivals.
    fn captured<T>(
        &self,
        header: PcapHeader,
        run: impl FnOnce(&mut dyn Departures) -> Result<T>,
    ) -> Result<T> {
        let path = self.options.output.as_deref();
        let (outfile, file) = OutFile::create(path.context("a capture goes to a file")?)?;
        let mut output = BufWriter::with_capacity(BUFFER, file);
        let done = run(&mut Captured::new(&mut output, header)?)?;
        output.flush().context(WRITING)?;
        outfile.finish()?;
        Ok(done)
    }
}

const BUFFER: usize = 1 << 16;
