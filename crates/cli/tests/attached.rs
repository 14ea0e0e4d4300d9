//! `fairlane run CONFIG`: attached processes that push as fast as they can take nothing from bridged traffic. This is a
//! separate binary, because no other test should run next to processes that never sleep.

#[path = "it/program/mod.rs"]
mod program;
#[path = "it/site/mod.rs"]
mod site;

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_runtime::attach::{PushRefused, connect};
use serde_json::Value;
use site::{Site, bind, class, up, wire};

const CLIENTS: usize = 14;

/// A user without privileges.
const NOBODY: u32 = 65_534;

/// The socket to which a process attaches.
const SOCKET: &str = "FAIRLANE_TEST_SOCKET";

/// Not a test by itself: the code of the processes that the test starts.
#[test]
fn an_actor_pushes_as_fast_as_it_can() {
    let Some(socket) = env::var_os(SOCKET) else {
        return;
    };
    let mut client = connect(socket).unwrap();
    // An experimental protocol that no filter matches.
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.resize(1_000, 0);
    loop {
        match client.push(&frame) {
            Ok(()) | Err(PushRefused::Full) => {}
            Err(PushRefused::Gone) => return,
            Err(refused) => panic!("{refused}"),
        }
    }
}

/// A process that pushes packets until it is dropped.
struct Actor(Child);

impl Actor {
    /// Starts as a user without privileges, which can read neither the folder of the test binary nor a folder of
    /// root's.
    fn start(folder: &Path, socket: &Path) -> Actor {
        let program = folder.join("actor");
        if !program.exists() {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
            fs::copy(env::current_exe().unwrap(), &program).unwrap();
        }
        let mut command = Command::new(program);
        command
            .args(["--exact", "an_actor_pushes_as_fast_as_it_can"])
            .env(SOCKET, socket)
            .current_dir(folder)
            .uid(NOBODY)
            .gid(NOBODY)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // Another thread that is starting a process may still have the copy open for writing.
        let begun = Instant::now();
        loop {
            match command.spawn() {
                Err(error)
                    if error.kind() == ErrorKind::ExecutableFileBusy
                        && begun.elapsed() < Duration::from_secs(120) =>
                {
                    thread::sleep(Duration::from_millis(5));
                }
                spawned => break Actor(spawned.unwrap()),
            }
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Time without arrivals after which all packets have arrived or are lost.
const SILENCE: Duration = Duration::from_secs(5);

/// Sends voice at up to 1 Mbit/s, without catching up after a pause of the machine. Returns the number of packets sent,
/// which have all arrived by then unless they were lost.
fn speak(wire: &fairlane_netlab::Wire, seconds: u64) -> u64 {
    let (mouth, ear) = (bind(wire.sender(0), 0), bind(wire.receiver(), 5004));
    ear.set_nonblocking(true).unwrap();
    let began = Instant::now();
    let (mut sent, mut arrived) = (0, 0);
    let mut word = [0; 59];
    while began.elapsed() < Duration::from_secs(seconds) {
        mouth
            .send_to(&word, (wire.receiver().address(), 5004))
            .unwrap();
        sent += 1;
        thread::sleep(Duration::from_millis(1));
        while ear.recv(&mut word).is_ok() {
            arrived += 1;
        }
    }
    ear.set_nonblocking(false).unwrap();
    ear.set_read_timeout(Some(SILENCE)).unwrap();
    while arrived < sent && ear.recv(&mut word).is_ok() {
        arrived += 1;
    }
    sent
}

/// Lets `processes` processes of a user attach.
fn attach_at(socket: &Path, processes: usize) -> String {
    format!(
        "[attach]\nsocket = \"{}\"\nprocesses = 32\nprocesses-per-user = {processes}\n",
        socket.display()
    )
}

#[test]
fn refused_clients_are_logged_once_per_report() {
    let Some(wire) = wire("a line on refusals", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("link.sock");
    let config = attach_at(&socket, 1) + &up("packet", "20mbit");
    // The last report is the only one.
    let site = Site::start_with(&wire, &config, &["--every", "3600"]);
    let client = connect(&socket).unwrap();
    for _ in 0..3 {
        assert!(connect(&socket).is_err());
    }
    let finished = site.end();
    drop(client);
    let said = "a process of uid 0 may not attach: uid 0 has 1 processes attached or about to be, \
                the most that one user may have (3 refusals since the last message)";
    let lines = finished.stderr.lines();
    let told: Vec<&str> = lines.filter(|line| line.contains("attach")).collect();
    assert_eq!(told.len(), 1, "{}", finished.stderr);
    assert!(told[0].ends_with(said), "{}", finished.stderr);
}

#[test]
fn guaranteed_class_drops_nothing_under_flooding_clients() {
    let Some(wire) = wire("voice beside attached processes", 1) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("link.sock");
    let attach = attach_at(&socket, 16);
    let classes = r#"overhead = 24
algorithm = "wf2q+"

[[link.class]]
name = "voice"
rate = "2mbit"

[[link.class]]
name = "rest"
default = true

[[link.filter]]
class = "voice"
ingress = "inside"
destination-port = 5004
"#;
    let site = Site::start(&wire, &(attach + &up("packet", "20mbit") + classes));
    let actors: Vec<Actor> = (0..CLIENTS)
        .map(|_| Actor::start(folder.path(), &socket))
        .collect();
    let sent = speak(&wire, 6);
    // The log warns that no filter matches the frames of processes.
    let report = site.reported();
    drop(actors);
    let voice = class(&report, "up", "voice");
    let rest = class(&report, "up", "rest");
    let count = |class: &Value, key: &str| class[key].as_u64().unwrap();
    let lost = |class: &Value| count(&class["drops"], "full") + count(&class["drops"], "managed");
    assert_eq!(report["attached"], CLIENTS);
    assert_eq!(report["interfaces"][0]["lost"], 0);
    assert_eq!(lost(voice), 0, "{voice:#}");
    assert_eq!(count(voice, "sent_packets"), sent, "{voice:#}");
    // Even with little CPU time each, they push more than twice the link's rate.
    assert!(
        lost(rest) > count(rest, "sent_packets"),
        "no flood: {rest:#}"
    );
    // The report includes the delay that the forwarding thread adds.
    let forwarding = &report["forwarding"];
    assert!(
        forwarding["rounds"].as_u64().unwrap() > 1_000,
        "{forwarding}"
    );
    for key in ["scan_us", "delta_a_us", "delta_d_us"] {
        let [mean, max] = ["mean", "max"].map(|of| forwarding[key][of].as_f64().unwrap());
        assert!(0.0 < mean && mean < max, "{forwarding}");
    }
    // Only the median is checked: the machine's host, and processes with a higher priority, delay some packets for
    // longer. If the daemon ran at these processes' priority, half of the packets took twice the bound.
    let usual = voice["delay_us"]["p50"].as_f64().unwrap();
    let bound = voice["bound_us"].as_f64().unwrap();
    assert!(usual <= bound, "{voice:#}");
}
