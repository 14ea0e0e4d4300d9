//! Processes that share a link: one of them runs the arbiter, the others attach to it.
//!
//! ```sh
//! cargo run --release -p fairlane --example attach -- daemon link.sock 100mbit
//! cargo run --release -p fairlane --example attach -- client link.sock 80mbit 1500
//! cargo run --release -p fairlane --example attach -- client link.sock 80mbit 200
//! ```
//!
//! The daemon lets every process attach, all with the same weight, and prints the throughput of each once per second;
//! the link ends nowhere. A client pushes packets of the given size at the given rate and prints their fate. Kill any
//! of them with -9, or stop it: the others continue.

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("processes can attach on Linux alone");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["daemon", socket, rate] => linux::daemon(socket, rate),
        ["client", socket, rate, bytes] => linux::client(socket, rate, bytes),
        _ => Err("write: daemon SOCKET RATE, or: client SOCKET RATE BYTES".into()),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::from(2)
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::error::Error;
    use std::thread;
    use std::time::{Duration, Instant};

    use fairlane::io::{Backend, ByteLen, memory};
    use fairlane::runtime::attach::{
        Attach, AttachConfig, Attached, Class, Mapping, PeerCredentials, PushRefused, Who, connect,
    };
    use fairlane::runtime::{Arbiter, ArbiterConfig, Clock, Idling, Link, drive};
    use fairlane::{FlowConfig, Length, Nanos, Rate, Weight, sched::Qfq};

    const SECOND: Duration = Duration::from_secs(1);

    /// A process's packet.
    struct Packet {
        from: PeerCredentials,
        bytes: Vec<u8>,
    }

    impl ByteLen for Packet {
        fn byte_len(&self) -> usize {
            self.bytes.len()
        }
    }

    pub(crate) fn daemon(socket: &str, rate: &str) -> Result<(), Box<dyn Error>> {
        let rate: Rate = rate.parse()?;
        let (near, mut far) = memory::pair::<Packet, Packet>(64);
        let config = ArbiterConfig::new(Link::new(rate));
        let mut arbiter = Arbiter::new(Qfq::new(), config, near, Nanos::ZERO);

        let longest = Length::try_from(1514u32)?;
        let everybody = Class {
            name: "everybody".into(),
            flow: FlowConfig::new(Weight::ONE, longest),
            most_clients: 100,
        };
        let mapping = Mapping::new()
            .class(everybody)?
            .rule(Who::Any, "everybody")?;
        let make = |bytes, process: &Attached| Packet {
            from: process.peer,
            bytes,
        };
        let registrar = arbiter.registrar();
        let attach = Attach::listen(socket, AttachConfig::new(mapping), registrar, make)?;

        let mut arrived = Vec::new();
        let mut sent = BTreeMap::<u32, usize>::new();
        let mut report = Instant::now() + SECOND;
        let idling = Idling::default();
        drive(&mut arbiter, &Clock::start(), idling, |_, _, _| {
            // The far end in memory cannot fail.
            let _ = far.receive(&mut arrived, usize::MAX);
            for packet in arrived.drain(..) {
                *sent.entry(packet.from.pid).or_default() += packet.bytes.len();
            }
            if Instant::now() >= report {
                report += SECOND;
                println!("{} attached", attach.attached().len());
                for (process, bytes) in std::mem::take(&mut sent) {
                    println!("  process {process}: {:.3} Mbit/s", bytes as f64 * 8e-6);
                }
            }
            true
        })?;
        Ok(())
    }

    pub(crate) fn client(socket: &str, rate: &str, bytes: &str) -> Result<(), Box<dyn Error>> {
        let rate: Rate = rate.parse()?;
        let bytes: usize = bytes.parse()?;
        let mut client = connect(socket)?;
        println!(
            "class \"{}\", weight {}, packets of at most {}, {} of them in the mailbox",
            client.class(),
            client.weight(),
            client.max_length(),
            client.capacity()
        );
        let packet = vec![0; bytes];
        let apart = Duration::from_secs_f64(bytes as f64 * 8.0 / rate.bps() as f64);
        let (mut pushed, mut full) = (0_u64, 0_u64);
        let mut due = Instant::now();
        let mut report = due + SECOND;
        loop {
            match client.push(&packet) {
                Ok(()) => pushed += 1,
                Err(PushRefused::Full) => full += 1,
                Err(refused) => return Err(refused.into()),
            }
            due += apart;
            let now = Instant::now();
            if now >= report {
                report += SECOND;
                let told = client.told();
                println!(
                    "{pushed} pushed, {full} found the mailbox full; {} taken, {} of these dropped",
                    told.accepted, told.dropped
                );
            }
            thread::sleep(due.saturating_duration_since(now));
        }
    }
}
