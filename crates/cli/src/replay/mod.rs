//! `fairlane replay`: a pure function from arrivals to departures.

mod outfile;
mod report;

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail, ensure};
use fairlane_config::Site;
use fairlane_core::Length;
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use fairlane_traffic::replay::by_class;
use fairlane_traffic::replay::by_flow::{self, Setup};
use fairlane_traffic::replay::{
    Arrivals, Captured, Departures, Format, Frame, PcapHeader, Rows, Unwritten, WRITING, is_capture,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::algorithm::{self, Algorithm, members, quantum};
use crate::source::{BUFFER, Reading, Source};
use outfile::OutFile;
use report::Shown;

const HELP: &str = "\
Sends the arrivals of a file over a simulated link of rate RATE. The link is never idle
while a packet is queued. When it becomes free it selects the next packet among those that
have arrived. The same input gives the same output, to the byte. CSV files hold whole
numbers, except for weights:

  FLOWS.csv     flow,weight,max_len                     flows 0, 1, .. with weights from
                                                        1 to 1000000, lengths in bytes.
                                                        With decimal places (2.5) they are
                                                        scaled to the smallest whole ones
  ARRIVALS.csv  time_ns,flow,len                        in order of time, to 1 ms
  departures    start_ns,end_ns,flow,len,arrival_ns     in order of service

Time is exact: the end of a packet is the start of its busy period plus all bits sent
in it over the rate, rounded down once to a nanosecond. Within a busy period a packet
starts when the previous one ends.

Arrivals up to 1 ms out of order, as in captures of a machine with several processors, are
sorted, and their number is printed on standard error; more than that is an error.

Recorded traffic does not react. At another rate, or with other queues, TCP would have
sent other packets: a replay shows the order and the delays of exactly this traffic, not
the reaction of TCP to the link. For that, `fairlane sim` simulates TCP
(traffic = \"tcp\").

Captures are pcap or pcapng files. Flows are numbered as they appear. Without --flows each
has weight 1, and max_len is its longest packet, so the capture is read twice (from a pipe,
through a temporary file). With --flows, row n is for the n-th flow to appear, from 0.
Ports count for TCP, UDP, UDP-Lite, DCCP and SCTP; other protocols have port 0. All
fragments between two addresses are one flow, first fragments included, regardless of
protocol, as in a site's per = \"5-tuple\". VLAN tags do not count. All frames other than IP
are one flow. The length of a packet is that on the wire, even if less was captured.

A host with segmentation offload captures frames of 64 KiB and more. Frames longer than
--longest, or than a site's link carries, are segmented like in the daemon, into TCP
segments or UDP datagrams of the link's longest length; their number is printed on standard
error. A frame that cannot be segmented is kept up to 65535 bytes. Longer frames, or with
--config those above the link's longest length, are dropped, and their number is printed.

Departures are CSV, or a capture if OUT ends in .pcap: the packets in order of service
with the times at which their transmission ended. OUT appears whole at the end, and not
at all after an error. Output on standard output before an error stays there: check the
exit status.

No other packet is dropped, and queued packets are held in memory: arrivals far above RATE
take some 40 bytes per queued packet, its own bytes if OUT is a capture, 60 with a report,
which also takes up to 30 KiB per flow. A flow can hold 2 GiB of packets; more is an error.

With --config, the classes of a site's link replace the flows, and its rate and overhead
replace the options. Packets of a capture follow the site's filters, as if received from
the other side of the link. In CSV the column flow has the class, by its name or its
number in the order of the file, from 0; in a class of flows a fourth column has the flow,
a number:

  ARRIVALS.csv  time_ns,flow,len[,key]

In departures the flow is the number of the class. The limits and the queue management of
the site apply: dropped packets do not depart, and are counted in the report, which
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
    #[arg(
        long,
        value_parser = algorithm::parser(),
        value_name = "A",
        required_unless_present = "config",
        conflicts_with = "config"
    )]
    alg: Option<Algorithm>,
    #[command(flatten)]
    source: Source,
    /// File for the departures [default: standard output, unless --json is given]
    #[arg(short, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Maximum number of flows in an aggregate (M), for algorithms whose name ends in +
    #[arg(
        long,
        value_name = "M",
        default_value_t = AUTOMATIC_MEMBERS,
        value_parser = members,
        conflicts_with = "config"
    )]
    aggregate: NonZeroU32,
    /// Quantum of drr for the lightest flow, in bytes with overhead; others in proportion [default: the
    /// smallest that sends each flow's longest packet in one turn]
    #[arg(long, value_name = "BYTES", value_parser = quantum, conflicts_with = "config")]
    quantum: Option<Length>,
    /// Report delays and lag behind the share of each flow, with the algorithm's bounds: on
    /// standard output if departures go to OUT, otherwise on standard error
    #[arg(long)]
    report: bool,
    /// Report as one JSON object on standard output; departures go to OUT, if it is given
    #[arg(long)]
    json: bool,
}

/// Replays the arrivals and prints the requested output.
pub(crate) fn run(options: &Options) -> Result<()> {
    let progress = options.progress();
    let reading = Reading {
        source: &options.source,
        progress: &progress,
    };
    let outcome = Replay { options, reading }.run();
    progress.finish_and_clear();
    if let Some(report) = outcome? {
        report.print(options)?;
    }
    Ok(())
}

