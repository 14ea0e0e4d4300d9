//! Guarantees of the library at its limits.

use std::fmt::Debug;

use fairlane::io::{ByteLen, MemoryBackend, PacketBackend, TunBackend, UdpBackend};
use fairlane::mailbox::{Consumer, Producer};
use fairlane::runtime::bridge::{Bridge, Lane};
use fairlane::runtime::{
    Arbiter, AsyncClient, Classified, Client, Dispatcher, Dispatchers, DispatchingClient, FromPort,
    Refused, Registrar, Shaper, Straight,
};
use fairlane::sched::Qfq;
use fairlane::tree::cbq::Cbq;
use fairlane::tree::{Discarded, Tree};
use fairlane::{
    AnyScheduler, Dequeue, Discipline, Packet, PacketScheduler, Rejected, Stamped, Waited,
};

/// A packet with a length and nothing else.
struct Opaque;

impl ByteLen for Opaque {
    fn byte_len(&self) -> usize {
        1
    }
}

type Flows = PacketScheduler<Qfq, Opaque>;
type Device = MemoryBackend<Opaque>;

fn prints<T: Debug>() {}

#[test]
fn everything_prints_whatever_the_packets_are() {
    prints::<Packet<Opaque>>();
    prints::<Stamped<Opaque>>();
    prints::<Waited<Opaque>>();
    prints::<Dequeue<Opaque>>();
    prints::<Rejected<Opaque>>();
    prints::<Discarded<Opaque>>();
    prints::<Flows>();
    prints::<AnyScheduler<Opaque>>();
    prints::<Tree<Opaque>>();
    prints::<Cbq<Opaque>>();
    prints::<Discipline<Opaque>>();
    prints::<Producer<Opaque>>();
    prints::<Consumer<Opaque>>();
    prints::<Client<Opaque>>();
    prints::<AsyncClient<Opaque>>();
    prints::<DispatchingClient<Opaque>>();
    prints::<Refused<Opaque>>();
    prints::<Registrar<Opaque>>();
    prints::<Dispatchers<Opaque>>();
    prints::<Dispatcher<Device>>();
    prints::<FromPort<Opaque>>();
    prints::<Classified<Opaque, Opaque, Opaque>>();
    prints::<Straight<Device>>();
    prints::<Shaper<Flows, Straight<Device>>>();
    prints::<Arbiter<Flows, Straight<Device>>>();
    prints::<Lane<Flows, Device>>();
    prints::<Bridge<Flows, Device, Opaque>>();
    prints::<Device>();
    prints::<UdpBackend<Opaque>>();
    prints::<TunBackend<Opaque>>();
    prints::<PacketBackend<Opaque>>();
}

#[test]
fn what_is_printed_tells_how_much_there_is() {
    let flows = Flows::new(Qfq::new(), Default::default());
    let printed = format!("{flows:?}");
    assert!(
        printed.contains("qfq") && printed.contains("flows: 0"),
        "{printed}"
    );
}

#[test]
fn the_prelude_has_twelve_names_at_most() {
    let source = include_str!("../src/lib.rs");
    let (_, prelude) = source.split_once("pub mod prelude {").unwrap();
    let (prelude, _) = prelude.split_once("\n}").unwrap();
    let words = prelude.split(|c: char| !c.is_alphanumeric() && c != '_');
    let path = [
        "",
        "pub",
        "use",
        "fairlane_core",
        "fairlane_runtime",
        "sched",
        "cfg",
        "feature",
        "runtime",
    ];
    let names: Vec<_> = words.filter(|word| !path.contains(word)).collect();
    assert!(
        names.contains(&"PacketScheduler") && names.contains(&"spawn"),
        "{names:?}"
    );
    assert!(names.len() <= 12, "{names:?}");
}
