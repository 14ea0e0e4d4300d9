"""Compares a link of ns.py with one of Fairlane, over the same flows: departures, and processor time.

    pip install ns-py && python examples/against_nspy.py [--packets 100000] [--least 100]

While all flows are backlogged, the definitions agree: ns.py's WFQ and our self-clocked fair
queueing serve by the finish tags of one virtual time, and both DRRs by the same quanta. Strict priority
always agrees. Otherwise ns.py's WFQ differs: it gives the first packet of a busy period a finish
tag without its length, which a packet of an extra flow compensates here; and its DRR counts a
packet as queued until it is sent.
"""

import argparse
import sys
import time

import fairlane
import numpy as np
import simpy
from fairlane.simpy import Server

RATE = 10**8

#: Odd ones, and lengths that are multiples of 16 except for the first of each flow: so no two finish tags
#: are equal, a tie that the two would break differently.
FAIR = list(range(1, 33, 2))
ROUND = list(range(1, 17))


class Packet:
    """Like ns.py's own, which has twenty more fields."""

    def __init__(self, flow_id, size):
        self.flow_id, self.size, self.prio = flow_id, size, {}


class Sink:
    """Records arrivals."""

    def __init__(self, env):
        self.env, self.left = env, []

    def put(self, packet):
        self.left.append((self.env.now, packet.flow_id, packet.size))


def backlogged(packets, weights, seed=1):
    """A packet of an extra flow, then bursts of all others, which then send a twentieth more
    than their shares."""
    draw = np.random.default_rng(seed)
    share = np.array(weights) / sum(weights)
    counts = np.maximum((packets - 1) * share, 101).astype(int)
    parts = []
    for flow, count in enumerate(counts):
        lens = 16 * draw.integers(4, 94, count)
        lens[0] = 64 + weights[flow] * flow % 16
        gaps = draw.uniform(0.5, 1.5, count) * 776 * 8e9 / (RATE * share[flow] * 1.05)
        gaps[:100] = 0
        parts.append((1000 + np.cumsum(gaps).astype(np.int64), np.full(count, flow), lens))
    parts.append((np.array([0]), np.array([len(weights)]), np.array([64])))
    made = np.empty(sum(len(times) for times, _, _ in parts), dtype=fairlane.ARRIVALS)
    for name, columns in zip(made.dtype.names, zip(*parts)):
        made[name] = np.concatenate(columns)
    return made[np.argsort(made["time_ns"], kind="stable")]


def simulate(make, arrivals):
    """Departures of a server of ns.py, or of its replacement, and the seconds of processor time."""
    env = simpy.Environment()
    server, sink = make(env), Sink(env)
    server.out = sink

    def source():
        for at, flow, length in arrivals.tolist():
            if at / 1e9 > env.now:
                yield env.timeout(at / 1e9 - env.now)
            server.put(Packet(flow, length))

    env.process(source())
    begin = time.thread_time()
    env.run()
    took = time.thread_time() - begin
    return np.array(sink.left), took


def replay(algorithm, weights, arrivals):
    """Departures, and the seconds of processor time: the least of five runs."""
    flows = fairlane.flows(weights)
    took = []
    for _ in range(5):
        begin = time.thread_time()
        left = fairlane.replay(algorithm, RATE, flows, arrivals).departures
        took.append(time.thread_time() - begin)
    return left, min(took)


def scenarios(packets):
    """Name, our algorithm, weights, arrivals, and ns.py's server."""
    from ns.scheduler.drr import DRRServer
    from ns.scheduler.sp import SPServer
    from ns.scheduler.wfq import WFQServer

    fair, turns = FAIR + [FAIR[0]], ROUND + [1]
    yield "WFQ", "scfq", fair, backlogged(packets, FAIR), lambda env: WFQServer(env, RATE, fair)
    yield "DRR", "drr", turns, backlogged(packets, ROUND), lambda env: DRRServer(env, RATE, turns)
    levels = list(range(1, len(ROUND) + 2))
    light = backlogged(packets, ROUND, seed=2)
    yield "SP", "priority", levels, light, lambda env: SPServer(env, RATE, levels)


def compare(packets):
    """One row per scenario: the number of equal departures, and the seconds of ns.py, of our server in
    SimPy, and of our replay."""
    for name, algorithm, weights, arrivals, make in scenarios(packets):
        theirs, theirs_took = simulate(make, arrivals)
        ours, ours_took = replay(algorithm, weights, arrivals)
        in_simpy, simpy_took = simulate(lambda env: Server(env, RATE, weights, algorithm), arrivals)
        same = (theirs[:, 1] == ours["flow"]) & (theirs[:, 2] == ours["len"])
        same &= np.abs(theirs[:, 0] * 1e9 - ours["end_ns"]) < 10
        assert (in_simpy[:, 1:] == theirs[:, 1:]).all() or not same.all()
        yield {
            "scenario": name,
            "packets": len(ours),
            "same": int(same.sum()),
            "ns_py_s": theirs_took,
            "in_simpy_s": simpy_took,
            "replay_s": ours_took,
            "times": theirs_took / ours_took,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--packets", type=int, default=100_000)
    parser.add_argument("--least", type=float, default=0.0, help="fail if a replay is not so many times as fast")
    options = parser.parse_args()
    fails = False
    for row in compare(options.packets):
        print(
            f"{row['scenario']}: {row['same']} of {row['packets']} departures the same; ns.py "
            f"{row['ns_py_s']:.2f} s, our server in SimPy {row['in_simpy_s']:.2f} s, replay "
            f"{row['replay_s']:.4f} s: {row['times']:.0f} times"
        )
        fails |= row["same"] < row["packets"] or row["times"] < options.least
    sys.exit(fails)


if __name__ == "__main__":
    main()
