//! `fairlane run CONFIG` as a service: its messages to the service manager, and its shutdown.

use std::fs::{self, File};
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use caps::{CapSet, Capability};
use fairlane_netlab::Wire;
use rustix::process::getpriority_process;
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{self, PROGRAM, fairlane};
use crate::site::{BACKENDS, PATIENCE, Site, bind, link, up, wire};

/// A daemon with this test as its service manager. Killed if it is dropped before its end.
struct Managed {
    child: Child,
    hears: UnixDatagram,
    folder: TempDir,
}

impl Managed {
    fn start(wire: &Wire, config: &str, options: &[&str], environment: &[(&str, &str)]) -> Managed {
        Managed::start_telling(wire, config, options, environment, None)
    }

    /// Starts it with environment variables that may describe standard error, as systemd does.
    fn start_telling(
        wire: &Wire,
        config: &str,
        options: &[&str],
        environment: &[(&str, &str)],
        journal: Option<&str>,
    ) -> Managed {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("site.toml"), config).unwrap();
        let socket = folder.path().join("notify");
        let hears = UnixDatagram::bind(&socket).unwrap();
        hears.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = program::command();
        command
            .arg("run")
            .arg(folder.path().join("site.toml"))
            .args(options)
            .env("NOTIFY_SOCKET", &socket)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let said = File::create(folder.path().join("said")).unwrap();
        if let Some(name) = journal {
            let file = said.metadata().unwrap();
            command.env(name, format!("{}:{}", file.dev(), file.ino()));
        }
        command.stderr(said);
        let child = wire.middle().run(|| command.spawn().unwrap());
        Managed {
            child,
            hears,
            folder,
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("site.toml")
    }

    /// Returns its standard error so far.
    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap()
    }

    /// Returns the kernel's information about each of its threads.
    fn threads(&self) -> Vec<Thread> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        // Threads that have ended in the meantime are skipped.
        tasks
            .filter_map(|task| Thread::read(&task.ok()?.path()))
            .collect()
    }

    fn signal(&self, name: &str) {
        program::signal(&self.child, name);
    }

    /// Returns the manager's next message within a time.
    fn next_within(&self, time: Duration) -> Option<String> {
        self.hears.set_read_timeout(Some(time)).unwrap();
        let mut buffer = [0; 4_096];
        let bytes = self.hears.recv(&mut buffer).ok()?;
        Some(String::from_utf8(buffer[..bytes].to_vec()).unwrap())
    }

    /// Returns the next message other than a watchdog notification.
    #[track_caller]
    fn word(&self) -> String {
        loop {
            let word = self.next_within(PATIENCE).expect("it is told in time");
            if word != BEAT {
                return word;
            }
        }
    }

    fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end, and returns its status and its output.
    #[track_caller]
    fn finish(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        while self.runs() {
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
        let mut printed = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut printed).unwrap();
        (self.child.wait().unwrap(), printed)
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // Both fail if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The privileges of a thread, from the kernel.
#[derive(Debug)]
struct Thread {
    name: String,
    status: String,
    nice: i32,
}

impl Thread {
    fn read(task: &Path) -> Option<Thread> {
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        // After the name, which may have spaces and ends with a bracket.
        let fields = stat.rsplit_once(") ")?.1;
        Some(Thread {
            name: fs::read_to_string(task.join("comm"))
                .ok()?
                .trim_end()
                .to_owned(),
            status: fs::read_to_string(task.join("status")).ok()?,
            nice: fields.split(' ').nth(16)?.parse().ok()?,
        })
    }

    #[track_caller]
    fn value(&self, key: &str) -> &str {
        let mut lines = self.status.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(":\t"));
        value.unwrap_or_else(|| panic!("{key}: {}", self.status))
    }

    #[track_caller]
    fn capabilities(&self, set: &str) -> u64 {
        u64::from_str_radix(self.value(set), 16).unwrap()
    }
}

const BEAT: &str = "WATCHDOG=1\n";

