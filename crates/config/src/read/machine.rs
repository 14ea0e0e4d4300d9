//! The tables outside links: interfaces, attached processes, the control API and workers.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use fairlane_core::Rate;

use super::words::{interface_name, word};
use crate::diagnostic::Report;
use crate::file;
use crate::site::{Attach, Backend, Control, Interfaces, Link, Near, Workers};
use crate::units::{Size, Time};
use crate::written::{At, Scalar, Text, Whole};

pub(super) fn interfaces(
    written: &file::Interfaces,
    attach: bool,
    report: &mut Report,
) -> Option<Interfaces> {
    for (key, name) in [
        ("outside", Some(&written.outside)),
        ("inside", written.inside.as_ref()),
        ("tap", written.tap.as_ref()),
    ] {
        if let Some(name) = name {
            interface_name(key, name, report);
        }
    }
    let near = match (&written.inside, &written.tap) {
        (Some(_), Some(tap)) => {
            report.error(
                &tap.span(),
                "tap: with 'inside' this is a bump in the wire, which has no tap device; leave out one of the two",
            );
            return None;
        }
        (Some(name), None) | (None, Some(name)) if name.value() == written.outside.value() => {
            report.error(
                &name.span(),
                format!(
                    "'{}' is outside already: the two sides are two interfaces",
                    name.value()
                ),
            );
            return None;
        }
        (Some(name), None) => Near::Inside(name.value().clone()),
        (None, Some(name)) => Near::Tap(name.value().clone()),
        (None, None) if attach => Near::Nothing,
        (None, None) => {
            report.error(
                &written.outside.span(),
                "nothing would leave by 'outside': [interfaces] needs 'inside' or 'tap' too, or the file [attach]",
            );
            return None;
        }
    };
    let move_addresses = written.move_addresses.as_ref();
    if let Some(at) = move_addresses.filter(|at| *at.value() && !matches!(near, Near::Tap(_))) {
        report.error(
            &at.span(),
            "move-addresses: addresses move to a tap device, and [interfaces] has no 'tap'",
        );
    }
    let backends = [("packet", Backend::Packet), ("xdp", Backend::Xdp)];
    let backend = match &written.backend {
        Some(text) => word(text, "backend", &backends, report)?,
        None => Backend::default(),
    };
    let speed = match &written.speed {
        Some(text) => Some(text.read::<Rate>("speed", report)?),
        None => None,
    };
    let longest_round = match &written.longest_round {
        Some(text) => text.read::<Time>("longest-round", report)?.0,
        None => Interfaces::LONGEST_ROUND,
    };
    Some(Interfaces {
        speed,
        longest_round,
        outside: written.outside.value().clone(),
        near,
        move_addresses: move_addresses.is_some_and(|at| *at.value()),
        allow_bypass: (written.allow_bypass.as_ref()).is_some_and(|at| *at.value()),
        backend,
    })
}

/// Reads `[attach]`; `outside` is the link that the processes send to, if there is one.
pub(super) fn attached(
    written: &file::Attach,
    outside: Option<&Link>,
    report: &mut Report,
) -> Option<Attach> {
    const PROCESSES: usize = 256;
    /// A user may have this part of all processes by default.
    const QUARTER: usize = 4;
    if written.socket.value().is_empty() {
        report.error(
            &written.socket.span(),
            "socket: a path is needed, as in \"/run/fairlane-attach.sock\"",
        );
    }
    refuse_no_socket(&written.socket, report);
    let processes = match &written.processes {
        Some(processes) => processes.within("processes", 1..65_537, report)?,
        None => PROCESSES,
    };
    let processes_per_user = match &written.processes_per_user {
        Some(most) => most.within("processes-per-user", 1..processes as i64 + 1, report)?,
        None => processes.div_ceil(QUARTER),
    };
    let memory = match &written.memory {
        Some(memory) => mailboxes(memory, outside, report)?,
        None => u64::MAX,
    };
    Some(Attach {
        socket: PathBuf::from(written.socket.value()),
        processes,
        processes_per_user,
        memory,
    })
}

