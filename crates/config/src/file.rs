//! The file's tables and keys as they may be written. What they say is documented here, once:
//! the schema is made from it.

use std::sync::Arc;

use fairlane_core::Rate;
#[cfg(test)]
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::list::List;
#[cfg(test)]
use crate::schema;
use crate::written::{At, Scalar, Text, Whole};

/// A site: the interfaces that Fairlane joins, and the shaping of packets that leave by them.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[cfg_attr(test, schemars(rename = "site"))]
pub(crate) struct File {
    /// The network interfaces. Not needed to check a file, to simulate it or to replay traffic
    /// through it.
    pub interfaces: Option<At<Interfaces>>,
    /// Processes of this machine that push frames through shared memory.
    pub attach: Option<At<Attach>>,
    /// Access to the state of a running site, and to changes.
    pub control: Option<At<Control>>,
    /// Receive and transmit workers. Without this table the forwarding thread does everything.
    pub workers: Option<At<Workers>>,
    /// The shaped directions, one link each. A direction without a link is forwarded unshaped.
    #[serde(default)]
    pub link: Vec<Arc<At<Link>>>,
}

/// The interfaces. `outside` with `inside` is a bump in the wire: frames that arrive at one leave by the other.
/// `outside` with `tap` is the egress of one interface: Fairlane makes the tap device, and the host sends there
/// instead. `outside` alone carries the packets of attached processes.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[cfg_attr(test, schemars(rename = "interfaces"))]
pub(crate) struct Interfaces {
    /// Name of the interface towards the local machines, such as "lan0".
    pub inside: Option<Text>,
    /// Name of the interface towards the rest of the world, such as "wan0".
    pub outside: Text,
    /// Name of the tap device to make, instead of `inside`.
    pub tap: Option<Text>,
    /// Whether the addresses and routes of `outside` move to the tap device while Fairlane runs, IPv4 and IPv6:
    /// false by default.
    pub move_addresses: Option<At<bool>>,
    /// Whether Fairlane runs although this machine bridges or routes between `inside` and `outside`, past the links:
    /// false by default. A warning says so each time.
    pub allow_bypass: Option<At<bool>>,
    /// How frames are read and written: "packet" (AF_PACKET rings, on any interface; the
    /// default) or "xdp" (AF_XDP).
    #[cfg_attr(test, schemars(extend("enum" = ["packet", "xdp"])))]
    pub backend: Option<Text>,
    /// The speed of the interfaces, as in "1gbit": a full transmit queue leaves at this rate. By default the speed that
    /// the driver of an interface reports, and the link's rate if it reports none.
    #[cfg_attr(test, schemars(extend("pattern" = schema::RATE)))]
    pub speed: Option<Text>,
    /// How long a round of the forwarding thread may take, "1ms" by default: the delays from interface to interface
    /// allow for no more, and each longer one is counted.
    #[cfg_attr(test, schemars(extend("pattern" = schema::TIME)))]
    pub longest_round: Option<Text>,
}

/// Where processes attach.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[cfg_attr(test, schemars(rename = "attach"))]
pub(crate) struct Attach {
    /// Path of the Unix socket to which they connect.
    pub socket: Text,
    /// Limit on attached processes, 1 to 65536, including those that are connecting: 256 by default.
    pub processes: Option<At<Whole>>,
    /// Limit on the processes of one user, so that no user locks out the others: a quarter of `processes` by default.
    pub processes_per_user: Option<At<Whole>>,
    /// Limit on the memory of all mailboxes together, as in "64mb"; each takes 256 times the longest frame (9018
    /// bytes if that is longer). By default as much as `processes` need.
    #[cfg_attr(test, schemars(extend("pattern" = schema::SIZE)))]
    pub memory: Option<Text>,
}

