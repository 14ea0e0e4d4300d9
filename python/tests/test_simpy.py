"""Links of SimPy: departures as a replay has them."""

import pickle

import fairlane
import numpy as np
import pytest
import simpy
from fairlane.simpy import Link, Server
from test_replay import random_arrivals

WEIGHTS = [4, 2, 1, 1]


class Packet:
    """As those of ns.py."""

    def __init__(self, flow_id, size):
        self.flow_id, self.size = flow_id, size


class Sink:
    def __init__(self):
        self.packets = []

    def put(self, packet):
        self.packets.append(packet)


def send(env, link, arrivals, unit):
    """Puts all arrivals in, each at its time."""

    def source():
        for time, flow, length in arrivals.tolist():
            at = time if unit == 10**9 else time / 1e9
            if at > env.now:
                yield env.timeout(at - env.now)
            link.put(Packet(flow, length))

    env.process(source())
    env.run()


def in_step(packets=600):
    """Arrivals at the very times at which packets end."""
    made = np.zeros(packets, dtype=fairlane.ARRIVALS)
    made["time_ns"] = np.arange(packets) // 3 * 800_000
    made["flow"] = np.arange(packets) * 7 % len(WEIGHTS)
    made["len"] = 500 + np.arange(packets) % 2 * 500
    return made


@pytest.mark.parametrize("unit", [1, 10**9])
@pytest.mark.parametrize("arrivals", [random_arrivals(600, 4, load=0.9), in_step()], ids=["random", "step"])
# Not wf2q and wfq: a replay reports the progress of the link to them, and SimPy's links do not.
@pytest.mark.parametrize("algorithm", ["qfq", "qfq+", "drr", "wf2q+", "scfq", "fifo", "priority"])
def test_departures_are_those_of_a_replay(algorithm, arrivals, unit):
    env, sink = simpy.Environment(), Sink()
    server = Server(env, 10**7, WEIGHTS, algorithm, unit=unit, record=True)
    server.out = sink
    send(env, server, arrivals, unit)
    expected = fairlane.replay(algorithm, 10**7, fairlane.flows(WEIGHTS), arrivals).departures
    assert (server.departures() == expected).all()
    assert [packet.flow_id for packet in sink.packets] == expected["flow"].tolist()
    assert server.packets_received == len(arrivals) and server.packets_dropped == 0


def test_an_odd_rate_is_exact_too():
    arrivals = random_arrivals(600, 4, rate_bps=9_999_991)
    env = simpy.Environment()
    server = Server(env, 9_999_991, WEIGHTS, record=True, unit=10**9)
    send(env, server, arrivals, 10**9)
    expected = fairlane.replay("qfq", 9_999_991, fairlane.flows(WEIGHTS), arrivals).departures
    assert (server.departures() == expected).all()


def test_a_tree_with_a_ceiling_waits_for_its_time():
    env = simpy.Environment()
    tree = fairlane.Tree("qfq")
    slow, quick = tree.leaf(max_len=1000, ceil="1mbit", burst=1000), tree.leaf(max_len=1000)
    link = Link(env, tree, 8_000_000, unit=10**9, record=True)
    for _ in range(3):
        link.put(Packet(slow, 1000))
    link.put(Packet(quick, 1000))
    env.run()
    left = link.departures()
    ends = left["end_ns"][left["flow"] == slow].tolist()
    # 1000 bytes at 1 Mbit/s take 8 ms.
    assert np.diff(ends).tolist() == pytest.approx([8_000_000] * 2, abs=2_000_000)
    assert left["flow"].tolist()[:2] in ([slow, quick], [quick, slow])
    assert len(tree) == 0


def test_what_a_tree_throws_away_is_counted():
    env = simpy.Environment()
    tree = fairlane.Tree("qfq")
    leaf = tree.leaf(max_len=1000, queue="codel")
    link, discarded = Link(env, tree, 80_000), []
    link.discarded = discarded.append
    for number in range(100):
        link.put(Packet(leaf, 1000))
    env.run()
    # A packet takes 0.1 s: they stand for longer than CoDel suffers.
    assert link.packets_dropped == len(discarded) == tree.stats(leaf)["discarded_packets"] > 0


def test_links_in_a_row_pass_packets_on():
    env, sink = simpy.Environment(), Sink()
    first, second = (Server(env, 10**7, WEIGHTS, record=True) for _ in range(2))
    first.out, second.out = second, sink
    arrivals = random_arrivals(300, 4)
    send(env, first, arrivals, 1)
    assert len(sink.packets) == 300
    came = first.departures()
    came = came["end_ns"], came["flow"], came["len"]
    expected = fairlane.replay("qfq", 10**7, fairlane.flows(WEIGHTS), came).departures
    assert (second.departures() == expected).all()


def test_monitors_see_what_waits():
    env = simpy.Environment()
    server = Server(env, 8000, {"a": 1, "b": 2})
    for name in ("a", "b", "b"):
        server.put(Packet(name, 1000))
    env.run(until=0.5)
    assert server.packet_in_service() is not None
    assert server.size("a") + server.size("b") == 3
    assert server.byte_size("b") == 2000 and server.all_flows() == ["a", "b"]


def within_a_process(env, act):
    """The error of ``act`` in a process of SimPy, which raises a copy of it from ``env.run``."""

    def process():
        yield env.timeout(0)
        act()

    env.process(process())
    with pytest.raises(fairlane.FairlaneError) as raised:
        env.run()
    return raised.value


