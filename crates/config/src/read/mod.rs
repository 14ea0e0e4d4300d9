//! Validation of a parsed file into a site, with all errors reported.

mod above;
mod admission;
mod again;
mod classes;
mod entitlements;
mod family;
mod filters;
mod grants;
mod link_control;
mod longest;
mod queue;
mod rooms;
mod settle;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairlane_core::tree::TreeError;
use fairlane_core::units::MAX_LENGTH;
use fairlane_core::{DisciplineError, Rate};

use crate::algorithms;
use crate::diagnostic::{Report, suggestion};
use crate::file;
use crate::list::List;
pub(crate) use admission::admit;
pub(crate) use again::Reading;
pub(crate) use grants::together;
use link_control::LinkControl;
pub(crate) use rooms::{grant, kept, kept_for};

use crate::site::{
    Attach, Backend, Control, Found, Interfaces, Like, Link, LinkAlgorithm, MtuOf, Near, Role,
    Site, Workers,
};
use crate::units::{Size, Time};
use crate::written::{At, Scalar, Text, Whole};

/// Ethernet's preamble, start delimiter, checksum and gap between frames.
const ETHERNET: u32 = 24;
/// The most packets in all links together with the backend xdp.
pub const XDP_MOST_WAITING: u32 = 122_368;

/// Returns the site, or reports the errors.
pub(crate) fn site(file: &file::File, mtu: MtuOf<'_>, report: &mut Report) -> Option<Site> {
    site_again(file, mtu, &[], &[], report).map(|(site, _)| site)
}

/// Returns the site, using the readings of its links from an earlier read, `former`, which gave rise to no message.
/// Without it, unchanged parts of the `running` links are shared with them: a whole link, or the names of its classes.
pub(crate) fn site_again(
    file: &file::File,
    mtu: MtuOf<'_>,
    former: &[Reading],
    running: &[Arc<Link>],
    report: &mut Report,
) -> Option<(Site, Vec<Reading>)> {
    let attach = file.attach.as_ref().map(|at| at.value());
    let interfaces = file
        .interfaces
        .as_ref()
        .map(|at| interfaces(at.value(), attach.is_some(), report));
    let around = Surroundings {
        interfaces: interfaces.as_ref().map(Option::as_ref),
        attach: attach.is_some(),
        mtu,
        running,
    };
    if file.link.is_empty() {
        report.error(
            &(0..0),
            "there is no [[link]]: at least one direction is shaped",
        );
    }
    refuse_too_many_classes(file, report);
    let mut names = Names::new("link");
    let mut ways = HashMap::new();
    let mut links: Vec<Reading> = Vec::new();
    for (number, at) in file.link.iter().enumerate() {
        let written = at.value();
        names.insert(&written.name, report);
        let to = around.to(written, report);
        if let Some(first) = ways.insert(to.name(), written.name.value().as_str()) {
            let place = written.to.as_ref().unwrap_or(&written.name);
            report.error(
                &place.span(),
                format!("link '{first}' leaves by {} already", to.name()),
            );
        }
        links.extend(link(at, to, &around, former.get(number), report));
    }
    if let Some(attach) = &file.attach
        && !file.link.is_empty()
        && !ways.contains_key(Role::Outside.name())
    {
        report.error(
            &attach.value().socket.span(),
            "socket: processes that attach send by the interface outside, and no link has to = \"outside\"",
        );
    }
    if let Some(at) = &file.interfaces
        && !report.failed()
    {
        xdp_room(at.value(), &file.link, &mut links, report);
    }
    let attach = attach.map(|attach| {
        let outside = links.iter().find(|one| one.link.to == Role::Outside);
        attached(attach, outside.map(|one| &*one.link), report)
    });
    let control = (file.control.as_ref()).map(|written| control(written, report));
    let workers = file.workers.as_ref().map(|at| {
        let interfaces = interfaces.as_ref().and_then(Option::as_ref);
        workers(at, interfaces, report)
    });
    refuse_one_socket_for_both(file, report);
    (!report.failed()).then(|| {
        let site = Site {
            interfaces: interfaces.flatten(),
            attach: attach.flatten(),
            control: control.flatten(),
            workers: workers.flatten(),
            links: links.iter().map(|one| Arc::clone(&one.link)).collect(),
            text: Arc::default(),
            warnings: Vec::new(),
            grants: Vec::new(),
        };
        (site, links)
    })
}