/// Access to the state of a running site, and to changes: for `fairlane ctl` and any HTTP client.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[cfg_attr(test, schemars(rename = "control"))]
pub(crate) struct Control {
    /// Path of a Unix socket. Permission to open it is permission to change the site.
    pub socket: Option<Text>,
    /// Mode of the socket file, which decides which users may open it: "0600" by default.
    #[cfg_attr(test, schemars(extend("pattern" = "^0?[0-7]{3}$")))]
    pub socket_mode: Option<Text>,
    /// Address and port to serve HTTP at, as in "127.0.0.1:7172": of this machine's loopback
    /// interface, since nothing is encrypted.
    pub http: Option<Text>,
    /// Path of a file with the token that a change over HTTP needs. Without one, nothing can be
    /// changed over HTTP.
    pub token: Option<Text>,
    /// Path of a file with the token that reading the state over HTTP needs. Without one, every local user may read
    /// it.
    pub read_token: Option<Text>,
}

/// Threads that receive and classify frames, and threads that transmit; the forwarding thread schedules.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[cfg_attr(test, schemars(rename = "workers"))]
pub(crate) struct Workers {
    /// Receive workers at each interface, from 1 to 16, or "auto", the default: the lesser of its queues and the
    /// cores of this machine but one, at least 1. With the backend "xdp" at most its receive queues.
    #[cfg_attr(test, schemars(extend("minimum" = 1, "maximum" = 16, "pattern" = "^auto$")))]
    pub receive: Option<At<Scalar>>,
    /// Transmit workers at each interface, from 0 to 16, or "auto": the lesser of its queues and the cores that the
    /// other threads leave. By default none: the forwarding thread transmits. With the backend "xdp" at most its
    /// transmit queues and its receive queues.
    #[cfg_attr(test, schemars(extend("minimum" = 0, "maximum" = 16, "pattern" = "^auto$")))]
    pub transmit: Option<At<Scalar>>,
    /// The cores to which they are pinned, as in [2, 3]: one per worker, receive workers first, then transmit
    /// workers, those at `inside` first. Without this key the system places them. Without `receive` there are as many
    /// workers as cores here.
    pub cores: Option<At<Vec<Whole>>>,
    /// 1: one forwarding thread schedules both links. 2: each link has its own, which requires `inside`. "auto", the
    /// default: 2 if this machine has a core for each of them and for every worker, else 1.
    #[cfg_attr(test, schemars(extend("minimum" = 1, "maximum" = 2, "pattern" = "^auto$")))]
    pub arbiters: Option<At<Scalar>>,
}

/// One shaped direction: all packets that leave by one interface.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[cfg_attr(test, schemars(rename = "link"))]
pub(crate) struct Link {
    /// Its name, unlike that of any other link.
    pub name: Text,
    /// The interface by which its packets leave: "outside" (the default), "inside" or "tap".
    #[cfg_attr(test, schemars(extend("enum" = ["outside", "inside", "tap"])))]
    pub to: Option<Text>,
    /// Its rate, as in "40mbit": bits of packets and their overhead.
    #[cfg_attr(test, schemars(extend("pattern" = schema::RATE)))]
    pub rate: Text,
    /// Bytes that each packet takes on the wire in addition to its frame, or "ethernet" for 24 (preamble, checksum
    /// and gap). 0 by default.
    pub overhead: Option<At<Scalar>>,
    /// The longest frame, without overhead; a longer one is dropped and counted. At least "60b". By default the
    /// interface's MTU with an Ethernet header and two VLAN tags; 1522 bytes if the interface is absent.
    #[cfg_attr(test, schemars(extend("pattern" = schema::SIZE)))]
    pub longest: Option<Text>,
    /// The scheduling algorithm of the classes without a parent: "fifo", "drr", "wfq", "wf2q", "wf2q+", "scfq", "qfq"
    /// (the default), "qfq+", "wf2q++", "s-kps", "s-kps+", "gfq", "gfq+", "drr+", "priority" or "sfq"; or "cbq" for
    /// class-based queueing in the whole link.
    #[cfg_attr(test, schemars(extend("enum" = schema::of_link())))]
    pub algorithm: Option<Text>,
    /// The quantum of algorithm "drr": bytes that the class of the lowest weight may send in a turn, "64b" or more;
    /// those of the others are in proportion to their weights. By default the least with which the longest packet of
    /// each class is sent in one turn.
    #[cfg_attr(test, schemars(extend("pattern" = schema::SIZE)))]
    pub quantum: Option<Text>,
    /// Limit on the backlog of the whole link. By default, 10000 packets and "16mb" in addition to the buffer
    /// reservations of the classes (`room`), rounded up to a power of two.
    pub limit: Option<At<Limit>>,
    /// The class of link-layer control: ARP, neighbour discovery, STP, LACP, LLDP, 802.1X, PPPoE
    /// discovery and the control protocols of PPP. By default the class "link-control", which is made
    /// where frames come from an interface and no class has that name. "none": no class of its own.
    pub link_control: Option<Text>,
    /// The classes. Without any, all packets are in one.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<Arc<At<Class>>>"))]
    pub class: List<Arc<At<Class>>>,
    /// The classes of packets. The first filter that matches counts, by priority, then by place in the file.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<Arc<At<Filter>>>"))]
    pub filter: List<Arc<At<Filter>>>,
}

