//! `fairlane replay`: all arrivals leave intact, in order and on time, and every replay gives the same result.

mod captures;
mod classes;
mod compare;
mod corrections;
mod offloads;
mod order;
mod output;
mod pcapng;
mod refusals;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::program::{Finished, fairlane};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use proptest::prelude::*;

/// Returns the names of all algorithms, as the program lists them.
fn algorithms() -> Vec<String> {
    let refusal = fairlane(&["replay", "--alg", "none"]).stderr;
    let (_, names) = refusal.split_once("possible values: ").unwrap();
    let (names, _) = names.split_once(']').unwrap();
    let names: Vec<String> = names.split(", ").map(str::to_owned).collect();
    assert!(
        ["fifo", "drr", "qfq"]
            .iter()
            .all(|name| names.contains(&(*name).to_owned()))
    );
    names
}

const FLOWS: &str = "flow,weight,max_len\n0,1,1000\n1,2,1000\n";

const HEADER: &str = "start_ns,end_ns,flow,len,arrival_ns";

/// A temporary directory of a test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// Returns a folder with two flows in `flows.csv`.
    fn with_flows() -> Folder {
        let folder = Folder::new();
        folder.write("flows.csv", FLOWS);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn pipe(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns the names of all files, sorted.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Runs `replay` with `arguments`, in which `@name` is a file of this folder.
    fn replay(&self, arguments: &str) -> Finished {
        let mut words = vec!["replay".to_owned()];
        words.extend(arguments.split_whitespace().map(|word| self.expand(word)));
        fairlane(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn expand(&self, word: &str) -> String {
        match word.strip_prefix('@') {
            Some(name) => self.path(name).display().to_string(),
            None => word.to_owned(),
        }
    }
}

/// A row of the output: start, end, flow, length, arrival.
type Row = [u64; 5];

fn rows(output: &str) -> Vec<Row> {
    let mut lines = output.lines();
    assert_eq!(lines.next(), Some(HEADER));
    lines
        .map(|line| {
            let numbers: Vec<u64> = line.split(',').map(|n| n.parse().unwrap()).collect();
            numbers.try_into().unwrap()
        })
        .collect()
}

/// Returns the output of a successful command, as rows.
#[track_caller]
fn departures(folder: &Folder, arguments: &str) -> Vec<Row> {
    rows(&folder.replay(arguments).success())
}

const WITH_FLOWS: &str = "--alg qfq --rate 8mbit --flows @flows.csv @arrivals.csv";

/// Checks that `replay` with `arguments` fails with one sentence that begins with `place` and contains all of `says`,
/// and that files are unchanged.
#[track_caller]
fn refuses(folder: &Folder, arguments: &str, place: &str, says: &[&str]) {
    folder.write("existing.csv", "precious");
    let before = folder.names();
    for output in [
        "",
        "-o @new.csv",
        "-o @existing.csv",
        "--report -o @new.csv",
    ] {
        let finished = folder.replay(&format!("{arguments} {output}"));
        assert_eq!(finished.status.code(), Some(2), "{arguments}: {finished:?}");
        let place = match place.strip_prefix('@') {
            Some(_) => folder.expand(place),
            None => place.to_owned(),
        };
        let sentence = finished.stderr.strip_suffix('\n').unwrap();
        assert!(
            sentence.starts_with(&format!("fairlane: {place}")) && !sentence.contains('\n'),
            "not at {place}: {:?}",
            finished.stderr
        );
        for word in says {
            assert!(sentence.contains(word), "{word} is not in: {sentence}");
        }
        if !output.is_empty() {
            assert_eq!(finished.stdout, "");
        }
        assert_eq!(folder.names(), before, "{arguments}");
        assert_eq!(folder.read("existing.csv"), "precious");
    }
}
