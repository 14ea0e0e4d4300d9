"""Shared parts of the PSPAT paper's measurements: rounds, and `fairlane-instruments bench pspat`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..model import Experiment

if TYPE_CHECKING:
    from ..running import Run

#: The deciding component, for readers.
DECIDERS = {"none": "no scheduler", "lock": "lock", "pspat": "PSPAT"}


#: An experiment of the instruments: the clients need a core in addition to the arbiter's, or to another client's.
experiment = functools.partial(Experiment, needs_instruments=True, cores=2)


@dataclass(frozen=True)
class Rounds:
    """How often and how long each measurement is made."""

    seconds: float = 0.4
    rounds: int = 3
    #: Of the order within a round.
    seed: int = 1


@dataclass(frozen=True)
class Case:
    """A measurement of ``fairlane-instruments bench pspat``: a number of clients, a thread each, that send as
    fast as they can. Its ``--help`` explains the rest."""

    mode: str
    clients: int
    algorithm: str = "drr"
    transmit: str = "noop"
    #: The transmitting component, with an arbiter.
    way: str = "clients"
    packet_bytes: int = 60
    #: Of the link; without one, it is never the bottleneck.
    rate_bps: int | None = None
    weights: tuple[int, ...] = (1,)
    #: Packets a second and the weight of one client more, whose delay is measured.
    victim: tuple[int, int] | None = None
    #: The most mailboxes that a step looks at, and the threads of clients; by default, the program's.
    scan_limit: int | None = None
    threads: int | None = None

    def __str__(self) -> str:
        way = f" ({self.way})" if self.mode == "pspat" else ""
        looks = "" if self.scan_limit is None else f", {self.scan_limit} mailboxes a step"
        return f"{DECIDERS[self.mode]}{way}, {self.transmit}, {self.clients} clients{looks}"


def measured(run: Run, case: Case, seconds: float) -> dict[str, Any]:
    """Its figures, by the instruments."""
    registered = max(case.clients, 1)
    arguments = ["--mode", case.mode, "--alg", case.algorithm, "--transmit", case.transmit]
    arguments += ["--clients", registered, "--active", case.clients, "--max-clients", registered + 1]
    arguments += ["--packet", case.packet_bytes, "--weights", ",".join(map(str, case.weights))]
    if case.mode == "pspat":
        arguments += ["--way", case.way]
    if case.rate_bps is not None:
        arguments += ["--rate", f"{case.rate_bps}bit"]
    if case.victim is not None:
        pps, weight = case.victim
        arguments += ["--victim", pps, "--victim-weight", weight]
    for option, value in (("--scan-limit", case.scan_limit), ("--threads", case.threads)):
        arguments += [] if value is None else [option, value]
    return run.instruments.figures("bench", "pspat", "--json", "--seconds", seconds, *arguments)


def rounds(run: Run, cases: Sequence[Case]) -> list[list[dict[str, Any]]]:
    """The figures of each case in every one of the experiment's :class:`Rounds`."""
    asked: Rounds = run.parameters
    return run.rounds(cases, lambda case: measured(run, case, asked.seconds), asked.rounds, asked.seed)
