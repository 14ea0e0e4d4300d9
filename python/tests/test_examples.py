"""The examples run, and their departures are those of a replay."""

import pathlib
import sys

import fairlane
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "examples"))


def arrivals_of(left):
    """What came, from what left."""
    order = np.argsort(left["arrival_ns"], kind="stable")
    return left["arrival_ns"][order], left["flow"][order], left["len"][order]


def test_the_link_in_simpy_shares_by_weight(capsys):
    import simpy_link

    left = simpy_link.main(seconds=0.5)
    assert "voice" in capsys.readouterr().out and len(left) > 100
    assert (np.diff(left["start_ns"].astype(np.int64)) > 0).all()


def test_our_server_in_nspy_departs_as_a_replay(long):
    pytest.importorskip("ns", reason="ns-py needs Python 3.13")
    import nspy_server

    left = nspy_server.main()
    expected = fairlane.replay("qfq", 4600, fairlane.flows([1, 2]), arrivals_of(left)).departures
    assert len(left) > 40 and (left == expected).all()


def test_where_definitions_agree_departures_are_those_of_nspy(long):
    pytest.importorskip("ns", reason="ns-py needs Python 3.13")
    import against_nspy

    for row in against_nspy.compare(5_000):
        assert row["same"] == row["packets"], row