/// A limit on a backlog, or a buffer reservation, in packets and bytes; both apply.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[cfg_attr(test, schemars(rename = "limit"))]
pub(crate) struct Limit {
    /// Packets, at least 1.
    pub packets: Option<At<Whole>>,
    /// Bytes, overhead included, as in "150kb" (1kb is 1024 bytes): at least the longest packet.
    #[cfg_attr(test, schemars(extend("pattern" = schema::SIZE)))]
    pub bytes: Option<Text>,
}

/// A class of packets: a queue, a queue for each flow (`per`), or a parent of other classes.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[cfg_attr(test, schemars(rename = "class"))]
pub(crate) struct Class {
    /// Its name, unlike that of any other class of the link.
    pub name: Text,
    /// Its parent class. Without one, its parent is the link. Classes nest at most 64 deep.
    pub parent: Option<Text>,
    /// Its guaranteed rate, as in "2mbit".
    #[cfg_attr(test, schemars(extend("pattern" = schema::RATE)))]
    pub rate: Option<Text>,
    /// The rate that it never exceeds, as in "4mbit".
    #[cfg_attr(test, schemars(extend("pattern" = schema::RATE)))]
    pub ceil: Option<Text>,
    /// Its longest frame, without overhead: at least "60b", and no longer than the link's, which is the default. A
    /// longer frame counts as one that no filter matches, and goes to the default class; the default class itself drops
    /// it. The shorter, the shorter are the delays of the class. Only for a class without children.
    #[cfg_attr(test, schemars(extend("pattern" = schema::SIZE)))]
    pub longest: Option<Box<Text>>,
    /// The burst of its arrivals that its delay allows for: bytes, overhead included, that may arrive at once on top
    /// of its guaranteed rate; with `per`, of each flow. At least its longest packet, which is the default.
    #[cfg_attr(test, schemars(extend("pattern" = schema::SIZE)))]
    pub arrival_burst: Option<Box<Text>>,
    /// The burst of `ceil`: at least its longest packet. By default, 10 ms of `ceil` and two packets, or more if its
    /// guarantee needs it. In "cbq", the burst after an idle time: 16 packets by default.
    #[cfg_attr(test, schemars(extend("pattern" = schema::SIZE)))]
    pub burst: Option<Box<Text>>,
    /// Its weight, 1 to 1000000, in the rate that the guarantees of all siblings leave. Without a `rate` 1 by
    /// default, with one none.
    pub weight: Option<At<Whole>>,
    /// Its level where the parent's algorithm is "priority", 0 (the default) to 255, and in "cbq",
    /// 0 to 7: higher goes first.
    pub priority: Option<Box<At<Whole>>>,
    /// The scheduling algorithm of its child classes, or of its flows: "qfq" by default.
    #[cfg_attr(test, schemars(extend("enum" = schema::of_class())))]
    pub algorithm: Option<Box<Text>>,
    /// The quantum of algorithm "drr" among its child classes or flows, as a link's.
    #[cfg_attr(test, schemars(extend("pattern" = schema::SIZE)))]
    pub quantum: Option<Box<Text>>,
    /// Limit on its backlog (or on that of each of its flows): by default 1000 packets and the bytes of 1000 of the
    /// longest packets, or its buffer reservation if that is more. By default each flow may use the whole reservation
    /// of its class.
    pub limit: Option<Box<At<Limit>>>,
    /// Its buffer reservation, or that of all its flows together, however full the link is. By default, the space
    /// that its guarantee needs for bursts of 10 ms of its rate, at least two packets and at most 64 kB.
    pub room: Option<Box<At<Limit>>>,
    /// Queue management: "codel", "red", "tail-drop", or a table. "codel" by default, below fifo, sfq, wfq and wf2q and in
    /// cbq "tail-drop".
    pub queue: Option<Box<At<Queue>>>,
    /// Makes a queue for each flow of this class when its first packet arrives. The packets of a flow agree in:
    /// "source-ip", "destination-ip", "5-tuple", "source-subnet/N", "destination-subnet/N" (N bits of the address),
    /// "vlan", "dscp", or "owner" (the process that sent it).
    pub per: Option<Box<Text>>,
    /// Settings of each of these flows.
    pub flows: Option<Box<At<Flows>>>,
    /// Whether packets that no filter matches go here. If no class has this key, a class "default" is made for them.
    pub default: Option<At<bool>>,
    /// In "cbq": whether it may send beyond its rate while its parent is within its own.
    pub borrow: Option<At<bool>>,
    /// Of a grant, which no file has: bytes at once that its room is to be enough for.
    #[serde(skip)]
    pub granted_burst: Option<u64>,
    /// Whether it is of a grant.
    #[serde(skip)]
    pub granted: bool,
}

