"""The same seed gives the same bytes, on every machine and in every release."""

import hashlib

from fairlane_lab.draws import SplitMix64
from fairlane_lab.experiments import qfq_ns2, qfq_wfi, qfqplus_fig8


def test_the_generator_is_splitmix64():
    random = SplitMix64(1234567)
    assert [random.next() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
    assert all(3 <= random.octaves(3, 1000) <= 1000 for _ in range(1000))
    assert sorted(random.shuffled(list(range(20)))) == list(range(20))


def test_a_simulation_is_the_same_to_the_byte():
    runs = [qfq_wfi.simulated(seed, 16, 300).departures for seed in (7, 7, 8)]
    assert runs[0].tobytes() == runs[1].tobytes() != runs[2].tobytes()
    assert hashlib.sha256(runs[0].tobytes()).hexdigest() == GOLDEN


def test_a_closed_loop_is_the_same():
    weights = [5] + [1] * 40
    found = [qfqplus_fig8.worst(name, weights, True, 3000, 8, 1) for name in ("drr", "qfq+", "qfq")]
    assert found == WORST


def test_a_network_is_the_same():
    sources = qfq_ns2.simulated(qfq_ns2.topology("qfq", warm_up=0.5), 1.0, 3)
    counts = [sources["best effort, 3"][key] for key in ("sent_packets", "received_packets", "on_their_way")]
    delays = [sources["f0"]["delay_us"][key] for key in ("mean", "deviation", "max")]
    assert (counts, delays) == NETWORK


GOLDEN = "e163c51dce6411605cf691c81584fc83dfad63d2011f6da159ba86bb18013a37"
WORST = [160, 0, 15]
NETWORK = ([1403, 295, 535], [36472.0, 9474.935355, 53312.0])
