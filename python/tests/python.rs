//! The Python package and the laboratory: `pytest` on `tests/` of each in a separate virtual environment, below the
//! target directory. This program provides the parts that need Rust: departures from `fairlane replay`, and a daemon to
//! attach to.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use fairlane_core::sched::{Algorithm, Qfq, SKps};
use fairlane_core::{FlowConfig, Length, Nanos, Weight};
use fairlane_io::{Backend, MemoryBackend, memory};
use fairlane_netlab::{NO_SKIP, skip};
use fairlane_runtime::attach::{Attach, AttachConfig, Class, Mapping, Who};
use fairlane_runtime::{Arbiter, ArbiterConfig, Link};
use fairlane_testkit::long_tests;
use fairlane_traffic::replay::Rows;
use fairlane_traffic::replay::by_flow::{self, Setup};

type Done<T> = Result<T, Box<dyn Error>>;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> io::Result<Output> {
    let done = command.output()?;
    match done.status.success() {
        true => Ok(done),
        false => Err(io::Error::other(format!(
            "{command:?} failed:\n{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        ))),
    }
}

/// Returns the interpreter of the environment, which is created if needed; or the reason why there is none.
fn environment(scratch: &Path) -> Result<PathBuf, String> {
    let form = if long_tests() { "long" } else { "quick" };
    let script = here().join("tests/environment");
    let made = Command::new(&script).arg(scratch).arg(form).output();
    let made = made.map_err(|error| format!("{}: {error}", script.display()))?;
    match made.status.success() {
        true => Ok(String::from_utf8_lossy(&made.stdout).trim().into()),
        false => Err(String::from_utf8_lossy(&made.stderr).into_owned()),
    }
}

/// Returns the interpreter; or `None`, after reporting that `test` is skipped.
fn interpreter(test: &str, scratch: &Path) -> Done<Option<PathBuf>> {
    fs::create_dir_all(scratch)?;
    match environment(scratch) {
        Ok(inside) => Ok(Some(inside)),
        // Without Python or a network there are no packages. If skipping is not allowed, both are available.
        Err(reason) if env::var_os("CI").is_none() && env::var_os(NO_SKIP).is_none() => {
            skip(test, reason);
            Ok(None)
        }
        Err(reason) => Err(reason.into()),
    }
}

/// Returns a folder below the target directory.
fn scratch() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("python")
}

/// Creates the package: its Python files, and the library that was built with this test.
fn package(place: &Path) -> Done<PathBuf> {
    let site = place.join("site");
    let folder = site.join("fairlane");
    fs::create_dir_all(&folder)?;
    for entry in fs::read_dir(here().join("python/fairlane"))? {
        let path = entry?.path();
        if path.is_file() {
            fs::copy(&path, folder.join(path.file_name().ok_or("no name")?))?;
        }
    }
    let beside = env::current_exe()?;
    let built = beside.with_file_name("lib_fairlane.so");
    fs::copy(&built, folder.join("_fairlane.abi3.so"))
        .map_err(|error| format!("{}: {error}", built.display()))?;
    Ok(site)
}

/// Writes the departures of the example under every algorithm, each to a file named after its number in
/// `algorithms.txt`.
fn replays(folder: &Path) -> Done<()> {
    fs::create_dir_all(folder)?;
    let example = here().join("../examples/replay");
    let flows = by_flow::read_flows(&example.join("flows.csv"))?;
    let mut names = String::new();
    let late = Algorithm::custom::<SKps<true>>("s-kps-late");
    for (number, &algorithm) in Algorithm::ALL.iter().chain([&late]).enumerate() {
        let setup = Setup {
            algorithm,
            aggregate: NonZeroU32::new(8).ok_or("eight")?,
            rate: "8mbit".parse()?,
            overhead: 24,
            flows: &flows,
        };
        let arrivals = BufReader::new(File::open(example.join("arrivals.csv"))?);
        let mut arrivals = by_flow::rows(arrivals, "arrivals".into(), &flows, 24)?;
        let mut written = Rows::new(File::create(folder.join(format!("{number}.csv")))?)?;
        by_flow::replay(&setup, &mut arrivals, &mut written, false)?;
        names += algorithm.name();
        names.push('\n');
    }
    fs::write(folder.join("algorithms.txt"), names)?;
    Ok(())
}

/// Runs a daemon at `socket` until `ended`; returns the packets that it sent.
fn daemon(socket: &Path, ready: &AtomicBool, ended: &AtomicBool) -> Done<Vec<Vec<u8>>> {
    let (near, mut far): (MemoryBackend<Vec<u8>>, MemoryBackend<Vec<u8>>) = memory::pair(64);
    let config = ArbiterConfig::new(Link::new("1gbit".parse()?));
    let mut arbiter = Arbiter::new(Qfq::new(), config, near, Nanos::ZERO);
    let length = Length::new(1500).ok_or("a length")?;
    let flow = FlowConfig::new(Weight::new(3).ok_or("a weight")?, length);
    let guests = Class {
        name: "guests".into(),
        flow,
        most_clients: 2,
    };
    let mapping = Mapping::new().class(guests)?.rule(Who::Any, "guests")?;
    let listening = AttachConfig::new(mapping);
    let registrar = arbiter.registrar();
    let _attach = Attach::listen(socket, listening, registrar, |bytes, _process| bytes)?;
    ready.store(true, Ordering::Release);
    let (begin, mut sent) = (Instant::now(), Vec::new());
    while !ended.load(Ordering::Acquire) {
        arbiter.step(begin.elapsed().into())?;
        far.receive(&mut sent, 64)?;
        thread::sleep(Duration::from_millis(1));
    }
    // For packets pushed just before.
    arbiter.step(begin.elapsed().into())?;
    far.receive(&mut sent, 64)?;
    Ok(sent)
}

/// Returns `pytest` for the tests of `folder`, with the package in `site`.
fn pytest(python: &Path, folder: &Path, site: &Path) -> Command {
    let mut command = Command::new(python);
    command
        .args(["-m", "pytest", "-rs", "--durations=5", "--basetemp"])
        .arg(site.with_file_name("pytest"))
        .current_dir(folder)
        .env_remove("PYTEST_ADDOPTS")
        .env("PYTHONPATH", site)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn the_package_does_in_python_what_its_tests_say() -> Done<()> {
    let test = "the tests of the package for Python";
    let scratch = scratch();
    let Some(inside) = interpreter(test, &scratch)? else {
        return Ok(());
    };
    // A separate folder, since this test may run twice at the same time.
    let folder = tempfile::tempdir()?;
    let site = package(folder.path())?;
    let written = folder.path().join("replays");
    replays(&written)?;
    let socket = folder.path().join("daemon.sock");
    let (ready, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let (done, sent) = thread::scope(|scope| {
        let sent = scope.spawn(|| daemon(&socket, &ready, &ended).map_err(|e| e.to_string()));
        while !ready.load(Ordering::Acquire) && !sent.is_finished() {
            thread::yield_now();
        }
        let done = run(pytest(&inside, here(), &site)
            .env("FAIRLANE_TEST_REPLAYS", &written)
            .env("FAIRLANE_TEST_SOCKET", &socket));
        ended.store(true, Ordering::Release);
        (done, sent.join())
    });
    let said = done?;
    // The harness hides `println` output of a passing test, but skipped tests must be visible.
    io::stderr().write_all(&said.stdout)?;
    let sent = sent.map_err(|_| "the daemon panicked")??;
    let from_python: Vec<&Vec<u8>> = sent
        .iter()
        .filter(|bytes| bytes.starts_with(b"python"))
        .collect();
    assert_eq!(from_python, [b"python 0", b"python 1", b"python 2"]);
    Ok(())
}

/// Returns a program, if it was built with this test, as `cargo test --workspace` does.
fn program(name: &str) -> Option<PathBuf> {
    let built = env::current_exe().ok()?.ancestors().nth(2)?.join(name);
    built.is_file().then_some(built)
}

#[test]
fn the_laboratory_does_every_experiment_in_a_form_of_a_second() -> Done<()> {
    let test = "the tests of the laboratory";
    let scratch = scratch();
    let Some(inside) = interpreter(test, &scratch)? else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let site = package(folder.path())?;
    let mut tests = pytest(&inside, &here().join("../lab"), &site);
    // Many tests wait for a program, so files of tests run in parallel.
    tests.args(["--numprocesses=3", "--dist=loadfile"]);
    for (variable, name) in [
        ("FAIRLANE_PROGRAM", "fairlane"),
        ("FAIRLANE_INSTRUMENTS", "fairlane-instruments"),
    ] {
        match program(name) {
            Some(program) => tests.env(variable, program),
            None => tests.env_remove(variable),
        };
    }
    io::stderr().write_all(&run(&mut tests)?.stdout)?;
    Ok(())
}