impl Class {
    /// A class that no file has, for a grant: of a name, with a rate or with a weight, and all else by default.
    pub(crate) fn made(name: &str, parent: Option<&str>, rate: Option<Rate>) -> Class {
        Class {
            name: At::made(name.to_owned()),
            parent: parent.map(|parent| At::made(parent.to_owned())),
            rate: rate.map(|rate| At::made(rate.to_string())),
            ceil: None,
            longest: None,
            arrival_burst: None,
            burst: None,
            weight: None,
            priority: None,
            algorithm: None,
            quantum: None,
            limit: None,
            room: None,
            queue: None,
            per: None,
            flows: None,
            default: None,
            borrow: None,
            granted_burst: None,
            granted: true,
        }
    }
}

/// Settings of each flow of a class with `per`.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[cfg_attr(test, schemars(rename = "flows"))]
pub(crate) struct Flows {
    /// Limit on their number, 1 to 4000000; 65536 by default. Beyond it, a new flow replaces the flow that has been
    /// idle for longest, and for at least a second; if there is none, its packets share a queue.
    pub most: Option<At<Whole>>,
    /// How long a flow without packets is remembered: "10s" by default.
    #[cfg_attr(test, schemars(extend("pattern" = schema::TIME)))]
    pub forget: Option<Text>,
    /// The ceiling of each flow, as in "10mbit".
    #[cfg_attr(test, schemars(extend("pattern" = schema::RATE)))]
    pub ceil: Option<Text>,
    /// The burst of that ceiling, as a class's `burst`.
    #[cfg_attr(test, schemars(extend("pattern" = schema::SIZE)))]
    pub burst: Option<Text>,
    /// The buffer reservation of a flow, for as many flows as the class's `room` holds: by default the space that a
    /// flow's guarantee needs, for up to 64 flows.
    pub room: Option<At<Limit>>,
}

/// Queue management: a word, or a table with its parameters.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(untagged, rename = "queue"))]
pub(crate) enum Queue {
    /// The kind, with the defaults of its parameters: "tail-drop", "red" or "codel".
    Kind(String),
    /// The kind with parameters.
    Table(Box<QueueTable>),
}

