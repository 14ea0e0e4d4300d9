"""Replays of arrays."""

import csv
import os
import pathlib
import signal
import sys
import threading
import time

import fairlane
import numpy as np
import pytest


def table(path, fields):
    with open(path) as file:
        rows = list(csv.DictReader(file))
    return tuple(np.array([int(row[name]) for row in rows]) for name in fields)


def random_arrivals(packets, flows, seed=1, rate_bps=10**7, load=1.2):
    draw = np.random.default_rng(seed)
    made = np.empty(packets, dtype=fairlane.ARRIVALS)
    made["len"] = draw.integers(64, 1501, packets)
    made["flow"] = draw.integers(0, flows, packets)
    made["time_ns"] = np.cumsum(draw.exponential(782 * 8e9 / rate_bps / load, packets)).astype(np.int64)
    return made


@pytest.mark.skipif("FAIRLANE_TEST_REPLAYS" not in os.environ, reason="written by tests/python.rs")
def test_departures_are_those_that_the_program_writes():
    folder = pathlib.Path(os.environ["FAIRLANE_TEST_REPLAYS"])
    example = pathlib.Path(__file__).parent / "../../examples/replay"
    flows = table(example / "flows.csv", ("weight", "max_len"))
    arrivals = table(example / "arrivals.csv", ("time_ns", "flow", "len"))
    names = (folder / "algorithms.txt").read_text().split()
    assert set(names) == set(fairlane.algorithms())
    for number, name in enumerate(names):
        left = fairlane.replay(name, "8mbit", flows, arrivals, overhead=24).departures
        written = table(folder / f"{number}.csv", fairlane.DEPARTURES.names)
        for field, column in zip(fairlane.DEPARTURES.names, written, strict=True):
            assert (left[field] == column).all(), (name, field)


def test_arrivals_may_be_records_columns_or_frames():
    arrivals = random_arrivals(200, 3)
    flows = fairlane.flows([1, 2, 3])
    left = fairlane.replay("qfq", 10**7, flows, arrivals).departures
    fields = {name: arrivals[name] for name in arrivals.dtype.names}
    for given in (tuple(fields.values()), fields, np.asfortranarray(arrivals)):
        assert (fairlane.replay("qfq", 10**7, flows, given).departures == left).all()
    assert len(left) == 200 and left.dtype == fairlane.DEPARTURES
    assert not left.flags.owndata, "what Rust wrote is looked at"


def test_a_report_has_both_indexes_below_their_bounds():
    flows = fairlane.flows([4, 2, 1])
    report = fairlane.replay("wf2q+", "10mbit", flows, random_arrivals(2000, 3), report=True).flows
    assert report["packets"].sum() == 2000
    assert (report["t_wfi_ns"] <= report["t_wfi_bound_ns"]).all()
    assert (report["b_wfi_bytes"] <= report["b_wfi_bound_bytes"]).all()
    assert (report["delay_p50_ns"] <= report["delay_max_ns"]).all()
    fifo = fairlane.replay("fifo", "10mbit", flows, random_arrivals(20, 3), report=True).flows
    assert np.isnan(fifo["t_wfi_bound_ns"]).all()


