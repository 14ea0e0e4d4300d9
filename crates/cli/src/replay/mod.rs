//! `fairlane replay`: from arrivals to departures, a pure function.

mod arrivals;
mod capture;
mod departures;
mod engine;
mod flow_key;
mod flows;
mod outfile;
mod report;
mod rows;

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use fairlane_core::Rate;
use fairlane_core::sched::AUTOMATIC_MEMBERS;
use fairlane_core::units::MAX_LENGTH;
use fairlane_sim::Observer;
use indicatif::{ProgressBar, ProgressStyle};

use crate::algorithm::{Algorithm, members};
use crate::with_algorithm;
use arrivals::{Arrivals, Listed};
use capture::Capture;
use departures::{Captured, Departures, Rows, Unwritten, WRITING};
use engine::Setup;
use flow_key::FlowBy;
use outfile::OutFile;
use report::{Meters, Report};

const HELP: &str = "\
The link sends at RATE whenever anything is queued, and chooses the next packet when
it becomes free. What arrives at that very instant counts. The same input gives the
same output, to the byte. All rows are in whole numbers:

  FLOWS.csv     flow,weight,max_len                     flows 0, 1, .. with weights from
                                                        1 to 1000000, lengths in bytes
  ARRIVALS.csv  time_ns,flow,len                        in order of time
  departures    start_ns,end_ns,flow,len,arrival_ns     in order of service

Time is exact: the end of a packet is the start of its busy period plus all bits sent
in it over the rate, rounded down once to a nanosecond. Within a busy period a packet
starts when the one before ends.

Captures are pcap files of micro- or nanoseconds; convert pcapng files first, as with
editcap -F nsecpcap. Flows are numbered as they appear. Without --flows each has
weight 1 and max_len 65535; with it, row n is for the n-th flow to appear, from 0.
Ports count for TCP, UDP, UDP-Lite, DCCP and SCTP; other protocols have port 0, and so
have all fragments, the first included, so that a datagram stays in one flow. VLAN
tags do not count. All that is not IP is one flow. The length of a packet is that on
the wire, also where less was captured.

Departures are CSV, or a capture if OUT ends in .pcap: the packets in order of service
with the times at which they have left, the end of their transmission. OUT appears
whole at the end, and not at all after an error. What went to standard output before
an error cannot be recalled: the exit status tells.

No packet is dropped, and what is queued is held in memory: arrivals far above RATE
take some 40 bytes for each packet that waits, its own bytes if OUT is a capture, 60
with a report, which also takes up to 30 KiB for each flow. A flow can hold 2 GiB of
packets; more is an error.

Examples:
  fairlane replay --alg qfq --rate 8mbit --flows examples/replay/flows.csv \\
      examples/replay/arrivals.csv
  fairlane replay --alg drr --rate 100mbit --overhead 24 in.pcap -o out.pcap --report
  fairlane replay --alg qfq --rate 1gbit --flow-by source in.pcap --json";

/// Options of `fairlane replay`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// Scheduling algorithm
    #[arg(long, value_enum, value_name = "A")]
    alg: Algorithm,
    /// Rate of the link: a number with bit, kbit, mbit, gbit or tbit
    #[arg(long, value_name = "R")]
    rate: Rate,
    /// The flows; a capture can do without
    #[arg(long, value_name = "FLOWS.csv")]
    flows: Option<PathBuf>,
    /// The arrivals: CSV or a capture, as the file's beginning tells
    #[arg(value_name = "ARRIVALS.csv|IN.pcap")]
    input: PathBuf,
    /// Where departures go; to standard output without it, unless --json is given
    #[arg(short, value_name = "OUT")]
    output: Option<PathBuf>,
    /// What makes packets of a capture one flow [default: 5-tuple]
    #[arg(long, value_enum, value_name = "KEY")]
    flow_by: Option<FlowBy>,
    /// Bytes that each packet takes on the link beside its own, which count for the
    /// shares too: 24 for Ethernet's preamble, checksum and gap
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_LENGTH) - 1)
    )]
    overhead: u32,
    /// Most flows in an aggregate (M), for algorithms whose name ends in +
    #[arg(
        long,
        value_name = "M",
        default_value_t = AUTOMATIC_MEMBERS,
        value_parser = members
    )]
    aggregate: NonZeroU32,
    /// Report each flow's delays and how far it fell behind its share, beside the
    /// algorithm's bounds: on standard output where departures go to OUT, else on
    /// standard error
    #[arg(long)]
    report: bool,
    /// Report as one JSON object on standard output; departures go to OUT, if anywhere
    #[arg(long)]
    json: bool,
}

