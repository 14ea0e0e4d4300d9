"""What is wrong with an argument is said by type, name and index."""

import pickle

import fairlane
import numpy as np
import pytest

FLOWS = ([1, 2], [1500, 1500])


def replay(times=(0, 1, 2), flow=(0, 1, 0), len_=(100, 100, 100), flows=FLOWS, **more):
    given = {"algorithm": "qfq", "rate": "1mbit"} | more
    return fairlane.replay(given["algorithm"], given["rate"], flows, (times, flow, len_))


@pytest.mark.parametrize(
    ("wrong", "kind", "argument", "index"),
    [
        ({"times": [0.0, 1.0, 2.0]}, fairlane.DtypeError, "time_ns", None),
        ({"times": np.zeros((3, 1), int)}, fairlane.DtypeError, "time_ns", None),
        ({"times": [0, 2, 1]}, fairlane.UnsortedError, "time_ns", 2),
        ({"times": [-1, 2, 3]}, fairlane.ArgumentError, "time_ns", 0),
        ({"times": [[0], [1, 2], [3]]}, fairlane.DtypeError, "time_ns", None),
        ({"times": 5}, fairlane.DtypeError, "time_ns", None),
        ({"times": [0, 1, 2**64]}, fairlane.DtypeError, "time_ns", None),
        ({"times": np.ma.array([0, 1, 2], mask=[0, 1, 0])}, fairlane.DtypeError, "time_ns", 1),
        ({"times": np.array([0, np.nan, 2])}, fairlane.DtypeError, "time_ns", None),
        ({"flow": [0, 1, 2]}, fairlane.UnknownFlow, "flow", 2),
        ({"flow": [0, -1, 1]}, fairlane.ArgumentError, "flow", 1),
        ({"flow": ["a", "b", "c"]}, fairlane.DtypeError, "flow", None),
        ({"len_": [100, 0, 100]}, fairlane.LengthError, "len", 1),
        ({"len_": [100, 100, 1501]}, fairlane.LengthError, "len", 2),
        ({"len_": [100, 100]}, fairlane.ArgumentError, "len", None),
        ({"flows": ([1, -2], [1500, 1500])}, fairlane.WeightError, "weight", 1),
        ({"flows": ([1, 1_000_001], [1500, 1500])}, fairlane.WeightError, "weight", 1),
        ({"flows": ([1, 1], [1500, 70_000])}, fairlane.LengthError, "max_len", 1),
        ({"flows": ([], [])}, fairlane.ArgumentError, "flows", None),
        ({"flows": 5}, fairlane.ArgumentError, "flows", None),
        ({"algorithm": "qfp"}, fairlane.UnknownAlgorithm, "algorithm", None),
        ({"algorithm": None}, fairlane.DtypeError, "algorithm", None),
        ({"algorithm": "\udc80"}, fairlane.DtypeError, "algorithm", None),
        ({"rate": "10"}, fairlane.RateError, "rate", None),
        ({"rate": 1.5}, fairlane.RateError, "rate", None),
        ({"rate": True}, fairlane.RateError, "rate", None),
    ],
)
def test_what_is_wrong_has_a_type_a_name_and_an_index(wrong, kind, argument, index):
    with pytest.raises(kind) as error:
        replay(**wrong)
    assert type(error.value) is kind
    assert (error.value.argument, error.value.index) == (argument, index)
    assert isinstance(error.value, fairlane.FairlaneError)
    again = pickle.loads(pickle.dumps(error.value))
    assert (str(again), again.argument, again.index) == (str(error.value), argument, index)


def test_an_unknown_algorithm_is_told_the_nearest_one():
    with pytest.raises(fairlane.UnknownAlgorithm, match="did you mean 'wf2q[+]?'"):
        fairlane.Tree("wf2p")