def test_the_fluid_server_serves_all_at_once():
    # Two packets of 1000 bytes at once, weights 3 and 1, at 8 Mbit/s: a millisecond each alone.
    flows, arrivals = ([3, 1], [1000, 1000]), ([0, 0], [0, 1], [1000, 1000])
    finished = fairlane.fluid("8mbit", flows, arrivals)
    assert finished.tolist() == [4 * 10**9 // 3, 2 * 10**9]
    # A simulation of the same packets finds the same lag.
    flows, arrivals = fairlane.flows([4, 2, 1]), random_arrivals(2000, 3)
    finished = fairlane.fluid("10mbit", flows, arrivals)
    assert (finished >= arrivals["time_ns"] * 1000).all()
    left = fairlane.replay("wf2q", "10mbit", flows, arrivals).departures
    sources = []
    for number, weight in enumerate(flows["weight"].tolist()):
        own = arrivals[arrivals["flow"] == number]
        trace = fairlane.trace(own["time_ns"], own["len"])
        sources.append(fairlane.Flow(weight, trace, fairlane.Lengths.fixed(1500)))
    run = fairlane.sim("wf2q", "10mbit", sources, 1000.0)
    assert (run.departures == left).all()
    for number in range(3):
        fluid = finished[arrivals["flow"] == number] / 1000
        late = left["end_ns"][left["flow"] == number] - fluid
        assert abs(run.flows["lag_ns"][number] - max(late.max(), 0)) <= 1


def test_others_run_meanwhile():
    arrivals, flows = random_arrivals(20_000, 8), fairlane.flows([1] * 8)
    counted, going, ended = [0], threading.Event(), threading.Event()

    def count():
        while not ended.is_set():
            counted[0] += 1
            # It releases the interpreter each time, and gets it again when another thread does.
            time.sleep(0.0005)
            going.set()

    interval = sys.getswitchinterval()
    worker = threading.Thread(target=count)
    try:
        worker.start()
        going.wait()
        # From here on no thread gets the interpreter unless it is released.
        sys.setswitchinterval(100)
        before = counted[0]
        # On a busy machine the other thread may get no core during the first ones.
        for _ in range(500):
            fairlane.replay("qfq", 10**7, flows, arrivals)
            if counted[0] > before:
                break
        after = counted[0]
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        worker.join()
    assert after > before


def interrupted(run):
    """Seconds of this thread's processor time from Ctrl-C to its end, while it runs this for ever."""
    clock = time.pthread_getcpuclockid(threading.get_ident())
    sent = []

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        # Behind it: if this thread has to wait here, the other's time is not counted.
        sent.append(time.clock_gettime(clock))

    timer = threading.Timer(0.05, interrupt)
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        while True:
            run()
    took = time.thread_time()
    timer.join()
    return took - sent[0]


@pytest.mark.parametrize("what", ["replay", "sim", "fluid", "packets", "scenario"])
def test_ctrl_c_ends_a_long_run(what):
    flows = fairlane.flows([1] * 8)
    arrivals = random_arrivals(2_000_000, 8)
    sources = [
        fairlane.Flow(1, fairlane.Traffic.greedy(), fairlane.Lengths.fixed(100)) for _ in range(8)
    ]
    poisson = fairlane.Traffic.poisson("1gbit")
    evening = pathlib.Path(__file__).parent / "../../examples/sim/home-evening.toml"
    run = {
        "replay": lambda: fairlane.replay("qfq", 10**7, flows, arrivals, report=True),
        "sim": lambda: fairlane.sim("qfq", "1gbit", sources, 3600.0),
        "fluid": lambda: fairlane.fluid(10**7, flows, arrivals),
        "packets": lambda: fairlane.packets(poisson, fairlane.Lengths.fixed(100), 3600.0),
        "scenario": lambda: fairlane.scenario(evening, seconds=3600.0),
    }[what]
    # The least of a few: while a virtual machine is paused, the clocks of its threads may advance.
    assert min(interrupted(run) for _ in range(3)) < 0.1


def test_a_leap_of_the_fluid_server_hears_signals():
    flows, leap = fairlane.flows([1] * 8), random_arrivals(600_000, 8)
    # All come at once, and one long after they have gone.
    leap["time_ns"][:-1], leap["time_ns"][-1] = 0, 10**13

    def longest():
        heard = [time.thread_time()]
        before = signal.signal(signal.SIGALRM, lambda *_: heard.append(time.thread_time()))
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
        try:
            fairlane.fluid(10**7, flows, leap)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return np.diff(heard + [time.thread_time()]).max()

    assert min(longest() for _ in range(2)) < 0.1


def test_columns_of_any_kind_are_read_as_numpy_reads_them():
    flows, arrivals = fairlane.flows([1, 2, 3]), random_arrivals(100, 3)
    expected = fairlane.replay("qfq", 10**7, flows, arrivals).departures
    packed = np.zeros(100, dtype=[("x", "u1"), ("time_ns", "<u8"), ("flow", "<u2"), ("len", ">i4")])
    for name in arrivals.dtype.names:
        packed[name] = arrivals[name]
    backwards = {name: arrivals[name][::-1].copy()[::-1] for name in arrivals.dtype.names}
    frozen = arrivals.copy()
    frozen.flags.writeable = False
    for given in (packed, backwards, frozen, tuple(map(list, zip(*arrivals.tolist())))):
        assert (fairlane.replay("qfq", 10**7, flows, given).departures == expected).all()
    one = np.broadcast_to(np.int32(500), 100)
    left = fairlane.replay("qfq", 10**7, flows, (arrivals["time_ns"], arrivals["flow"], one)).departures
    assert (left["len"] == 500).all() and len(left) == 100


def test_nothing_comes_and_nothing_leaves():
    flows, nothing = fairlane.flows([1]), np.zeros(0, dtype=fairlane.ARRIVALS)
    for given in (nothing, nothing[::-1], ([], [], [])):
        replayed = fairlane.replay("qfq", "1mbit", flows, given, report=True)
        assert len(replayed.departures) == 0 and replayed.flows["packets"].tolist() == [0]
        assert len(fairlane.fluid("1mbit", flows, given)) == 0
    assert len(fairlane.arrivals([], 1.0)) == 0


def test_a_time_that_cannot_be_told_is_told():
    times = np.array([0, 2**64 - 1], np.uint64)
    flows, late = fairlane.flows([1]), (times, [0, 0], [1500, 1500])
    with pytest.raises(fairlane.FairlaneError, match="end of the time range"):
        fairlane.replay("qfq", "1mbit", flows, late)
    with pytest.raises(fairlane.ArgumentError, match="near 0") as error:
        fairlane.fluid("1mbit", flows, late)
    assert (error.value.argument, error.value.index) == ("time_ns", 1)
    with pytest.raises(fairlane.ArgumentError, match="picoseconds"):
        fairlane.packets(fairlane.Traffic.cbr("1mbit"), fairlane.Lengths.fixed(100), 1e9)
