"""Links of SimPy: departures as a replay has them."""

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
@pytest.mark.parametrize("algorithm", ["qfq", "qfq+", "drr", "wf2q+", "wf2q", "scfq", "fifo", "priority"])
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