#[test]
fn service_manager_is_notified_of_ready_reload_and_stop() {
    let Some(wire) = wire("what a manager hears", 1) else {
        return;
    };
    let config = up("packet", "50mbit");
    let managed = Managed::start(&wire, &config, &["--quiet"], &[]);
    let ready = managed.word();
    assert!(
        ready.starts_with("READY=1\nSTATUS=") && ready.contains("the links up, 2 classes"),
        "{ready}"
    );
    assert!(wire.is_through(PATIENCE).unwrap());
    let reloads = |says: &str| {
        managed.signal("HUP");
        let reloading = managed.word();
        let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        since.unwrap().trim_end().parse::<u64>().unwrap();
        let ready = managed.word();
        assert!(ready.starts_with("READY=1\nSTATUS="), "{ready}");
        assert!(
            ready.contains(says) && ready.lines().count() == 2,
            "{ready}"
        );
    };
    reloads("reloaded ");
    fs::write(managed.file(), "rate = \n").unwrap();
    reloads("running configuration kept");
    fs::write(managed.file(), &config).unwrap();
    reloads("reloaded ");
    managed.signal("TERM");
    assert!(managed.word().starts_with("STOPPING=1\n"));
    assert!(managed.finish().0.success());
}

#[test]
fn service_manager_is_notified_of_the_handover_successor() {
    let Some(wire) = wire("a manager and a hand-over", 1) else {
        return;
    };
    let beats = ("WATCHDOG_USEC", "400000");
    let managed = Managed::start(&wire, &up("packet", "50mbit"), &["--quiet"], &[beats]);
    assert!(managed.word().starts_with("READY=1\n"));
    let take_over = || {
        let mut next = program::command();
        next.arg("run").arg(managed.file());
        // Started without a manager.
        next.args(["--take-over", "--quiet"])
            .env_remove("NOTIFY_SOCKET");
        next.stdin(Stdio::null()).stdout(Stdio::null());
        let next = next.stderr(Stdio::null()).spawn().unwrap();
        let hears = managed.hears.try_clone().unwrap();
        let folder = tempfile::tempdir().unwrap();
        Managed {
            child: next,
            hears,
            folder,
        }
    };
    let second = wire.middle().run(take_over);
    let told = [managed.word(), managed.word()];
    assert!(
        told.contains(&format!("MAINPID={}\n", second.child.id())),
        "{told:?}"
    );
    assert!(
        told.iter().any(|word| word.starts_with("READY=1\n")),
        "{told:?}"
    );
    // The first daemon's messages have ended, and the second one runs.
    let third = wire.middle().run(take_over);
    let told = [third.word(), third.word()];
    assert!(
        told.contains(&format!("MAINPID={}\n", third.child.id())),
        "{told:?}"
    );
    while third.next_within(PATIENCE).expect("it lives") != BEAT {}
    third.signal("TERM");
    assert!(third.word().starts_with("STOPPING=1\n"));
    for ended in [managed, second, third] {
        let mut ended = ended;
        assert!(ended.child.wait().unwrap().success());
    }
}

#[test]
fn service_manager_watchdog_is_notified_only_while_rounds_are_made() {
    let Some(wire) = wire("what a watchdog hears", 1) else {
        return;
    };
    let own = std::process::id().to_string();
    let watched = [("WATCHDOG_USEC", "400000"), ("WATCHDOG_PID", &own)];
    let managed = Managed::start(&wire, &up("packet", "50mbit"), &["--quiet"], &watched);
    assert!(managed.word().starts_with("READY=1\n"));
    let beats = || {
        for _ in 0..5 {
            assert_eq!(managed.next_within(PATIENCE).as_deref(), Some(BEAT));
        }
    };
    beats();
    managed.signal("STOP");
    // Notifications in flight, and then none.
    while managed.next_within(Duration::from_secs(1)).is_some() {}
    managed.signal("CONT");
    beats();
    managed.signal("TERM");
    assert!(managed.word().starts_with("STOPPING=1\n"));
    assert!(managed.finish().0.success());

    // A watchdog for another process.
    let watched = [("WATCHDOG_USEC", "400000"), ("WATCHDOG_PID", "1")];
    let managed = Managed::start(&wire, &up("packet", "50mbit"), &["--quiet"], &watched);
    assert!(managed.word().starts_with("READY=1\n"));
    assert_eq!(managed.next_within(Duration::from_secs(1)), None);
}