/// Returns the memory of all mailboxes together: at least one of them.
pub(super) fn mailboxes(
    written: &Text,
    outside: Option<&Link>,
    report: &mut Report,
) -> Option<u64> {
    let memory = written.read::<Size>("memory", report)?.0;
    let Some(outside) = outside else {
        return Some(memory);
    };
    let longest = (outside.longest.get() - outside.overhead).min(Attach::LONGEST);
    let (slots, one) = (Attach::SLOTS, Attach::mailbox(longest));
    if memory < one {
        let sentence = format!(
            "memory '{}': less than the {one} bytes of one mailbox, which has room for {slots} frames of {longest} bytes",
            written.value()
        );
        report.error(&written.span(), sentence);
        return None;
    }
    Some(memory)
}

/// Rejects a path at which Linux cannot create a socket, so that the error shows before the site starts.
pub(super) fn refuse_no_socket(path: &Text, report: &mut Report) {
    /// Bytes of a socket address, the last of which is zero.
    const ADDRESS: usize = 108;
    let text = path.value();
    if text.len() >= ADDRESS || text.contains('\0') {
        let sentence = format!(
            "socket '{text}': the path of a socket has at most {} bytes, none of them zero",
            ADDRESS - 1
        );
        report.error(&path.span(), sentence);
    }
}

pub(super) fn control(at: &At<file::Control>, report: &mut Report) -> Option<Control> {
    const MODE: u32 = 0o600;
    let written = at.value();
    let mut path = |key: &str, text: &Option<Text>| {
        let text = text.as_ref()?;
        if text.value().is_empty() {
            report.error(&text.span(), format!("{key}: a path is needed"));
        }
        Some(PathBuf::from(text.value()))
    };
    let socket = path("socket", &written.socket);
    let token = path("token", &written.token);
    let read_token = path("read-token", &written.read_token);
    if let Some(socket) = &written.socket {
        refuse_no_socket(socket, report);
    }
    if written.socket.is_none() && written.http.is_none() {
        report.error(
            &at.span(),
            "[control] needs 'socket', as in \"/run/fairlane.sock\", or 'http', as in \"127.0.0.1:7172\"",
        );
    }
    let mode = match &written.socket_mode {
        Some(mode) => file_mode(mode, report)?,
        None => MODE,
    };
    if let (Some(mode), None) = (&written.socket_mode, &written.socket) {
        report.error(
            &mode.span(),
            "socket-mode: it is for 'socket', which is not given",
        );
    }
    let http = match &written.http {
        Some(http) => Some(loopback(http, report)?),
        None => None,
    };
    for (key, token) in [
        ("token", &written.token),
        ("read-token", &written.read_token),
    ] {
        if let (Some(token), None) = (token, http) {
            report.error(
                &token.span(),
                format!("{key}: it is for 'http', which is not given"),
            );
        }
    }
    Some(Control {
        socket,
        mode,
        http,
        token,
        read_token,
    })
}

/// The unit of most thread counts.
pub(super) const AT_EACH: &str = "threads at each interface";

/// Reads the workers at these interfaces, as far as they are known.
pub(super) fn workers(
    at: &At<file::Workers>,
    interfaces: Option<&Interfaces>,
    report: &mut Report,
) -> Option<Workers> {
    let written = at.value();
    let receive = match &written.receive {
        Some(receive) => threads(receive, "receive", AT_EACH, 1..=Workers::MOST, report)?,
        None => None,
    };
    let transmit = match &written.transmit {
        Some(transmit) => threads(transmit, "transmit", AT_EACH, 0..=Workers::MOST, report)?,
        None => Some(0),
    };
    let arbiters = match &written.arbiters {
        Some(arbiters) => threads(arbiters, "arbiters", "threads that decide", 1..=2, report)?,
        None => None,
    };
    if let Some(at) = &written.arbiters
        && arbiters == Some(2)
        && interfaces.is_some_and(|interfaces| !matches!(interfaces.near, Near::Inside(_)))
    {
        report.error(
            &at.span(),
            "arbiters 2: a thread for each link needs threads that receive on both sides: name inside in \
             [interfaces], or leave out 'arbiters'",
        );
        return None;
    }
    let Some(cores) = &written.cores else {
        return Some(Workers {
            receive,
            transmit,
            cores: Vec::new(),
            arbiters,
        });
    };
    let Some(transmit) = transmit else {
        report.error(
            &cores.span(),
            "cores: there is one for each thread, and how many transmit is left to the machine: say how many, \
             or leave out cores",
        );
        return None;
    };
    let sides = interfaces.map(|interfaces| match interfaces.near {
        Near::Inside(_) => 2,
        Near::Tap(_) | Near::Nothing => 1,
    });
    let (receive, cores) = worker_cores(cores, receive, transmit, sides, report)?;
    Some(Workers {
        receive: Some(receive),
        transmit: Some(transmit),
        cores,
        arbiters,
    })
}

