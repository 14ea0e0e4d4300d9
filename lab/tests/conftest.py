"""Helpers that tests share."""

import os

import fairlane_lab as lab
import pytest
from fairlane_lab.program import Instruments, Program


def named(kind):
    """The program, which what built these tests names."""
    path = os.environ.get(kind.variable)
    if not path:
        assert not os.environ.get("FAIRLANE_NO_SKIP"), f"{kind.variable} names no program"
        pytest.skip(f"{kind.variable} names no program")
    return path


@pytest.fixture
def program():
    """For tests that need the program ``fairlane``."""
    return named(Program)


@pytest.fixture
def instruments():
    """For tests that need the program ``fairlane-instruments``."""
    return named(Instruments)


@pytest.fixture(scope="session")
def found():
    """The results of an experiment without a program, in a form of a second."""
    kept = {}
    changes = {
        "qfq-ns2": {"seconds": 1.0, "warm_up": 0.5, "weights": (59,)},
        "qfq-wfi": {"sets": 6, "flows": 12, "packets": 600},
        "qfqplus-fig8": {"sets": ("1k-w1", "1k-highw"), "arrivals": ("smooth",), "packets_of_a_flow": 40},
        "pspat-twfi": {"packets": 4000},
    }

    def result(name):
        if name not in kept:
            kept[name] = lab.run(name, quick=True, **changes.get(name, {}))
        return kept[name]

    return result
