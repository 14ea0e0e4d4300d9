//! `fairlane run` with a tap device that takes over the addresses of the interface outside.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use fairlane_io::interface::{addresses, gateways};
use fairlane_io::network::Network;
use fairlane_netlab::{Link, Namespace, or_skip, veth};
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Running, fairlane, start};
use crate::site::{PATIENCE, link};
use crate::site_control::until_it_tells;

/// Addresses of the host, and of the gateway on its network.
const ADDRESSES: [[&str; 2]; 2] = [["192.0.2.7", "192.0.2.1"], ["2001:db8::7", "2001:db8::1"]];
const LENGTHS: [u8; 2] = [24, 64];
const PORT: u16 = 4_000;

/// A host with one interface, `outside`, and a gateway at its other end.
struct Host {
    outside: Link,
    gateway: Link,
    folder: TempDir,
}

/// The addresses and gateways of an interface, in order.
type Known = (Vec<(IpAddr, u8)>, Vec<IpAddr>);

impl Host {
    fn new(test: &str) -> Option<Host> {
        let made = || {
            let (host, gateway) = (Namespace::new()?, Namespace::new()?);
            for namespace in [&host, &gateway] {
                for which in ["all", "default"] {
                    let key = format!("ipv6/conf/{which}/disable_ipv6");
                    namespace.set_parameter(&key, "0")?;
                }
            }
            let (outside, gateway) = veth((&host, "outside"), (&gateway, "gateway"), 1_500)?;
            for link in [&outside, &gateway] {
                link.turn_offloads_off()?;
                link.up()?;
            }
            outside.wait_for_carrier()?;
            for (addresses, length) in ADDRESSES.iter().zip(LENGTHS) {
                let [own, other] = addresses.map(|address| address.parse().unwrap());
                outside.add_address(own, length)?;
                gateway.add_address(other, length)?;
                outside.add_default_route(other)?;
            }
            Ok((outside, gateway))
        };
        let (outside, gateway) = or_skip(test, made())?;
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("ctl.sock");
        let file = format!(
            "[interfaces]\noutside = \"outside\"\ntap = \"fair0\"\nmove-addresses = true\n\
             [control]\nsocket = {socket:?}\n\
             [[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"100mbit\"\n\
             [[link]]\nname = \"down\"\nto = \"tap\"\nrate = \"100mbit\"\n"
        );
        fs::write(folder.path().join("site.toml"), file).unwrap();
        Some(Host {
            outside,
            gateway,
            folder,
        })
    }

    fn namespace(&self) -> &Namespace {
        self.outside.namespace()
    }

    fn file(&self) -> String {
        self.folder.path().join("site.toml").display().to_string()
    }

    /// Runs `fairlane ctl`.
    #[track_caller]
    fn ctl(&self, arguments: &[&str]) {
        let socket = self.folder.path().join("ctl.sock");
        until_it_tells(&socket);
        let socket = ["ctl", "--socket", socket.to_str().unwrap()];
        fairlane(&[&socket, arguments].concat()).success();
    }

    fn start(&self) -> Running {
        let file = self.file();
        let running = || start(&["run", &file, "--json", "--drain", "0"]);
        self.namespace().run(running)
    }

    fn known(&self, interface: &str) -> Known {
        let known = || (addresses(interface), gateways(interface));
        let (addresses, gateways) = self.namespace().run(known);
        let mut known = (addresses.unwrap_or_default(), gateways.unwrap_or_default());
        known.0.sort();
        known.1.sort();
        known
    }

    fn hardware(&self, interface: &str) -> Option<[u8; 6]> {
        let network = self.namespace().run(Network::read).unwrap();
        network.hardware(interface)
    }