/// Reads a number of threads of a kind; `None` if it depends on the machine.
pub(super) fn threads(
    written: &At<Scalar>,
    key: &str,
    what: &str,
    possible: RangeInclusive<usize>,
    report: &mut Report,
) -> Option<Option<usize>> {
    let number = match written.value() {
        Scalar::Text(text) if text == "auto" => return Some(None),
        Scalar::Text(_) => None,
        Scalar::Number(number) => usize::try_from(*number).ok(),
    };
    let number = number.filter(|number| possible.contains(number));
    if number.is_none() {
        report.error(
            &written.span(),
            format!(
                "{key} {}: {what}, a number from {} to {}, or \"auto\"",
                written.value(),
                possible.start(),
                possible.end()
            ),
        );
    }
    number.map(Some)
}

/// Returns the cores of the workers at `sides` interfaces, as far as known, and with them the number of receive workers
/// at each, if that is not configured.
pub(super) fn worker_cores(
    cores: &At<Vec<Whole>>,
    receive: Option<usize>,
    transmit: usize,
    sides: Option<usize>,
    report: &mut Report,
) -> Option<(usize, Vec<usize>)> {
    const MOST_CORES: i64 = 1 << 16;
    let there = |core: &Whole| {
        let core = core.number().filter(|&core| core < MOST_CORES)?;
        usize::try_from(core).ok()
    };
    let numbers: Option<Vec<usize>> = cores.value().iter().map(there).collect();
    let Some(numbers) = numbers else {
        report.error(
            &cores.span(),
            format!(
                "cores: a core is a whole number from 0 to {}",
                MOST_CORES - 1
            ),
        );
        return None;
    };
    let named = numbers.len();
    let left = (named / sides.unwrap_or(1)).saturating_sub(transmit);
    let receive = receive.unwrap_or(left.clamp(1, Workers::MOST));
    let all = sides.map(|sides| [receive, transmit].map(|each| each * sides));
    if let Some([receive, transmit]) = all.filter(|all| all.iter().sum::<usize>() != named) {
        let transmit = match transmit {
            0 => String::new(),
            _ => format!(" and {transmit} transmit"),
        };
        report.error(
            &cores.span(),
            format!(
                "cores: {named} named, and {receive} receive{transmit}: name a core for each of them, or leave it out"
            ),
        );
        return None;
    }
    Some((receive, numbers))
}

/// Reads three octal digits, with or without a leading zero.
pub(super) fn file_mode(text: &Text, report: &mut Report) -> Option<u32> {
    let digits = text.value();
    let is_octal = digits.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    let mode = u32::from_str_radix(digits, 8).ok();
    let mode = mode.filter(|&mode| is_octal && mode <= 0o777 && (3..=4).contains(&digits.len()));
    if mode.is_none() {
        report.error(
            &text.span(),
            format!("socket-mode '{digits}': three octal digits are needed, as in \"0660\""),
        );
    }
    mode
}

/// Reads an address of this machine's loopback interface, with a port.
pub(super) fn loopback(text: &Text, report: &mut Report) -> Option<SocketAddr> {
    let written = text.value();
    let sentence = match written.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => return Some(address),
        Ok(address) => format!(
            "http '{written}': {} is no loopback address, and nothing is encrypted; use \
             \"127.0.0.1:{}\" and a proxy in front of it",
            address.ip(),
            address.port()
        ),
        Err(_) => {
            format!("http '{written}': address and port are needed, as in \"127.0.0.1:7172\"")
        }
    };
    report.error(&text.span(), sentence);
    None
}