/// Sends datagrams of 1,000 bytes to a port of the receiver, and waits until the daemon has received them: a
/// datagram in the other direction, sent afterwards, is received in a round that receives these first.
pub(crate) fn send(wire: &Wire, datagrams: usize, port: u16) {
    let (from, to) = (wire.sender(0), wire.receiver());
    let (near, far) = (bind(from, 0), bind(to, 0));
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..datagrams {
        near.send_to(&[7; 1_000], (to.address(), port)).unwrap();
    }
    far.send_to(&[8], near.local_addr().unwrap()).unwrap();
    near.recv(&mut [0; 8]).unwrap();
}

#[test]
fn a_daemon_that_leads_its_session_has_it_come_before_others() {
    let session = |id| fs::read_to_string(format!("/proc/{id}/autogroup"));
    let Ok(ours) = session(process::id()) else {
        eprintln!(
            "skipped: a session's priority: the kernel does not divide processors by session"
        );
        return;
    };
    let Some(wire) = wire("a session's priority", 1) else {
        return;
    };
    let config = up("packet", "50mbit");
    for more in [&[][..], &["--fail-open"]] {
        let site = Site::start_leading(&wire, &config, more);
        let its = session(site.id()).unwrap();
        assert!(its.trim_end().ends_with("nice -20"), "{more:?}: {its}");
        assert!(site.end().status.success());
    }
    // A daemon whose session belongs to another process leaves it unchanged.
    let site = Site::start(&wire, &config);
    assert_eq!(session(site.id()).unwrap(), ours);
    site.stop();
}

#[test]
fn a_daemon_runs_whose_session_is_led_from_outside_its_process_namespace() {
    let Some(wire) = wire("a process namespace", 1) else {
        return;
    };
    Site::start_led_from_outside(&wire, &up("packet", "50mbit"));
}

/// Receives this number of datagrams, whenever they arrive.
fn hear(heard: &UdpSocket, datagrams: usize) {
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    for number in 0..datagrams {
        let came = heard.recv(&mut [0; 2_000]);
        came.unwrap_or_else(|error| panic!("{number} of {datagrams} come: {error}"));
    }
}

/// A class whose queue drops no packet unless it is full.
const FIFO: &str = "[[link.class]]\nname = \"all\"\ndefault = true\nqueue = \"tail-drop\"\n";

#[test]
fn drain_sends_the_backlog_at_the_rate_of_the_link() {
    let Some(wire) = wire("what is queued at the end", 1) else {
        return;
    };
    for backend in BACKENDS {
        let config = up(backend, "1mbit") + FIFO;
        let site = Site::start_with(&wire, &config, &["--drain", "60"]);
        let heard = bind(wire.receiver(), 5_005);
        let begun = Instant::now();
        send(&wire, 60, 5_005);
        let finished = site.end();
        // 60 take half a second from the first arrival.
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(450), "{took:?}: {finished:?}");
        let report: Value = serde_json::from_str(&finished.success()).unwrap();
        let up = link(&report, "up");
        assert_eq!(up["queued_packets"], 0, "{backend}: {up:#}");
        assert_eq!(up["received_frames"], up["transmitted"], "{backend}");
        // All received datagrams arrive.
        hear(&heard, 60);
    }
}

/// Datagrams whose transmission takes more than a minute at 100kbit.
const MANY: usize = 900;