@pytest.mark.parametrize(
    ("flow", "size", "kind", "says"),
    [
        ("c", 100, fairlane.errors.UnknownFlow, "a packet of class 'c': the classes are 'a', 'b'"),
        ("a", 9000, fairlane.errors.LengthError, "a packet of 9000 bytes: packets have 1 to 1500 bytes (max_len)"),
        ("b", 0, fairlane.errors.LengthError, "a packet of 0 bytes: packets have 1 to 1500 bytes (max_len)"),
        ("b", 0.5, fairlane.errors.LengthError, "a packet of 0.5 bytes: packets have 1 to 1500 bytes (max_len)"),
        ("b", 1.5, fairlane.errors.LengthError, "a packet of 1.5 bytes: a length is a whole number"),
    ],
)
def test_a_packet_that_cannot_be_sent_raises_within_a_process(flow, size, kind, says):
    env = simpy.Environment()
    server = Server(env, 8000, {"a": 1, "b": 2})
    error = within_a_process(env, lambda: server.put(Packet(flow, size)))
    assert type(error) is kind and str(error) == says
    assert error.argument in ("flow_classes", "max_len", "length")
    assert server.packets_received == server.packets_dropped == 0


def test_a_link_raises_for_an_unknown_flow_and_a_long_packet_and_counts_a_full_queue():
    env = simpy.Environment()
    scheduler = fairlane.Scheduler("qfq")
    flow = scheduler.add_flow(1, 1000)
    link = Link(env, scheduler, 8000)
    for unknown, size, reason in ((flow + 1, 100, "unknown"), (flow, 1001, "too-long")):
        error = within_a_process(env, lambda: link.put(Packet(unknown, size)))
        assert error.reason == reason and str(error).startswith(f"a packet of {size} bytes for flow {unknown}: ")
    assert link.packets_received == link.packets_dropped == 0
    tree = fairlane.Tree("qfq")
    leaf = tree.leaf(max_len=1000, limit_packets=2)
    link = Link(simpy.Environment(), tree, 8000)
    assert [link.put(Packet(leaf, 1000)) for _ in range(3)] == [True, True, False]
    assert (link.packets_received, link.packets_dropped) == (3, 1)


@pytest.mark.parametrize(
    "error",
    [
        fairlane.errors.ArgumentError("a sentence", "rate", 3),
        fairlane.errors.UnknownFlow("a sentence", "flow"),
        fairlane.errors.Rejected("a sentence", "queue-full"),
        fairlane.errors.SiteError("a sentence", [("site.toml", 1, 2, "no key")]),
        fairlane.errors.AttachRefused("a sentence"),
        fairlane.errors.MailboxFull("a sentence"),
    ],
)
def test_a_copy_of_an_error_says_the_same(error):
    for copy in (type(error)(*error.args), pickle.loads(pickle.dumps(error))):
        assert str(copy) == "a sentence"
        assert vars(copy) == vars(error)


@pytest.mark.parametrize(
    ("weights", "taken"),
    [
        ([3, 1_000_000], [3, 1_000_000]),
        ([0.5, 1.5], [1, 3]),
        ([0.1, 0.2, 0.7], [1, 2, 7]),
        ([2_000_000, 6_000_000], [1, 3]),
        ([2.0, 4], [2, 4]),
        ([1 / 3, 1000.0], [333, 1_000_000]),
        ([10**9, 10**9 - 1, 1], [1_000_000, 1_000_000, 1]),
    ],
)
def test_weights_are_scaled_and_keep_their_shares(weights, taken):
    scaled = fairlane.simpy._weights(dict(enumerate(weights)))
    assert list(scaled.values()) == taken
    for given, weight in zip(taken, weights):
        assert abs(given / sum(taken) - weight / sum(weights)) <= 1e-5
    Server(simpy.Environment(), 8000, weights)


@pytest.mark.parametrize("weight", [0, -1, 0.0, float("nan"), float("inf"), "many", None])
def test_a_weight_that_is_none_is_named(weight):
    with pytest.raises(fairlane.WeightError, match=r"weights\['b'\] is .*: it is a positive number"):
        Server(simpy.Environment(), 8000, {"a": 1, "b": weight})


def test_weights_whose_shares_cannot_be_kept_are_refused():
    with pytest.raises(fairlane.WeightError, match="10\\^-5"):
        Server(simpy.Environment(), 8000, [10**7] + [1.5] * 10_000)


class Unbuffered:
    """An element of ns.py without a buffer: it takes each packet out of the one before a second later."""

    def __init__(self, env):
        self.env, self.taken = env, []

    def put(self, packet, upstream_update=None, upstream_store=None):
        def take():
            yield self.env.timeout(10**9)
            stored = yield upstream_store.get()
            upstream_update(packet)
            self.taken.append((self.env.now, stored is packet))

        self.env.process(take())


def test_packets_stay_in_the_buffer_before_one_that_has_none():
    env = simpy.Environment()
    source, freed = simpy.Store(env), []
    first = Server(env, 8000, [1], zero_buffer=True, zero_downstream_buffer=True, unit=10**9)
    first.out = Unbuffered(env)
    packets = [Packet(0, 1000) for _ in range(2)]
    for packet in packets:
        source.put(packet)
        first.put(packet, freed.append, source)
    env.run(until=15 * 10**8)
    # The first has left the link, and is still in the buffer.
    assert len(source.items) == 2 and freed == []
    env.run()
    assert first.out.taken == [(2 * 10**9, True), (3 * 10**9, True)]
    assert freed == packets and source.items == []
