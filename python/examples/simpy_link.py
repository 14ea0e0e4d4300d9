"""A link in SimPy: three applications share 10 Mbit/s, and each reports the delays of its packets.

    pip install simpy && python examples/simpy_link.py
"""

import random

import fairlane
import simpy
from fairlane.simpy import Link

RATE = 10**7


class Packet:
    """A packet of the model; the link reads its class and its length."""

    def __init__(self, flow_id, size, sent):
        self.flow_id, self.size, self.sent = flow_id, size, sent


class Receiver:
    """Counts arrivals and their delays."""

    def __init__(self, env):
        self.env, self.delays = env, {}

    def put(self, packet):
        self.delays.setdefault(packet.flow_id, []).append(self.env.now - packet.sent)


def application(env, link, flow, size, mean_gap, draw):
    while True:
        yield env.timeout(draw.expovariate(1 / mean_gap))
        link.put(Packet(flow, size, env.now))


def main(seconds=2.0):
    env = simpy.Environment()
    tree = fairlane.Tree("qfq+")
    names = {
        tree.leaf(weight=4, max_len=200): ("voice", 200, 0.002),
        tree.leaf(weight=2, max_len=1500): ("video", 1200, 0.003),
        tree.leaf(weight=1, max_len=1500): ("backup", 1500, 0.001),
    }
    receiver = Receiver(env)
    link = Link(env, tree, RATE, out=receiver, record=True)
    for number, (flow, (_, size, gap)) in enumerate(names.items()):
        env.process(application(env, link, flow, size, gap, random.Random(number)))
    env.run(until=seconds)
    for flow, (name, _, _) in names.items():
        delays = receiver.delays[flow]
        print(f"{name}: {len(delays)} packets, at most {max(delays) * 1e3:.2f} ms")
    return link.departures()


if __name__ == "__main__":
    main()