impl Options {
    fn wants_report(&self) -> bool {
        self.report || self.json
    }

    /// Returns a progress bar on standard error, hidden if that is no terminal or if the output goes to the same one.
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

    /// Returns whether departures are written as a capture.
    fn to_capture(&self) -> bool {
        self.output.as_deref().is_some_and(is_capture)
    }

    /// Rejects an output path that is also the input.
    fn check_output(&self) -> Result<()> {
        let Some(output) = &self.output else {
            return Ok(());
        };
        let place = |path: &Path| fs::canonicalize(path).ok();
        let written = place(output);
        let Source {
            flows,
            config,
            input,
            ..
        } = &self.source;
        for read in [flows, config].into_iter().flatten().chain([input]) {
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
    reading: Reading<'a>,
}

impl Replay<'_> {
    fn run(&self) -> Result<Option<Shown>> {
        match self.options.source.site()? {
            Some(site) => self.through_site(&site),
            None => self.through_flows(),
        }
    }

    /// Replays through a packet scheduler.
    fn through_flows(&self) -> Result<Option<Shown>> {
        let Replay { options, reading } = self;
        let (Some(algorithm), Some(rate)) = (options.alg, options.source.rate) else {
            bail!("--alg and --rate are needed, or --config");
        };
        let chosen = algorithm::with_quantum(vec![algorithm], options.quantum);
        let algorithm = chosen.map_err(Error::msg)?[0];
        let mut declared = options.source.declared()?;
        let (mut input, name) = reading.open()?;
        options.check_output()?;
        let longest = options.source.longest(declared.as_deref());
        if declared.is_none() && input.format == Format::Capture {
            input = input.rereadable(tempfile::tempfile)?;
            declared = Some(reading.found(&input, name.clone(), longest)?);
            input.rewind()?;
        }
        let setup = Setup {
            algorithm,
            aggregate: options.aggregate,
            rate,
            overhead: options.source.overhead,
            flows: declared.as_deref().unwrap_or_default(),
        };
        let measured = options.wants_report();
        let report = match input.format {
            Format::Rows => {
                self.refuse_capture(&name)?;
                let mut arrivals = reading.rows(&input, name, declared.as_deref())?;
                let report = self.written(|departures| {
                    by_flow::replay(&setup, &mut arrivals, departures, measured)
                })?;
                reading.tell(arrivals.disorder(), "rows");
                report
            }
            Format::Capture => {
                let mut packets = reading.packets(&input, name, longest)?;
                let header = options.to_capture().then(|| packets.one_header());
                let mut arrivals = reading.capture(packets, declared.as_deref());
                let mut report = match header {
                    Some(header) => self.captured(header, |departures| {
                        by_flow::replay::<Frame>(&setup, &mut arrivals, departures, measured)
                    })?,
                    None => self.written(|departures| {
                        by_flow::replay::<()>(&setup, &mut arrivals, departures, measured)
                    })?,
                };
                reading.tell_packets(arrivals.packets());
                reading.tell_dropped(arrivals.oversized());
                if let Some(report) = &mut report {
                    arrivals.complete(report);
                }
                report
            }
        };
        let shown = |report| Shown::new(&report, report::of_flows(&report));
        report.map(shown).transpose()
    }

    /// Replays through the classes of a site's link.
    fn through_site(&self, site: &Site) -> Result<Option<Shown>> {
        let Replay { options, reading } = self;
        let link = options.source.link(site)?;
        let (input, name) = reading.open()?;
        options.check_output()?;
        let report = match input.format {
            Format::Rows => {
                self.refuse_capture(&name)?;
                let (queue, ids) = link.discipline();
                let lines = reading.lines(&input);
                let mut arrivals = by_class::rows(lines, name, link, ids.clone())?;
                let report = self.written(|departures| {
                    by_class::replay(link, (queue, ids), &mut arrivals, departures)
                })?;
                reading.tell(arrivals.disorder(), "rows");
                report
            }
            Format::Capture => {
                let longest = link.longest.get() - link.overhead;
                let mut packets = reading.packets(&input, name, longest)?;
                let header = options.to_capture().then(|| packets.one_header());
                let (queue, ids) = link.discipline();
                let mut arrivals = by_class::Classified::new(packets, site, link, &ids);
                let run = |departures: &mut dyn Departures| {
                    by_class::replay(link, (queue, ids), &mut arrivals, departures)
                };
                let mut report = match header {
                    Some(header) => self.captured(header, run)?,
                    None => self.written(run)?,
                };
                reading.tell_packets(arrivals.packets());
                reading.tell_dropped(report.oversized);
                arrivals.complete(&mut report);
                report
            }
        };
        let shown = || Shown::new(&report, report::of_classes(&report, link));
        options.wants_report().then(shown).transpose()
    }

    /// Rejects a capture as output for CSV arrivals.
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

    /// Writes the departures of `run` as CSV to the selected output.
    fn written<T>(&self, run: impl FnOnce(&mut dyn Departures) -> Result<T>) -> Result<T> {
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

    /// Writes the departures of `run` as a capture, with the header of the arrivals' capture.
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
