//! The kernel's own ways past a site: looked for at the start, and while it runs. So are other MTUs.

use std::fmt::Display;
use std::sync::Arc;

use fairlane_config::{Backend, Interfaces, Near};
use fairlane_io::network::{Network, Watch, Way};

use crate::error::{Result, unfit};
use crate::notice::{Notice, Notify};
use fairlane_dataplane::error::Context;

/// Packets that the kernel forwards between the interfaces of a site, or sends and receives by one of them, without
/// shaping; displayed, it is one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bypass {
    sentence: String,
    is_certain: bool,
}

impl Bypass {
    /// Whether these packets certainly pass: `run` refuses the site then.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.is_certain
    }
}

impl Display for Bypass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// Returns the bypasses of a site with these interfaces on this machine; none if an interface does not exist, or the
/// kernel cannot be queried. Some system calls.
#[must_use]
pub fn bypasses(interfaces: &Interfaces) -> Vec<Bypass> {
    // The run moves the addresses that are still outside.
    if interfaces.move_addresses {
        return Vec::new();
    }
    Network::read().map_or_else(|_| Vec::new(), |network| found(interfaces, &network))
}

/// Refuses interfaces between which the kernel certainly passes packets, unless the file allows it.
pub(crate) fn refuse(interfaces: &Interfaces) -> Result<()> {
    if interfaces.allow_bypass {
        return Ok(());
    }
    match bypasses(interfaces).iter().find(|it| it.is_certain) {
        Some(bypass) => unfit(format!(
            "{bypass}; or write allow-bypass = true in [interfaces] to run all the same"
        )),
        None => Ok(()),
    }
}

fn found(interfaces: &Interfaces, network: &Network) -> Vec<Bypass> {
    let outside = &interfaces.outside;
    match &interfaces.near {
        Near::Inside(inside) => {
            let ways = network.ways_between(inside, outside);
            ways.iter()
                .map(|way| of_way(way, interfaces.backend))
                .collect()
        }
        Near::Tap(tap) => of_host(outside, tap, network).into_iter().collect(),
        Near::Nothing => Vec::new(),
    }
}

fn of_way(way: &Way, backend: Backend) -> Bypass {
    let is_packet = backend == Backend::Packet;
    match way {
        Way::Bridge { bridge, ports } => {
            let [one, other] = ports;
            let effect = match is_packet {
                true => "which passes frames between them unshaped",
                false => "which the backend xdp cuts off",
            };
            Bypass {
                sentence: format!(
                    "{one:?} and {other:?} are ports of the bridge {bridge:?}, {effect}: take them out of it (ip link \
                     set {one} nomaster; ip link set {other} nomaster)"
                ),
                is_certain: true,
            }
        }
        Way::Route {
            version,
            devices: [one, other],
            is_certain,
        } => {
            let may = match is_certain {
                true => "routes",
                false => "may route",
            };
            let effect = match is_packet {
                true => "unshaped",
                false => "which the backend xdp cuts off",
            };
            let off = match version {
                4 => format!("net/ipv4/conf/{one}/forwarding=0 net/ipv4/conf/{other}/forwarding=0"),
                _ => "net/ipv6/conf/all/forwarding=0".to_owned(),
            };
            Bypass {
                sentence: format!(
                    "this machine {may} IPv{version} between {one:?} and {other:?}, {effect}: turn that off (sysctl \
                     {off}), remove the addresses of one of them (ip -{version} address flush dev {other}), or shape \
                     what a router sends with 'tap'"
                ),
                is_certain: *is_certain,
            }
        }
        Way::Above { port, device, kind } => {
            let sentence = match &**kind {
                "bridge" => format!(
                    "{port:?} is a port of the bridge {device:?}, which passes its frames to other ports unshaped: take \
                     it out of the bridge (ip link set {port} nomaster)"
                ),
                "bond" | "team" => format!(
                    "{port:?} is a part of the {kind} {device:?}, which sends and receives by it unshaped: name \
                     {device:?} in [interfaces], or take it out (ip link set {port} nomaster)"
                ),
                _ => format!(
                    "{device:?} ({kind}) sends and receives by {port:?} as well, unshaped: move it to another interface, or \
                     delete it (ip link delete {device})"
                ),
            };
            Bypass {
                sentence,
                is_certain: false,
            }
        }
    }
}

