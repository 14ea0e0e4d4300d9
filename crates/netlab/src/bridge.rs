//! The kernel's own switch, to join what nothing else joins.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};

use crate::link::ask;
use crate::{LabError, Link, Namespace};

/// Makes a bridge with this name in `namespace` and connects `ports` to it, which are links there:
/// it forwards frames between them as a switch does. It is up and has no address.
///
/// # Errors
///
/// If the name is taken, if a port is in another namespace or has been deleted, or if the kernel
/// has no bridges.
pub fn bridge(namespace: &Namespace, name: &str, ports: &[&Link]) -> Result<Link, LabError> {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
    ];
    ask(
        namespace,
        RouteNetlinkMessage::NewLink(message),
        NLM_F_CREATE | NLM_F_EXCL,
        || format!("make the bridge {name}"),
    )?;
    let bridge = Link::find(namespace, name)?;
    for port in ports {
        let mut message = LinkMessage::default();
        message.header.index = port.index();
        message.attributes = vec![LinkAttribute::Controller(bridge.index())];
        ask(namespace, RouteNetlinkMessage::SetLink(message), 0, || {
            format!("connect {} to the bridge {name}", port.name())
        })?;
    }
    bridge.up()?;
    Ok(bridge)
}