def test_calls_name_their_arguments():
    tree = fairlane.Tree("qfq")
    for call, argument in (
        (lambda: tree.leaf(weight=-1), "weight"),
        (lambda: tree.leaf(max_len=0), "max_len"),
        (lambda: tree.leaf(ceil="fast"), "ceil"),
        (lambda: tree.leaf(burst=1), "burst"),
        (lambda: tree.leaf(queue="blue"), "queue"),
        (lambda: tree.enqueue(0, 0, None), "length"),
        (lambda: fairlane.Scheduler("drr", aggregate=0), "aggregate"),
        (lambda: fairlane.Lengths.weighted([(100, 1), (0, 1)]), "choices"),
        (lambda: fairlane.Traffic.bursty(1, -1.0), "period"),
        (lambda: fairlane.Lengths.weighted([(100, 0)]), "choices"),
        (lambda: fairlane.Traffic.bursty(1, 0.0), "period"),
        (lambda: fairlane.Traffic.on_off("1mbit", 0.0, 1.0), "mean_on"),
        (lambda: fairlane.Traffic.on_off("1mbit", 1.0, 1.0, alpha=1.0), "alpha"),
        (lambda: fairlane.Traffic.on_off("1mbit", 1.0, 1.0, alpha=float("nan")), "alpha"),
        (lambda: fairlane.Flow(1, fairlane.Traffic.on_off("1kbit", 1e-9, 0.0), fairlane.Lengths.fixed(9)), "traffic"),
        (lambda: fairlane.sim("drr", "1mbit", [], 1.0), "flows"),
        (lambda: fairlane.sim("drr", "1mbit", [5], 1.0), "flows"),
        (lambda: fairlane.sim("drr", "1mbit", [], float("nan")), "flows"),
        (lambda: tree.leaf(parent=99), "parent"),
        (lambda: tree.leaf(level=1 << 20), "level"),
        (lambda: tree.flows(most=0), "most"),
        (lambda: tree.remove(0), "class_"),
        (lambda: fairlane.flows([1, -2]), "weight"),
        (lambda: fairlane.flows([1, 2], [1500, 0]), "max_len"),
        (lambda: fairlane.flows([1, 2], [1500]), "max_len"),
        (lambda: fairlane.bounds("qfq", "1mbit", FLOWS, overhead=-1), "overhead"),
        (lambda: fairlane.bounds("qfq", "1mbit", FLOWS, aggregate=1.5), "aggregate"),
        (lambda: fairlane.arrivals([(fairlane.Traffic.greedy(), fairlane.Lengths.fixed(9))], 1.0), "sources"),
        (lambda: fairlane.arrivals([], 1.0, seed=-1), "seed"),
        (lambda: fairlane.arrivals([], 1.0, seed=2**64), "seed"),
    ):
        with pytest.raises(fairlane.ArgumentError) as error:
            call()
        assert error.value.argument == argument


def test_what_is_of_another_kind_is_told_by_its_name_and_place():
    tree, lengths, traffic = fairlane.Tree("qfq"), fairlane.Lengths.fixed(9), fairlane.Traffic.cbr("1mbit")
    flow = fairlane.Flow(1, traffic, lengths)
    for call, argument, index in (
        (lambda: fairlane.Tree(None), "algorithm", None),
        (lambda: fairlane.Scheduler(7), "algorithm", None),
        (lambda: tree.inner(None), "algorithm", None),
        (lambda: tree.flows(["drr"]), "algorithm", None),
        (lambda: fairlane.bounds(b"qfq", "1mbit", FLOWS), "algorithm", None),
        (lambda: fairlane.sim("qfq", "1mbit", [flow], "5"), "seconds", None),
        (lambda: fairlane.sim("qfq", "1mbit", 5, 1.0), "flows", None),
        (lambda: fairlane.sim("qfq", "1mbit", [flow, 5], 1.0), "flows", 1),
        (lambda: fairlane.packets(traffic, lengths, None), "seconds", None),
        (lambda: fairlane.packets(traffic, lengths, 10**400), "seconds", None),
        (lambda: fairlane.arrivals(5, 1.0), "sources", None),
        (lambda: fairlane.arrivals([(traffic, lengths), traffic], 1.0), "sources", 1),
        (lambda: fairlane.arrivals([(traffic, 9)], 1.0), "sources", 0),
        (lambda: fairlane.arrivals([], 1.0, seed="1"), "seed", None),
        (lambda: fairlane.scenario("evening.toml", seconds="all"), "seconds", None),
        (lambda: fairlane.Traffic.bursty(1, "1s"), "period", None),
        (lambda: fairlane.Traffic.on_off("1mbit", [1], 1.0), "mean_on", None),
        (lambda: fairlane.Traffic.on_off("1mbit", 1.0, 1.0, alpha="1.5"), "alpha", None),
        (lambda: fairlane.Flow(1, traffic, lengths, start="now"), "start", None),
        (lambda: fairlane.Flow(1, traffic, lengths, stop="then"), "stop", None),
    ):
        with pytest.raises(fairlane.DtypeError, match=f"^{argument}") as error:
            call()
        assert (error.value.argument, error.value.index) == (argument, index)