    /// Waits until one interface has these addresses and gateways, and the other none.
    #[track_caller]
    fn until_moved(&self, [from, to]: [&str; 2], expected: &Known) {
        let begun = Instant::now();
        while self.known(to) != *expected || self.known(from) != Known::default() {
            let found = [from, to].map(|name| self.known(name));
            assert!(begun.elapsed() < PATIENCE, "{found:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn settings(&self) -> [String; 2] {
        let keys = [
            "ipv4/conf/outside/arp_ignore",
            "ipv6/conf/outside/disable_ipv6",
        ];
        let read = |key| fs::read_to_string(format!("/proc/sys/net/{key}")).unwrap();
        self.namespace().run(|| keys.map(read))
    }

    /// Sends datagrams from the host to the gateway and back, over IPv4 and IPv6.
    #[track_caller]
    fn exchange(&self) {
        for [own, other] in ADDRESSES {
            let begun = Instant::now();
            let bind = |link: &Link, address: &str| {
                let bind = || UdpSocket::bind((address, PORT));
                loop {
                    // An IPv6 address is usable only after duplicate address detection.
                    match link.namespace().run(bind) {
                        Ok(socket) => {
                            let wait = Some(Duration::from_millis(200));
                            socket.set_read_timeout(wait).unwrap();
                            break socket;
                        }
                        Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            };
            let (near, far) = (bind(&self.outside, own), bind(&self.gateway, other));
            let mut buffer = [0; 16];
            loop {
                let sent = near.send_to(b"there", (other, PORT));
                if sent.is_ok() && far.recv(&mut buffer).is_ok() {
                    let _ = far.send_to(b"back", (own, PORT));
                    if near.recv(&mut buffer).is_ok() {
                        break;
                    }
                }
                assert!(begun.elapsed() < PATIENCE, "{own} does not reach {other}");
                thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Waits until the gateway, which sends nothing, has learned this hardware address of the host.
    #[track_caller]
    fn until_neighbour_knows(&self, hardware: [u8; 6]) {
        let hardware: Vec<String> = hardware.iter().map(|byte| format!("{byte:02x}")).collect();
        let hardware = hardware.join(":");
        let begun = Instant::now();
        let table = || fs::read_to_string("/proc/thread-self/net/arp").unwrap();
        loop {
            let table = self.gateway.namespace().run(table);
            if table.contains(&hardware) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{hardware}: {table}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn addresses_and_routes_move_to_the_tap_device_and_back_also_after_a_kill() {
    let Some(host) = Host::new("addresses that move to a tap device") else {
        return;
    };
    let before = host.known("outside");
    assert_eq!((before.0.len(), before.1.len()), (2, 2), "{before:?}");
    let settings = host.settings();
    let own = host.hardware("outside").unwrap();
    host.exchange();
    host.until_neighbour_knows(own);
    let mut hardware = None;
    for signal in ["INT", "KILL", "TERM"] {
        let mut running = host.start();
        host.until_moved(["outside", "fair0"], &before);
        let of_tap = host.hardware("fair0").unwrap();
        assert_eq!(of_tap[0] & 3, 2, "locally administered: {of_tap:x?}");
        assert_eq!(
            *hardware.get_or_insert(of_tap),
            of_tap,
            "the same at each start"
        );
        assert_ne!(of_tap, own);
        host.until_neighbour_knows(of_tap);
        host.exchange();
        host.ctl(&["detach", "outside"]);
        host.until_moved(["fair0", "outside"], &before);
        host.ctl(&["attach", "outside"]);
        host.until_moved(["outside", "fair0"], &before);
        running.signal(signal);
        let finished = running.finish();
        assert!(!finished.stderr.contains("is not shaped"), "{finished:?}");
        if signal == "KILL" {
            assert_eq!(host.known("outside"), Known::default());
            continue;
        }
        assert!(finished.status.success(), "{finished:?}");
        let report: Value = serde_json::from_str(&finished.stdout).unwrap();
        for name in ["up", "down"] {
            let sent = link(&report, name)["transmitted"].as_u64();
            assert!(sent >= Some(2), "{report:#}");
        }
        host.until_moved(["fair0", "outside"], &before);
        assert_eq!(host.settings(), settings);
        host.until_neighbour_knows(own);
        host.exchange();
    }
}

#[test]
fn addresses_that_stay_outside_are_warned_of_and_init_moves_them() {
    let Some(host) = Host::new("addresses that stay outside") else {
        return;
    };
    let file = host.file();
    let with = fs::read_to_string(&file).unwrap();
    let check = || host.namespace().run(|| fairlane(&["check", &file]));
    assert_eq!(check().stderr, "");
    fs::write(&file, with.replace("move-addresses = true\n", "")).unwrap();
    let words =
        "outside \"outside\" has the address 192.0.2.7/24, 2001:db8::7/64: what this machine";
    assert!(check().stderr.contains(words), "{:?}", check());
    let mut running = host.start();
    running.until_said(words);
    running.signal("INT");
    assert!(running.finish().status.success());
    let made = || fairlane(&["init", "--tap", "--outside", "outside", "-"]);
    let made = host.namespace().run(made).stdout;
    for line in [
        "#   address 192.0.2.7/24",
        "#   address 2001:db8::7/64",
        "#   gateway 192.0.2.1",
        "#   gateway 2001:db8::1",
        "move-addresses = true",
    ] {
        assert!(made.contains(line), "{line}: {made}");
    }
}