#[test]
fn drain_stops_at_its_time_limit_and_reports_the_rest() {
    let Some(wire) = wire("what is left at the end", 1) else {
        return;
    };
    // Longer than the default drain time.
    let config = up("packet", "100kbit") + FIFO;
    let site = Site::start_with(&wire, &config, &["--drain", "1"]);
    send(&wire, MANY, 5_006);
    let finished = site.end();
    assert!(finished.took >= Duration::from_secs(1), "{finished:?}");
    let report: Value = serde_json::from_str(&finished.success()).unwrap();
    let up = link(&report, "up");
    let [left, sent, came] = ["queued_packets", "transmitted", "received_frames"]
        .map(|count| up[count].as_u64().unwrap());
    assert!(sent > 0 && left > 0, "{up:#}");
    assert_eq!(left + sent, came, "{up:#}");
}

#[test]
fn second_signal_ends_the_drain_and_reports_the_backlog() {
    let Some(wire) = wire("a second signal", 1) else {
        return;
    };
    let options = ["--quiet", "--drain", "60"];
    let mut managed = Managed::start(&wire, &up("packet", "100kbit"), &options, &[]);
    assert!(managed.word().starts_with("READY=1\n"));
    assert!(wire.is_through(PATIENCE).unwrap());
    let heard = bind(wire.receiver(), 5_007);
    send(&wire, MANY, 5_007);
    managed.signal("TERM");
    assert!(managed.word().starts_with("STOPPING=1\n"));
    // It sends its backlog.
    heard.set_nonblocking(true).unwrap();
    while heard.recv(&mut [0; 2_000]).is_ok() {}
    heard.set_nonblocking(false).unwrap();
    hear(&heard, 5);
    assert!(managed.runs());
    let told = Instant::now();
    managed.signal("TERM");
    let (status, printed) = managed.finish();
    // Without another signal it would end after a minute.
    let took = told.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(status.success());
    assert!(
        printed.contains("packets were still queued in link up"),
        "{printed}"
    );
}

/// A user other than root.
const OTHER: u32 = 4_711;

fn bits(capabilities: &[Capability]) -> u64 {
    capabilities.iter().map(|one| 1 << one.index()).sum()
}

/// Adds a control socket at a path.
fn controlled(config: String, socket: &Path) -> String {
    config + &format!("[control]\nsocket = \"{}\"\n", socket.display())
}

#[test]
fn no_thread_of_a_run_has_what_the_run_does_not_need() {
    let Some(wire) = wire("what a run gives up", 1) else {
        return;
    };
    let may = bits(&[
        Capability::CAP_NET_ADMIN,
        Capability::CAP_NET_RAW,
        Capability::CAP_BPF,
        Capability::CAP_PERFMON,
        // For environments in which this test's user may not raise limits.
        Capability::CAP_SYS_NICE,
        Capability::CAP_IPC_LOCK,
    ]);
    let sets = ["CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb"];
    let bounds = caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP).unwrap();
    for backend in BACKENDS {
        let folder = tempfile::tempdir().unwrap();
        let config = controlled(up(backend, "50mbit"), &folder.path().join("ctl.sock"));
        let managed = Managed::start(&wire, &config, &["--quiet"], &[]);
        assert!(managed.word().starts_with("READY=1\n"));
        managed.signal("HUP");
        assert!(managed.word().starts_with("RELOADING=1\n"));
        assert!(managed.word().starts_with("READY=1\n"));
        let threads = managed.threads();
        for name in [
            "forward",
            "control",
            "log",
            "signals",
            "keep inside",
            "manager",
        ] {
            let named = threads.iter().any(|thread| thread.name == name);
            assert!(named, "{name}: {threads:?}");
        }
        for thread in &threads {
            for set in sets.into_iter().filter(|&set| bounds || set != "CapBnd") {
                let beyond = thread.capabilities(set) & !may;
                assert_eq!(beyond, 0, "{set} {beyond:x} of {}", thread.name);
            }
            let needed = bits(&[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW]);
            assert_eq!(thread.capabilities("CapEff") & needed, needed);
            assert_eq!(thread.value("NoNewPrivs"), "1", "{}", thread.name);
            assert_eq!(thread.value("Seccomp"), "2", "{}", thread.name);
            let nice = match &*thread.name {
                "forward" => -20,
                // As in the starting process.
                _ => getpriority_process(None).unwrap(),
            };
            assert_eq!(thread.nice, nice, "{}", thread.name);
        }
        // New classes need new tables for early drop, which need a capability.
        let classes = "\n[[link.class]]\nname = \"a\"\ndefault = true\n";
        let config = controlled(
            up(backend, "50mbit") + classes,
            &folder.path().join("ctl.sock"),
        );
        fs::write(managed.file(), config).unwrap();
        managed.signal("HUP");
        assert!(managed.word().starts_with("RELOADING=1\n"));
        assert!(managed.word().contains("reloaded "));
        assert!(wire.is_through(PATIENCE).unwrap());
        let said = managed.said();
        assert!(
            !said.contains("early") && !said.contains("warning"),
            "{said}"
        );
        managed.signal("TERM");
        assert!(managed.finish().0.success());
    }
    let options = ["--quiet", "--keep-privileges"];
    let managed = Managed::start(&wire, &up("packet", "50mbit"), &options, &[]);
    assert!(managed.word().starts_with("READY=1\n"));
    let own = fs::read_to_string("/proc/thread-self/status").unwrap();
    for thread in managed.threads() {
        let kept = format!("CapPrm:\t{}", thread.value("CapPrm"));
        assert!(own.contains(&kept), "{kept} of {own}");
        assert_eq!(thread.value("Seccomp"), "0");
    }
}