/// Rejects too many classes: a class takes up to some tens of kilobytes of memory.
fn refuse_too_many_classes(file: &file::File, report: &mut Report) {
    const MOST: usize = 65_536;
    let mut count = 0;
    for link in &file.link {
        count += link.value().class.len();
        if count > MOST {
            let name = &link.value().name;
            let sentence = format!(
                "link '{}': too many classes (at most {MOST} in all links)",
                name.value()
            );
            return report.error(&name.span(), sentence);
        }
    }
}

/// With AF_XDP, all queued packets are in memory shared with the kernel. Links without a configured limit share the
/// part that is not reserved for their classes.
fn xdp_room(
    written: &file::Interfaces,
    tables: &[Arc<At<file::Link>>],
    links: &mut [Reading],
    report: &mut Report,
) {
    let Some(backend) = written
        .backend
        .as_ref()
        .filter(|text| text.value() == "xdp")
    else {
        return;
    };
    let most = u64::from(XDP_MOST_WAITING);
    let kept = |link: &Link| rooms::kept(&link.classes).0;
    let is_open = |at: &Arc<At<file::Link>>| {
        let limit = at.value().limit.as_ref().map(At::value);
        limit.is_none_or(|limit| limit.packets.is_none())
    };
    let mut fixed = 0;
    let mut open: Vec<&mut Arc<Link>> = Vec::new();
    let mut in_all = 0;
    for (at, link) in tables.iter().zip(links.iter_mut().map(|one| &mut one.link)) {
        in_all += kept(link);
        match is_open(at) {
            true => {
                fixed += kept(link);
                open.push(link);
            }
            false => fixed += u64::from(link.limits.packets),
        }
    }
    if in_all > most {
        let classes = tables.iter().zip(links.iter());
        let advice = match rooms::fitting(classes.map(|(at, one)| (at.value(), &*one.link)), most) {
            Some((packets, count)) => format!(
                "write room = {{ packets = {packets} }} in the {count} classes that have more"
            ),
            None => "give classes and flows less 'room'".to_owned(),
        };
        return report.error(
            &backend.span(),
            format!(
                "backend 'xdp': at most {most} packets may wait in all links, and room for \
                 {in_all} is kept for their classes: {advice}, or use the backend \"packet\""
            ),
        );
    }
    // Configured limits are checked when the devices are opened.
    let links = open.len().max(1) as u64;
    let shared = most.saturating_sub(fixed) / links;
    for link in open {
        let packets = kept(link) + shared;
        let most = packets.max(1) as u32;
        if most < link.limits.packets {
            Arc::make_mut(link).limits.packets = most;
        }
    }
}

/// The configuration outside the links, as far as it is valid.
struct Surroundings<'a> {
    /// `None` if the file has none; `Some(None)` if they are invalid.
    interfaces: Option<Option<&'a Interfaces>>,
    attach: bool,
    mtu: MtuOf<'a>,
    running: &'a [Arc<Link>],
}

impl Surroundings<'_> {
    /// Returns whether there is such a side; true for all if that is unknown.
    fn has(&self, role: Role) -> bool {
        match (role, self.interfaces) {
            (Role::Attached, Some(_)) => self.attach,
            (_, None | Some(None)) | (Role::Outside, _) => true,
            (Role::Inside, Some(Some(interfaces))) => matches!(interfaces.near, Near::Inside(_)),
            (Role::Tap, Some(Some(interfaces))) => matches!(interfaces.near, Near::Tap(_)),
        }
    }

    fn to(&self, link: &file::Link, report: &mut Report) -> Role {
        let Some(to) = &link.to else {
            return Role::Outside;
        };
        let roles = [Role::Outside, Role::Inside, Role::Tap].map(|role| (role.name(), role));
        let Some(role) = word(to, "to", &roles, report) else {
            return Role::Outside;
        };
        if !self.has(role) {
            report.error(
                &to.span(),
                format!("to '{}': [interfaces] has no '{0}'", role.name()),
            );
        }
        role
    }
}