impl<'de> Deserialize<'de> for Queue {
    /// Written by hand because a derived untagged enum would lose the positions of the values inside.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Queue, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Queue;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a text such as \"codel\", or a table")
            }

            fn visit_str<E>(self, text: &str) -> Result<Queue, E> {
                Ok(Queue::Kind(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Queue, A::Error> {
                let table = QueueTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Queue::Table(Box::new(table)))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Queue management with its parameters.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[cfg_attr(test, schemars(rename = "queue-table"))]
pub(crate) struct QueueTable {
    /// "tail-drop", "red" or "codel".
    #[cfg_attr(test, schemars(extend("enum" = ["tail-drop", "red", "codel"])))]
    pub kind: Text,
    /// Red and CoDel: mark packets that are capable of ECN instead of dropping them; true by
    /// default.
    pub ecn: Option<At<bool>>,
    /// CoDel: the target of the time in the queue; "5ms" by default.
    #[cfg_attr(test, schemars(extend("pattern" = schema::TIME)))]
    pub target: Option<Text>,
    /// CoDel: the interval for which it may exceed the target, at least the target; "100ms" by default.
    #[cfg_attr(test, schemars(extend("pattern" = schema::TIME)))]
    pub interval: Option<Text>,
    /// Red: the average queue from which packets are dropped, as in "30kb" or a number of
    /// packets.
    pub min: Option<At<Scalar>>,
    /// Red: the average queue at which the probability is `max-p`, in the unit of `min` and
    /// more.
    pub max: Option<At<Scalar>>,
    /// Red: the probability at `max`, above 0 and up to 1; 0.1 by default.
    pub max_p: Option<At<f64>>,
    /// Red: the average moves by 2^-weight of the difference with each packet; 9 by default.
    pub weight: Option<At<Whole>>,
    /// Red: between `max` and twice as much the probability rises to 1, instead of at once;
    /// true by default.
    pub gentle: Option<At<bool>>,
}

/// A filter: packets that match all of its keys belong to its class.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[cfg_attr(test, schemars(rename = "filter"))]
pub(crate) struct Filter {
    /// The class: one without children.
    pub class: Text,
    /// Higher is compared first, 0 by default; filters of the same priority in the file's order.
    pub priority: Option<Box<At<Whole>>>,
    /// The sender's address, or a prefix as in "10.0.0.0/8" or "2001:db8::/32".
    pub source: Option<Text>,
    /// The receiver's address, or a prefix.
    pub destination: Option<Text>,
    /// A port of TCP, UDP, UDP-Lite, DCCP or SCTP as in 53, or a range as in "1000-2000".
    pub source_port: Option<At<Scalar>>,
    /// A port, or a range.
    pub destination_port: Option<At<Scalar>>,
    /// The protocol above IP: a number, or "tcp", "udp", "icmp", "icmpv6", "sctp", "dccp",
    /// "udp-lite", "gre", "esp" and others of the names that are common.
    pub protocol: Option<At<Scalar>>,
    /// The code point of differentiated services: a number from 0 to 63, or a name as in "ef",
    /// "af41", "cs1".
    pub dscp: Option<Box<At<Scalar>>>,
    /// The identifier of the outermost VLAN tag, 1 to 4095.
    pub vlan: Option<Box<At<Whole>>>,
    /// Whether the packet is a fragment of a longer one.
    pub fragment: Option<Box<At<bool>>>,
    /// Where it arrived: "inside", "outside", "tap" or "attached".
    #[cfg_attr(test, schemars(extend("enum" = ["inside", "outside", "tap", "attached"])))]
    pub ingress: Option<Box<Text>>,
    /// The user whose process sent it: a number, or a name of this machine. Attached processes
    /// only.
    pub user: Option<Box<At<Scalar>>>,
    /// The group of the process that sent it, likewise.
    pub group: Option<Box<At<Scalar>>>,
    /// The process that sent it, by its number.
    pub pid: Option<Box<At<Whole>>>,
    /// "ipv4" or "ipv6".
    #[cfg_attr(test, schemars(extend("enum" = ["ipv4", "ipv6"])))]
    pub family: Option<Box<Text>>,
}