/// Addresses that this machine still has at the interface outside, and not at the tap device.
fn of_host(outside: &str, tap: &str, network: &Network) -> Option<Bypass> {
    let addresses = network.addresses(outside);
    let addresses = addresses
        .iter()
        .map(|(address, length)| format!("{address}/{length}"));
    let addresses: Vec<String> = addresses.collect();
    (!addresses.is_empty()).then(|| Bypass {
        sentence: format!(
            "outside {outside:?} has the address {}: what this machine sends and receives there is not shaped: move it to {tap:?}, or write move-addresses = true in [interfaces]",
            addresses.join(", ")
        ),
        is_certain: false,
    })
}

/// The bypasses of a running site, and the MTUs of its interfaces.
pub(crate) struct NetworkWatch {
    /// None where the kernel cannot be asked.
    watch: Option<Watch>,
    /// The interfaces by their indexes, which they keep when they are renamed: near, and outside.
    indexes: [Option<u32>; 2],
    mtus: [Option<u32>; 2],
    found: Vec<Arc<str>>,
}

impl NetworkWatch {
    /// Opens the watch in the calling thread's network namespace.
    pub(crate) fn open(notify: &Notify) -> NetworkWatch {
        let watch = Watch::open().doing("watching for ways past the site");
        let watch = watch.map_err(|error| notify(Notice::Warning(error.to_string())));
        NetworkWatch {
            watch: watch.ok(),
            indexes: [None; 2],
            mtus: [None; 2],
            found: Vec::new(),
        }
    }

    /// Looks again, and notifies of bypasses that began or ended since, and of other MTUs, with the longest frame of the
    /// link that leaves by each interface. Returns the sentences.
    pub(crate) fn look(
        &mut self,
        mut interfaces: Interfaces,
        longest: [Option<u32>; 2],
        notify: &Notify,
    ) -> Vec<Arc<str>> {
        let Some(watch) = &mut self.watch else {
            return Vec::new();
        };
        // The next report asks again.
        let _ = watch.refresh();
        let network = watch.network();
        let near = match &mut interfaces.near {
            Near::Inside(name) | Near::Tap(name) => Some(name),
            Near::Nothing => None,
        };
        let names = [near, Some(&mut interfaces.outside)];
        for (side, name) in names.into_iter().enumerate() {
            let Some(name) = name else { continue };
            let (index, former) = (&mut self.indexes[side], &mut self.mtus[side]);
            *index = network.index(name).or(*index);
            if let Some(renamed) = index.and_then(|index| network.name(index)) {
                renamed.clone_into(name);
            }
            // A missing interface keeps the former MTU until it is back.
            let Some(mtu) = network.mtu(name) else {
                continue;
            };
            if let Some(former) = former.replace(mtu).filter(|&former| former != mtu) {
                notify(Notice::MtuChanged {
                    interface: name.clone(),
                    mtu,
                    former,
                    longest: longest[side],
                });
            }
        }
        let now = found(&interfaces, network);
        let now: Vec<Arc<str>> = now.into_iter().map(|it| it.sentence.into()).collect();
        let before = std::mem::replace(&mut self.found, now.clone());
        for sentence in before.iter().filter(|it| !now.contains(it)) {
            // The rest of the sentence recommends a change.
            let (fact, _) = sentence.split_once(": ").unwrap_or((sentence, ""));
            notify(Notice::BypassEnded(fact.to_owned()));
        }
        for sentence in now.iter().filter(|it| !before.contains(it)) {
            notify(Notice::Bypassed(sentence.to_string()));
        }
        now
    }
}
