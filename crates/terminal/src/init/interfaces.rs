//! The interfaces of this machine, from `/proc` and `/sys`. Nothing is opened or changed.

use std::fs;
use std::path::{Path, PathBuf};

use fairlane_core::Rate;

/// An interface that a site can use.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Its speed, if the driver reports it.
    pub(super) speed: Option<Rate>,
    /// True if it has a device: a port of this machine, or a VLAN or bond of ports.
    is_port: bool,
    /// True if a cable is plugged in, or that is unknown.
    pub(super) has_carrier: bool,
}

/// The interfaces of the program's network namespace.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// Suitable interfaces, in the system's order.
    pub(super) interfaces: Vec<Interface>,
    /// The other interfaces, each with the reason.
    pub(super) unfit: Vec<(String, &'static str)>,
    /// The interface of the default route.
    pub(super) default_route: Option<String>,
}

// Interface flags from linux/if.h, and hardware types from linux/if_arp.h.
const LOOPBACK: u32 = 1 << 3;
const NO_ARP: u32 = 1 << 7;
const ETHERNET: &str = "1";

impl Machine {
    /// Reads the interfaces of this machine.
    pub(super) fn look() -> Machine {
        Machine::below(Path::new("/"))
    }

    /// Reads the interfaces of a machine whose `proc` and `sys` are in this folder.
    fn below(root: &Path) -> Machine {
        let proc = |name: &str| {
            let text = fs::read(root.join("proc").join(name)).unwrap_or_default();
            String::from_utf8_lossy(&text).into_owned()
        };
        let names = names(&proc("net/dev"));
        let routes = routes(&proc("net/route"));
        let way_out = routes.iter().filter(|route| route.is_default);
        let way_out = way_out.min_by_key(|route| route.metric);
        let mut machine = Machine {
            default_route: way_out
                .map(|route| route.by.clone())
                .or_else(|| default_of_ipv6(&proc("net/ipv6_route"))),
            ..Machine::default()
        };
        let folders = Folders::of(root.join("sys/class/net"), &names);
        for name in names {
            match folders.look(&name) {
                Ok(interface) => machine.interfaces.push(interface),
                Err(reason) => machine.unfit.push((name, reason)),
            }
        }
        // If there are ports, an interface without a device is the end of a container or a tunnel.
        if machine.interfaces.iter().any(|interface| interface.is_port) {
            let (ports, others) = (machine.interfaces.into_iter()).partition(|it| it.is_port);
            machine.interfaces = ports;
            let others: Vec<Interface> = others;
            let others = others.into_iter().map(|it| (it.name, "has no port"));
            machine.unfit.extend(others);
        }
        machine
    }

    /// Returns the interface of this name, if a site can use it.
    pub(super) fn find(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|it| it.name == name)
    }
}

/// Parses the interface names in `/proc/net/dev`: two header lines, then a line for each interface.
fn names(text: &str) -> Vec<String> {
    let lines = text.lines().skip(2);
    // Interface names contain no colon.
    let names = lines.filter_map(|line| Some(line.split_once(':')?.0.trim_start()));
    names.map(str::to_owned).collect()
}

struct Route {
    by: String,
    is_default: bool,
    metric: u64,
}

/// Parses `/proc/net/route`: interface, destination, gateway, flags, references, uses, metric, mask.
fn routes(text: &str) -> Vec<Route> {
    let route = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let &[by, destination, _, _, _, _, metric, mask, ..] = &fields[..] else {
            return None;
        };
        // A route that rejects packets has the interface "*".
        (by != "*").then(|| Route {
            by: by.to_owned(),
            is_default: destination == "00000000" && mask == "00000000",
            metric: metric.parse().unwrap_or(u64::MAX),
        })
    };
    text.lines().skip(1).filter_map(route).collect()
}

/// Returns the interface of the default route in `/proc/net/ipv6_route`: destination and its length, source and its
/// length, next hop, metric, references, uses, flags, interface.
fn default_of_ipv6(text: &str) -> Option<String> {
    let lines = text.lines().map(|line| line.split_whitespace().collect());
    let mut defaults = lines.filter_map(|fields: Vec<&str>| {
        let everything = fields.first()?.bytes().all(|digit| digit == b'0');
        let by = (everything && *fields.get(1)? == "00").then_some(*fields.get(9)?)?;
        (by != "lo").then(|| by.to_owned())
    });
    defaults.next()
}