#[test]
fn what_a_run_may_not_write_without_capabilities_is_said() {
    let Some(wire) = wire("files of others", 1) else {
        return;
    };
    let ours = tempfile::tempdir().unwrap();
    let socket = ours.path().join("ctl.sock");
    let config = controlled(up("packet", "50mbit"), &socket);
    for (options, may) in [
        (&["--quiet"][..], false),
        (&["--quiet", "--keep-privileges"], true),
    ] {
        let managed = Managed::start(&wire, &config, options, &[]);
        assert!(managed.word().starts_with("READY=1\n"));
        for path in [managed.folder.path(), &managed.file()] {
            chown(path, Some(OTHER), Some(OTHER)).unwrap();
        }
        let saved = fairlane(&["ctl", "--socket", socket.to_str().unwrap(), "save"]);
        assert_eq!(saved.status.success(), may, "{saved:?}");
        assert_eq!(
            saved.stderr.contains("belong to the user"),
            !may,
            "{saved:?}"
        );
        assert_eq!(fs::read_to_string(managed.file()).unwrap(), config);
        managed.signal("TERM");
        assert!(managed.finish().0.success());
    }
    // A socket in another user's folder.
    let theirs = tempfile::tempdir().unwrap();
    chown(theirs.path(), Some(OTHER), Some(OTHER)).unwrap();
    let config = controlled(up("packet", "50mbit"), &theirs.path().join("ctl.sock"));
    let mut managed = Managed::start(&wire, &config, &["--quiet"], &[]);
    let begun = Instant::now();
    while managed.runs() {
        assert!(begun.elapsed() < PATIENCE, "it cannot make its socket");
    }
    let said = managed.said();
    assert!(
        said.contains("ctl.sock: ")
            && said.contains("--keep-privileges")
            && said.lines().count() == 1,
        "{said}"
    );
}

