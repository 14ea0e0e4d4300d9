"""A Fairlane scheduler in ns.py instead of its WFQServer: one line differs from ns.py's example.

    pip install ns-py && python examples/nspy_server.py
"""

import simpy
from fairlane.simpy import Server
from ns.packet.dist_generator import DistPacketGenerator
from ns.packet.sink import PacketSink


def main():
    env = simpy.Environment()
    sink = PacketSink(env)
    server = Server(env, 4600, [1, 2], "qfq", record=True)  # WFQServer(env, 4600, [1, 2])
    server.out = sink
    for flow, delay in ((0, 0.0), (1, 10.0)):
        generator = DistPacketGenerator(
            env,
            f"flow_{flow}",
            lambda: 1.75,
            lambda: 1000.0,
            initial_delay=delay,
            finish=50,
            flow_id=flow,
        )
        generator.out = server
    env.run(until=1000)
    for flow in (0, 1):
        print(f"flow {flow}: {len(sink.arrivals[flow])} packets, the last at {sink.arrivals[flow][-1]:.2f} s")
    return server.departures()


if __name__ == "__main__":
    main()