/// The directory `/sys/class/net`; `None` if it belongs to another namespace, as in a namespace created without
/// remounting it.
struct Folders(Option<PathBuf>);

impl Folders {
    fn of(folder: PathBuf, names: &[String]) -> Folders {
        let are_all_there = names.iter().all(|name| folder.join(name).is_dir());
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        // Plain files are settings of bonds.
        let others = entries.filter(|entry| entry.path().is_dir());
        let is_ours = are_all_there && others.count() == names.len();
        Folders(is_ours.then_some(folder))
    }

    /// Returns the interface of this name, or the reason why a site cannot use it.
    fn look(&self, name: &str) -> Result<Interface, &'static str> {
        if name.contains(char::REPLACEMENT_CHARACTER) {
            return Err("has a name that is no text");
        }
        let Some(folder) = &self.0 else {
            return match name {
                "lo" => Err("is the loopback"),
                _ => Ok(Interface {
                    name: name.to_owned(),
                    speed: None,
                    is_port: false,
                    has_carrier: true,
                }),
            };
        };
        let of = |key: &str| folder.join(name).join(key);
        let text = |key: &str| {
            let text = fs::read_to_string(of(key)).unwrap_or_default();
            text.trim().to_owned()
        };
        let is_there = |key: &str| of(key).exists();
        let flags = text("flags");
        let flags = flags.strip_prefix("0x").unwrap_or_default();
        let flags = u32::from_str_radix(flags, 16).unwrap_or(0);
        let kind = text("uevent");
        let kind = kind.lines().find_map(|line| line.strip_prefix("DEVTYPE="));
        if flags & LOOPBACK != 0 {
            return Err("is the loopback");
        }
        if text("type") != ETHERNET {
            return Err("carries no Ethernet frames");
        }
        if is_there("master") {
            return Err("is a part of a bridge or bond");
        }
        if is_there("wireless") || is_there("phy80211") {
            return Err("is wireless, and sends no frames of other machines");
        }
        if is_there("bridge") {
            return Err("is a bridge of the system's");
        }
        if is_there("tun_flags") || flags & NO_ARP != 0 {
            return Err("has no port");
        }
        let speed = text("speed").parse::<u64>().ok();
        Ok(Interface {
            name: name.to_owned(),
            speed: speed.and_then(|mbit| Rate::from_bps(mbit.checked_mul(1_000_000)?)),
            is_port: is_there("device") || matches!(kind, Some("vlan" | "bond")),
            has_carrier: text("carrier") == "1",
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const ROUTES: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n";

    /// A directory with the files of a machine.
    pub(crate) struct Files(tempfile::TempDir);

    impl Files {
        pub(crate) fn new() -> Files {
            let files = Files(tempfile::tempdir().unwrap());
            files.write("proc/net/dev", "Inter-|\n face |bytes\n");
            files.write("proc/net/route", ROUTES);
            files.port("lo", &[("flags", "0x9"), ("type", "772")]);
            files
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let before = fs::read_to_string(&path).unwrap_or_default();
            fs::write(path, before + text).unwrap();
        }

        /// Adds an Ethernet device with these keys in `sys`.
        pub(crate) fn port(&self, name: &str, keys: &[(&str, &str)]) {
            self.write("proc/net/dev", &format!("{name:>6}: 0 0\n"));
            let usual = [("type", "1\n"), ("flags", "0x1003\n"), ("carrier", "1\n")];
            let given = |key: &str| keys.iter().any(|&(other, _)| other == key);
            let usual = usual.iter().filter(|(key, _)| !given(key));
            for (key, value) in usual.chain(keys) {
                self.write(&format!("sys/class/net/{name}/{key}"), value);
            }
        }

        pub(crate) fn route(&self, by: &str, to: &str, metric: u32) {
            let line = format!("{by}\t{to}\t010200C0\t0003\t0\t0\t{metric}\t{to}\t0\t0\t0\n");
            self.write("proc/net/route", &line);
        }

        pub(crate) fn machine(&self) -> Machine {
            Machine::below(self.0.path())
        }
    }

    fn names(machine: &Machine) -> Vec<&str> {
        machine.interfaces.iter().map(|it| &*it.name).collect()
    }

    #[test]
    fn ports_are_told_from_what_else_is_called_an_interface() {
        let files = Files::new();
        files.port("eth0", &[("device/vendor", ""), ("speed", "1000\n")]);
        files.port("eth1", &[("device/vendor", ""), ("speed", "-1\n")]);
        files.port("eth0.7", &[("uevent", "DEVTYPE=vlan\nINTERFACE=eth0.7\n")]);
        for (name, key, value) in [
            ("docker0", "bridge/bridge_id", ""),
            ("vethab12", "master/ifindex", "7"),
            ("wlan0", "wireless/status", ""),
            ("tun0", "tun_flags", "0x1002"),
            ("tun1", "type", "65534"),
            ("ifb0", "flags", "0x82"),
            ("cali7", "operstate", "up"),
        ] {
            files.port(name, &[(key, value)]);
        }
        let machine = files.machine();
        assert_eq!(names(&machine), ["eth0", "eth1", "eth0.7"]);
        let speed = |name: &str| machine.find(name).unwrap().speed.map(Rate::bps);
        assert_eq!((speed("eth0"), speed("eth1")), (Some(1_000_000_000), None));
        let why = |name: &str| {
            let found = machine.unfit.iter().find(|(other, _)| other == name);
            found.unwrap_or_else(|| panic!("{name}: {machine:?}")).1
        };
        for (name, reason) in [
            ("lo", "loopback"),
            ("docker0", "bridge of the system"),
            ("vethab12", "part of a bridge"),
            ("wlan0", "wireless"),
            ("tun0", "no port"),
            ("tun1", "no Ethernet"),
            ("ifb0", "no port"),
            ("cali7", "no port"),
        ] {
            assert!(why(name).contains(reason), "{name} {}", why(name));
        }
    }

    #[test]
    fn virtual_ends_serve_where_there_is_no_port() {
        let files = Files::new();
        files.port("eth0", &[]);
        files.port("eth1", &[("carrier", "0\n")]);
        let machine = files.machine();
        assert_eq!(names(&machine), ["eth0", "eth1"]);
        assert!(machine.interfaces[0].has_carrier && !machine.interfaces[1].has_carrier);
    }

    #[test]
    fn sysfs_of_another_namespace_is_ignored() {
        let files = Files::new();
        files.port("eth0", &[("wireless/status", "")]);
        files.write("proc/net/dev", "  other: 0 0\n");
        assert_eq!(names(&files.machine()), ["eth0", "other"]);
        let files = Files::new();
        files.port("eth0", &[("wireless/status", "")]);
        files.write("sys/class/net/elsewhere/type", "1");
        assert_eq!(names(&files.machine()), ["eth0"]);
    }

    #[test]
    fn the_default_route_is_the_one_of_the_least_metric_and_may_be_of_ipv6() {
        let files = Files::new();
        for name in ["eth0", "eth1"] {
            files.port(name, &[("device/vendor", "")]);
        }
        assert_eq!(files.machine().default_route, None);
        let six = |by: &str| {
            let zero = "0".repeat(32);
            format!("{zero} 00 {zero} 00 fe80 00000400 00000001 00000000 00000003 {by}\n")
        };
        files.write("proc/net/ipv6_route", &six("lo"));
        assert_eq!(files.machine().default_route, None);
        files.write("proc/net/ipv6_route", &six("eth0"));
        assert_eq!(files.machine().default_route.as_deref(), Some("eth0"));
        files.route("eth0", "00000000", 600);
        files.route("*", "00000000", 0);
        files.route("eth1", "00000000", 100);
        assert_eq!(files.machine().default_route.as_deref(), Some("eth1"));
    }

    #[test]
    fn machine_without_sysfs_has_no_interfaces() {
        let empty = tempfile::tempdir().unwrap();
        let machine = Machine::below(empty.path());
        assert!(machine.interfaces.is_empty() && machine.default_route.is_none());
        let files = Files::new();
        files.write(
            "proc/net/dev",
            "no line of the kernel's\n\u{fffd}\u{1b}[2J: 0\n",
        );
        files.write("proc/net/route", "eth0 00000000\n\n");
        files.write("proc/net/ipv6_route", "0 00\n");
        let machine = files.machine();
        assert!(machine.interfaces.is_empty() && machine.default_route.is_none());
    }
}