/// All lines other than the program's path and the site's name are the same, and systemd accepts both files.
#[test]
fn the_units_are_as_systemd_wants_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let (one, many) = (read("fairlane.service"), read("fairlane@.service"));
    let settings = |text: &str| {
        let lines = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.starts_with("Description"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let of_one = many.replace("/etc/fairlane/%i.toml", "/etc/fairlane/site.toml");
    assert_eq!(settings(&of_one), settings(&one));
    let options = one
        .split_once("ExecStart=/usr/bin/fairlane run ")
        .unwrap()
        .1;
    let options: Vec<_> = options.lines().next().unwrap().split(' ').collect();
    // The file does not exist, so the options are valid.
    let refused = fairlane(&[&["run"], &options[..]].concat());
    assert!(
        refused.stderr.contains("/etc/fairlane/site.toml"),
        "{refused:?}"
    );

    // systemd 252 has no notify-reload, and reloads only by a command.
    let has = |line: &str| one.lines().filter(|other| *other == line).count();
    assert_eq!((has("Type=notify"), one.matches("\nType=").count()), (1, 1));
    assert_eq!(has("ExecReload=/bin/kill -s HUP $MAINPID"), 1);

    let there = tempfile::tempdir().unwrap();
    for (name, text) in [("fairlane.service", one), ("fairlane@.service", many)] {
        let text = text.replace("/usr/bin/fairlane", PROGRAM);
        let file = there.path().join(name);
        fs::write(&file, text).unwrap();
        let verify = ["verify", "--man=no", "--recursive-errors=no"];
        let verified = Command::new("systemd-analyze")
            .args(verify)
            .arg(&file)
            .output();
        let Ok(verified) = verified else {
            fairlane_netlab::skip_unsupported("units", "there is no systemd-analyze");
            return;
        };
        let said = String::from_utf8(verified.stderr).unwrap();
        assert!(said.is_empty(), "{said}");
    }
}

/// Causes reloads that are rejected, until the manager has been notified of this number.
fn refuse(managed: &Managed, times: u32) {
    fs::write(managed.file(), "rate = \n").unwrap();
    for _ in 0..times {
        managed.signal("HUP");
        assert!(managed.word().starts_with("RELOADING=1\n"));
        assert!(managed.word().starts_with("READY=1\n"));
    }
}

#[test]
fn what_is_said_too_often_is_counted_and_not_said() {
    let Some(wire) = wire("what is said too often", 1) else {
        return;
    };
    let mut managed = Managed::start(&wire, &up("packet", "50mbit"), &["--quiet"], &[]);
    assert!(managed.word().starts_with("READY=1\n"));
    refuse(&managed, 50);
    managed.signal("TERM");
    assert!(managed.word().starts_with("STOPPING=1\n"));
    let begun = Instant::now();
    while managed.runs() {
        assert!(begun.elapsed() < PATIENCE, "it does not end");
    }
    let lines = managed.said();
    let more = lines
        .lines()
        .filter_map(|line| line.split_once(" more like this: "));
    let more: u32 = more
        .map(|(before, _)| before.rsplit(' ').next().unwrap().parse::<u32>().unwrap())
        .sum();
    let whole = lines
        .lines()
        .filter(|line| !line.contains("more like this"));
    // More may be logged if the machine is so slow that ten seconds pass.
    let whole = whole
        .filter(|line| line.contains("running configuration kept"))
        .count();
    assert_eq!(whole as u32 + more, 50, "{lines}");
    assert!(whole < 50, "{lines}");
}

#[test]
fn the_journal_reads_how_much_a_line_matters_and_no_time() {
    let Some(wire) = wire("lines for the journal", 1) else {
        return;
    };
    for (variable, journal) in [("JOURNAL_STREAM", true), ("SOME_OTHER", false)] {
        let config = up("packet", "50mbit");
        let managed = Managed::start_telling(&wire, &config, &["--quiet"], &[], Some(variable));
        assert!(managed.word().starts_with("READY=1\n"));
        managed.signal("HUP");
        assert!(managed.word().starts_with("RELOADING=1\n"));
        assert!(managed.word().starts_with("READY=1\n"));
        refuse(&managed, 1);
        let said = || managed.said();
        let begun = Instant::now();
        while !said().contains("running configuration kept") {
            assert!(begun.elapsed() < PATIENCE, "{}", said());
        }
        let said = said();
        for line in said.lines() {
            assert_eq!(line.starts_with("fairlane: 20"), !journal, "{line}");
        }
        if journal {
            let levels = ["<6>", "<4>"];
            let start = said
                .lines()
                .zip(levels)
                .all(|(line, level)| line.starts_with(level));
            assert!(start && said.lines().count() >= 2, "{said}");
        }
        managed.signal("TERM");
        assert!(managed.finish().0.success());
    }
}