fn interfaces(written: &file::Interfaces, attach: bool, report: &mut Report) -> Option<Interfaces> {
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
fn attached(written: &file::Attach, outside: Option<&Link>, report: &mut Report) -> Option<Attach> {
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
fn mailboxes(written: &Text, outside: Option<&Link>, report: &mut Report) -> Option<u64> {
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

/// Rejects one socket for both attaching processes and the control API.
fn refuse_one_socket_for_both(file: &file::File, report: &mut Report) {
    let attach = file.attach.as_ref().map(|at| &at.value().socket);
    let control = file.control.as_ref();
    let control = control.and_then(|at| at.value().socket.as_ref());
    if let (Some(attach), Some(control)) = (attach, control)
        && Path::new(attach.value()) == Path::new(control.value())
    {
        let sentence = format!(
            "socket '{}': it is the socket of [control] too; [attach] needs a path of its own",
            attach.value()
        );
        report.error(&attach.span(), sentence);
    }
}

/// Rejects a path at which Linux cannot create a socket, so that the error shows before the site starts.
fn refuse_no_socket(path: &Text, report: &mut Report) {
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

fn control(at: &At<file::Control>, report: &mut Report) -> Option<Control> {
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
const AT_EACH: &str = "threads at each interface";

/// Reads the workers at these interfaces, as far as they are known.
fn workers(
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
fn threads(
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
fn worker_cores(
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
fn file_mode(text: &Text, report: &mut Report) -> Option<u32> {
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
fn loopback(text: &Text, report: &mut Report) -> Option<SocketAddr> {
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

/// Linux's rules for the name of an interface, in words.
pub const INTERFACE_NAME: &str =
    "the name of an interface has 1 to 15 bytes, without spaces, '/' and ':'";

/// Returns whether a name is valid for an interface by [Linux's rules](INTERFACE_NAME).
pub fn is_interface_name(text: &str) -> bool {
    let unfit = |c: char| matches!(c, '/' | ':' | '\0') || c.is_whitespace();
    (1..=15).contains(&text.len()) && text != "." && text != ".." && !text.contains(unfit)
}

fn interface_name(key: &str, name: &Text, report: &mut Report) {
    let text = name.value();
    if !is_interface_name(text) {
        report.error(&name.span(), format!("{key} '{text}': {INTERFACE_NAME}"));
    }
}

/// Returns the value of a word; if there is none, reports the valid words or the nearest.
fn word<T: Copy>(text: &Text, key: &str, words: &[(&str, T)], report: &mut Report) -> Option<T> {
    let written = text.value();
    let found = words.iter().find(|(word, _)| word == written);
    if found.is_none() {
        let known: Vec<_> = words.iter().map(|&(word, _)| word).collect();
        report.error(&text.span(), unknown(key, written, &known));
    }
    found.map(|&(_, value)| value)
}

/// Formats the error about an unknown name, with the nearest one or all valid ones.
fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let near = suggestion(name, known.iter().copied());
    match near.is_empty() {
        true => format!(
            "{what} '{name}' does not exist: it is one of {}",
            known.join(", ")
        ),
        false => format!("{what} '{name}' does not exist{near}"),
    }
}

/// Names that must be distinct.
struct Names<'a> {
    what: &'static str,
    known: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    fn new(what: &'static str) -> Names<'a> {
        let known = HashMap::new();
        Names { what, known }
    }

    /// Returns the number of names before this one. Reports a name that is a duplicate, is empty, or has a control
    /// character, which a terminal or a log would not show.
    fn insert(&mut self, name: &'a Text, report: &mut Report) {
        let number = self.known.len();
        let is_control = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
        if let Some(letter) = name.value().chars().find(|&c| is_control(c)) {
            report.error(
                &name.span(),
                format!(
                    "name '{}': {} is a control character (any other character is allowed)",
                    name.value().escape_debug(),
                    letter.escape_unicode()
                ),
            );
        }
        if name.value().is_empty() {
            report.error(
                &name.span(),
                format!("name: a {} needs one that is not empty", self.what),
            );
        }
        if let "." | ".." = name.value().as_str() {
            report.error(
                &name.span(),
                format!(
                    "name '{}': no {} has that name, which is no part of an address",
                    name.value(),
                    self.what
                ),
            );
        }
        if self.known.insert(name.value(), number).is_some() {
            report.error(
                &name.span(),
                format!(
                    "name '{}': another {} has it already",
                    name.value(),
                    self.what
                ),
            );
        }
    }
}

fn link(
    at: &Arc<At<file::Link>>,
    to: Role,
    around: &Surroundings,
    former: Option<&Reading>,
    report: &mut Report,
) -> Option<Reading> {
    let written = at.value();
    let (link, mut classes) = unfiltered(written, to, around, former, report)?;
    let rules = filters::read(written, to, &classes, around, former, report);
    let asks_names = match former {
        Some(former) if Arc::ptr_eq(&former.link.rules, &rules) => former.asks_names,
        _ => filters::ask_names(written),
    };
    let like = former
        .zip(classes.again.take())
        .map(|(former, again)| Like::of(&former.link, again));
    let link = Link {
        classes: std::mem::take(&mut classes.classes),
        rules,
        found: Found::of(std::mem::take(&mut classes.guarantees), classes.kept, like),
        ..link?
    };
    // Checks again for errors that were missed above, so that they show here and not in a running link. In an unchanged
    // tree, this can skip the classes that were found valid before.
    let same = former.is_some_and(|former| Arc::ptr_eq(&former.family, &classes.family));
    let known = |place: usize| {
        let at = classes.family.order.get(place);
        at.is_some_and(|&at| classes.known[at])
    };
    let looked_at = |place: usize| !(same && known(place));
    // A link identical to the running one is not stored a second time, and was validated before.
    let runs = around
        .running
        .iter()
        .find(|running| running.says_what(&link));
    if runs.is_none()
        && let Err((class, reason)) = link.check(looked_at)
    {
        let name = &link.classes[class].name;
        let mut tables = written.class.iter().map(|class| class.value());
        let table = tables.find(|table| table.name.value().as_str() == &**name);
        let queue = table.and_then(|table| table.queue.as_deref());
        match (reason, queue) {
            (DisciplineError::Tree(TreeError::Unfit { algorithm, what }), Some(queue)) => report.error(
                &queue.span(),
                format!(
                    "queue: algorithm \"{algorithm}\" cannot order {what} (use \"tail-drop\" or \"red\", or \
                     another algorithm)"
                ),
            ),
            (reason, _) => report.error(
                &table.map_or(&written.name, |table| &table.name).span(),
                format!("class '{name}': {reason}"),
            ),
        }
    }
    Some(Reading {
        written: Arc::clone(at),
        link: runs.map_or_else(|| Arc::new(link), Arc::clone),
        family: classes.family,
        alone: classes.alone,
        bases: classes.bases,
        asks_names,
    })
}

/// Returns a link without its filters and, separately, its classes; no link if only its limit is invalid.
fn unfiltered(
    written: &file::Link,
    to: Role,
    around: &Surroundings,
    former: Option<&Reading>,
    report: &mut Report,
) -> Option<(Option<Link>, classes::Classes)> {
    let rate: Option<Rate> = written.rate.read("rate", report);
    let overhead = match &written.overhead {
        Some(at) => overhead(at, report),
        None => Some(0),
    };
    let (longest, longest_by) = longest::read(written, to, around, overhead?, report)?;
    let algorithm = match &written.algorithm {
        Some(text) if text.value() == LinkAlgorithm::CBQ => {
            if let Some(quantum) = &written.quantum {
                algorithms::stray_quantum(quantum, report);
            }
            LinkAlgorithm::Cbq
        }
        name => LinkAlgorithm::Tree(queue::algorithm_of(
            name.as_ref(),
            &[LinkAlgorithm::CBQ],
            written.quantum.as_ref(),
            report,
        )?),
    };
    let shortest = crate::site::shortest(longest, overhead?);
    let limits = rooms::Written::read(written, longest, report);
    let lengths = (longest, shortest);
    let running = around.running.iter().find(|link| link.to == to);
    // A link that was read before already shares its names.
    let named = running.filter(|_| former.is_none());
    let named = named.map_or_else(Vec::new, |link| classes::named(link));
    let link_control = LinkControl::read(written, to, around);
    let of_link = (rate?, algorithm, &link_control);
    let classes = classes::read(written, of_link, lengths, (former, &named), report)?;
    let limits = limits?.settle(written, classes.kept, report);
    let (rate, overhead) = (rate?, overhead?);
    let link = limits.map(|limits| Link {
        name: written.name.value().clone(),
        to,
        rate,
        overhead,
        longest,
        longest_by,
        algorithm,
        limits,
        default: classes.default,
        link_control: classes.link_control,
        classes: List::default(),
        rules: Arc::default(),
        found: Found::default(),
    });
    Some((link, classes))
}

fn overhead(at: &At<Scalar>, report: &mut Report) -> Option<u32> {
    let bytes = match at.value() {
        Scalar::Text(text) if text == "ethernet" => Some(ETHERNET),
        Scalar::Text(_) => None,
        Scalar::Number(number) => u32::try_from(*number)
            .ok()
            .filter(|&bytes| bytes < MAX_LENGTH),
    };
    if bytes.is_none() {
        report.error(
            &at.span(),
            format!(
                "overhead '{}': it is a number of bytes from 0 to {}, or \"ethernet\" for {ETHERNET}",
                at.value(),
                MAX_LENGTH - 1
            ),
        );
    }
    bytes
}