@pytest.mark.parametrize("wrong", [-1, 2**64, 10**5000, 1.5, "5"], ids=["-1", "2**64", "10**5000", "1.5", "text"])
def test_what_is_no_number_of_its_range_is_told_by_its_name(wrong):
    tree, scheduler = fairlane.Tree("qfq"), fairlane.Scheduler("qfq")
    flow = fairlane.Flow(1, fairlane.Traffic.cbr("1mbit"), fairlane.Lengths.fixed(100))
    for call, argument in (
        (lambda: tree.leaf(weight=wrong), "weight"),
        (lambda: tree.leaf(max_len=wrong), "max_len"),
        (lambda: tree.enqueue(wrong, 100, None), "class_"),
        (lambda: tree.enqueue(0, wrong, None), "length"),
        (lambda: tree.enqueue(0, 100, None, wrong), "now"),
        (lambda: tree.enqueue(0, 100, None, flow=wrong), "flow"),
        (lambda: tree.dequeue(wrong), "now"),
        (lambda: tree.stats(wrong), "class_"),
        (lambda: scheduler.enqueue(wrong, 100, None), "flow"),
        (lambda: scheduler.remove_flow(wrong), "flow"),
        (lambda: scheduler.change_flow(0, wrong, 100), "weight"),
        (lambda: fairlane.Scheduler("qfq", aggregate=wrong), "aggregate"),
        (lambda: fairlane.Lengths.fixed(wrong), "length"),
        (lambda: fairlane.Traffic.greedy(wrong), "packets"),
        (lambda: fairlane.sim("qfq", "1mbit", [flow], 1.0, seed=wrong), "seed"),
    ):
        with pytest.raises(fairlane.ArgumentError, match=f"^{argument} is ") as error:
            call()
        assert error.value.argument == argument
        if not isinstance(wrong, int):
            assert isinstance(error.value, TypeError)


def test_numbers_of_numpy_are_numbers_and_the_largest_are_taken():
    bounds = fairlane.bounds("qfq", np.int64(10**7), FLOWS, queue_bytes=2**64 - 1)
    assert (bounds["t_wfi_ns"] > 1e18).all()
    flow = fairlane.Flow(np.uint8(1), fairlane.Traffic.cbr("1mbit"), fairlane.Lengths.fixed(np.int32(100)))
    run = fairlane.sim("qfq", "1mbit", [flow], 0.1, queue_bytes=2**64 - 1, seed=2**64 - 1)
    assert run.flows["packets"][0] > 0 and run.flows["t_wfi_bound_ns"][0] > 1e18
    sources = [(fairlane.Traffic.poisson("1mbit"), fairlane.Lengths.fixed(100))] * 2
    drawn = (fairlane.arrivals(sources, np.float64(0.1), seed=seed) for seed in (7, np.uint64(7)))
    assert len({arrivals.tobytes() for arrivals in drawn}) == 1


def test_columns_are_taken_as_they_are():
    from fairlane.records import column, columns

    for kind in (np.uint64, np.int64, np.uint32, np.int32):
        given = np.arange(6, dtype=kind)
        assert column("time_ns", given) is given
        assert np.shares_memory(column("time_ns", given[::2]), given)
    table = np.zeros(4, dtype=fairlane.ARRIVALS)
    for one in columns("arrivals", table, ("time_ns", "flow", "len")):
        assert np.shares_memory(one, table)
    assert column("time_ns", np.arange(3, dtype=">i8")).tolist() == [0, 1, 2]