/// Replays, and prints what is asked for.
pub fn run(options: &Options) -> Result<()> {
    let progress = options.progress();
    let outcome = Replay {
        options,
        progress: &progress,
    }
    .run();
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
        for read in [Some(&self.input), self.flows.as_ref()]
            .into_iter()
            .flatten()
        {
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
}

impl Replay<'_> {
    fn run(&self) -> Result<Option<Report>> {
        let options = self.options;
        let declared = options.flows.as_deref().map(flows::read).transpose()?;
        let input = Input::open(&options.input)?;
        options.check_output()?;
        let setup = Setup {
            rate: options.rate,
            overhead: options.overhead,
            flows: declared.as_deref().unwrap_or_default(),
        };
        let name = options.input.display().to_string();
        let mut meters = options.wants_report().then(|| Meters::new(options.rate));
        let keys = match input.format {
            Format::Rows => {
                ensure!(
                    declared.is_some(),
                    "{name}: arrivals in CSV need --flows, only a capture can do without"
                );
                ensure!(
                    options.flow_by.is_none(),
                    "{name}: --flow-by is for captures, rows of CSV name their flows"
                );
                ensure!(
                    !options.to_capture(),
                    "{name}: -o {} asks for a capture, which takes a capture to make",
                    options.output.as_deref().unwrap_or(Path::new("")).display()
                );
                let reader = BufReader::with_capacity(BUFFER, self.watched(input));
                let mut arrivals = Listed::new(reader, name, setup.flows, setup.overhead)?;
                self.to_rows(&setup, &mut arrivals, meters.as_mut())?;
                None
            }
            Format::Capture => {
                let by = options.flow_by.unwrap_or(FlowBy::FiveTuple);
                let (declared, overhead) = (declared.as_deref(), setup.overhead);
                let reader = self.watched(input);
                Some(if options.to_capture() {
                    let mut arrivals = Capture::new(reader, name, by, declared, overhead)?;
                    self.to_capture(&setup, &mut arrivals, meters.as_mut())?;
                    arrivals.keys()
                } else {
                    let mut arrivals = Capture::new(reader, name, by, declared, overhead)?;
                    self.to_rows::<()>(&setup, &mut arrivals, meters.as_mut())?;
                    arrivals.keys()
                })
            }
        };
        Ok(meters.map(|meters| Report::new(options, setup, meters, keys)))
    }

    /// The input, with the bar following.
    fn watched(&self, input: Input) -> impl Read + use<> {
        if let Some(bytes) = input.bytes {
            self.progress.set_length(bytes);
        }
        self.progress.wrap_read(input.reader())
    }

    /// Departures as CSV, wherever they go.
    fn to_rows<B>(
        &self,
        setup: &Setup<'_>,
        arrivals: &mut dyn Arrivals<B>,
        meters: Option<&mut Meters>,
    ) -> Result<()> {
        match &self.options.output {
            None if self.options.json => self.replay(setup, arrivals, &mut Unwritten, meters),
            None => {
                let mut output = BufWriter::with_capacity(BUFFER, io::stdout().lock());
                self.replay(setup, arrivals, &mut Rows::new(&mut output)?, meters)?;
                output.flush().context(WRITING)
            }
            Some(path) => {
                let (outfile, file) = OutFile::create(path)?;
                let mut output = BufWriter::with_capacity(BUFFER, file);
                self.replay(setup, arrivals, &mut Rows::new(&mut output)?, meters)?;
                output.flush().context(WRITING)?;
                outfile.finish()
            }
        }
    }

    /// Departures as a capture like that of the arrivals.
    fn to_capture(
        &self,
        setup: &Setup<'_>,
        arrivals: &mut Capture<'_, impl Read, Box<[u8]>>,
        meters: Option<&mut Meters>,
    ) -> Result<()> {
        let path = self
            .options
            .output
            .as_deref()
            .context("a capture goes to a file")?;
        let (outfile, file) = OutFile::create(path)?;
        let mut output = BufWriter::with_capacity(BUFFER, file);
        let mut departures = Captured::new(&mut output, arrivals.header())?;
        self.replay(setup, arrivals, &mut departures, meters)?;
        output.flush().context(WRITING)?;
        outfile.finish()
    }

    fn replay<B>(
        &self,
        setup: &Setup<'_>,
        arrivals: &mut dyn Arrivals<B>,
        departures: &mut dyn Departures<B>,
        meters: Option<&mut Meters>,
    ) -> Result<()> {
        let observer = meters.map(|meters| meters as &mut dyn Observer);
        with_algorithm!(self.options.alg, self.options.aggregate, new => {
            engine::replay(new(), setup, arrivals, departures, observer)
        })
    }
}

/// What an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Rows,
    Capture,
}

/// An input that has been looked at.
struct Input {
    file: File,
    /// What was read of it to know the format.
    beginning: Vec<u8>,
    format: Format,
    /// Its size, where that is known.
    bytes: Option<u64>,
}

impl Input {
    fn open(path: &Path) -> Result<Input> {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("opening {name}"))?;
        let metadata = file.metadata().with_context(|| format!("opening {name}"))?;
        let mut beginning = Vec::new();
        (&file)
            .take(4)
            .read_to_end(&mut beginning)
            .with_context(|| format!("reading {name}"))?;
        let format = match beginning[..] {
            [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d]
            | [0x4d, 0x3c, 0xb2, 0xa1] => Format::Capture,
            [0x0a, 0x0d, 0x0d, 0x0a] => bail!(
                "{name}: this is a pcapng file, only pcap can be read: convert it with \
                 editcap -F nsecpcap"
            ),
            // What is called a capture and is none: it is told so, not that it lacks columns.
            _ if is_capture(path) => Format::Capture,
            _ => Format::Rows,
        };
        Ok(Input {
            file,
            beginning,
            format,
            bytes: metadata.is_file().then_some(metadata.len()),
        })
    }

    /// All of it.
    fn reader(self) -> impl Read {
        io::Cursor::new(self.beginning).chain(self.file)
    }
}

fn is_capture(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("pcap"))
}

const BUFFER: usize = 1 << 16;
