//! A whole site: its links with the tables around them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::again::Reading;
use super::link::link;
use super::machine::{attached, control, interfaces, workers};
use super::rooms;
use super::surroundings::Surroundings;
use super::words::Names;
use crate::diagnostic::Report;
use crate::file;
use crate::reservation::kept;
use crate::site::{Link, MtuOf, Role, Site};
use crate::written::At;

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
    let kept_of = |link: &Link| kept(&link.classes).0;
    let is_open = |at: &Arc<At<file::Link>>| {
        let limit = at.value().limit.as_ref().map(At::value);
        limit.is_none_or(|limit| limit.packets.is_none())
    };
    let mut fixed = 0;
    let mut open: Vec<&mut Arc<Link>> = Vec::new();
    let mut in_all = 0;
    for (at, link) in tables.iter().zip(links.iter_mut().map(|one| &mut one.link)) {
        in_all += kept_of(link);
        match is_open(at) {
            true => {
                fixed += kept_of(link);
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
        let packets = kept_of(link) + shared;
        let most = packets.max(1) as u32;
        if most < link.limits.packets {
            Arc::make_mut(link).limits.packets = most;
        }
    }
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
