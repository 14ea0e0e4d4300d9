"""The cost of an enqueue and a dequeue, by `fairlane bench`: shared by three experiments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .. import machine, program
from ..model import Verdict
from ..program import Case
from ._beside import beside

if TYPE_CHECKING:
    from ..running import Run

#: Backlogs between which the QFQ report's controller swings, in packets for each flow.
PATTERNS = {"small": (0, 5), "large": (0, 30), "full": (3, 30)}

#: The algorithms of the report's Table 4, in its order; ``none`` is the environment alone.
ALGORITHMS = ("none", "fifo", "drr", "qfq", "s-kps", "wf2q+")

NAMES = {
    "none": "NONE",
    "fifo": "FIFO",
    "drr": "DRR",
    "qfq": "QFQ",
    "qfq+": "QFQ+",
    "s-kps": "S-KPS",
    "wf2q+": "WF2Q+",
}


@dataclass(frozen=True)
class Cell:
    """A measurement: the columns that name it, the controller's options, and the number of flows."""

    labels: dict
    case: Case
    flows: int

    def __str__(self) -> str:
        return str(self.case)

    @property
    def lead(self) -> int:
        """Requests until the backlog has once been filled and drained."""
        return 2 * self._packets(self.case.qmax)

    @property
    def period(self) -> int:
        """Requests of one filling and draining after that."""
        return 2 * (self._packets(self.case.qmax) - self._packets(self.case.qmin))

    def _packets(self, backlog: str) -> int:
        return int(backlog.removesuffix("n")) * (self.flows if backlog.endswith("n") else 1)


def cell(labels: dict, algorithm: str, flow_sets: str, flows: int, pattern: str, **more) -> Cell:
    """A cell by one of the report's patterns."""
    qmin, qmax = PATTERNS[pattern]
    return Cell(labels, Case(algorithm, flow_sets, f"{qmin}n", f"{qmax}n", **more), flows)


@dataclass(frozen=True)
class Rounds:
    """How costs are measured."""

    #: Requests of a measurement at least: the backlog is filled and drained twice in any case.
    requests: int = 4_000_000
    rounds: int = 5
    #: Of the order within a round.
    seed: int = 1


def measured(run: Run, cells: Sequence[Cell], counted: Sequence[bool] | None = None) -> pd.DataFrame:
    """Nanoseconds a pair: the median, the least and the most of all :class:`Rounds`, each in an order of its own,
    so that disturbances of the machine affect no cell in particular; and instructions a pair for the ``counted``
    cells, or for all, where there is valgrind."""
    asked: Rounds = run.parameters
    requests = asked.requests
    counted = [True] * len(cells) if counted is None else counted

    def timed(one: Cell) -> float:
        return run.program.ns_per_pair(one.case, max(requests, one.lead + one.period))

    def instructions(number: int) -> float:
        one = cells[number]
        # Whole periods, and enough of them that randomness elsewhere does not show.
        more = one.period * math.ceil(20_000 / one.period)
        return run.program.instructions_per_pair(one.case, one.lead, one.lead + more)

    times = run.rounds(cells, timed, asked.rounds, asked.seed)
    to_count = [number for number, wanted in enumerate(counted) if wanted and program.can_count()]
    counts = dict(zip(to_count, run.each(to_count, instructions, jobs=machine.cores())))
    return pd.DataFrame(
        {
            **one.labels,
            "algorithm": one.case.algorithm,
            "ns": float(np.median(times[number])),
            "ns_least": min(times[number]),
            "ns_most": max(times[number]),
            "instructions": counts.get(number, math.nan),
        }
        for number, one in enumerate(cells)
    )


def unit_of(frame: pd.DataFrame) -> str:
    """The measure for verdicts: instructions, which repeat, if all were counted; otherwise nanoseconds."""
    return "instructions" if frame["instructions"].notna().all() else "ns"


def beyond(frame: pd.DataFrame, unit: str, row: str = "flows") -> pd.DataFrame:
    """The cost of algorithms (columns) less that of the environment alone, by ``row``."""
    wide = frame.pivot(index=row, columns="algorithm", values=unit)
    return wide.sub(wide["none"], axis=0).drop(columns="none")


def flat(net: pd.DataFrame, unit: str) -> Verdict:
    """Whether what O(1) algorithms cost does not grow from 8 flows on. A row a number of flows."""
    constant = [name for name in ("fifo", "drr", "qfq", "s-kps") if name in net]
    many = net.loc[net.index >= 8, constant]
    growth = (many / many.cummin()).max()
    worst = growth.idxmax()
    return Verdict(
        "the cost of O(1) algorithms does not grow with the number of flows",
        bool(growth.max() <= 1.5),
        f"from {many.index.min()} to {many.index.max()} flows none costs more than 1.5 times what it does with "
        f"fewer, in {unit} beyond the environment",
        f"{NAMES[worst]} grows most, by a factor of {growth.max():.2f}",
        "Time counts the processor's caches too, which many flows do not fit into, and whatever else ran."
        if unit == "ns"
        else "",
    )


def grows(net: pd.DataFrame, unit: str) -> Verdict:
    """Whether WF2Q+ costs more by the same with each doubling of the flows."""
    many = net.loc[net.index >= 8, "wf2q+"]
    factor = many.iloc[-1] / many.iloc[0]
    doublings = np.log2(many.index.to_numpy(dtype=float))
    straight = 0.0 if np.ptp(many) == 0 else float(np.corrcoef(doublings, many)[0, 1])
    return Verdict(
        "WF2Q+ grows as log N",
        bool(factor >= 1.3 and straight >= 0.9),
        f"from {many.index.min()} to {many.index.max()} flows its {unit} beyond the environment grow by 1.3 "
        "at least, along a straight line over log N (a correlation of 0.9 at least)",
        f"a factor of {factor:.2f}, a correlation of {straight:.3f}",
        "Flows that are alike and always busy have timestamps that come in order or tie: the heap here takes "
        "them in and out without walking its levels.",
    )


def ratio(frame: pd.DataFrame, unit: str, over: str, under: str, row: str = "flows") -> float:
    """The median over the rows of what one algorithm costs over another, both beyond the environment."""
    net = beyond(frame, unit, row)
    return float((net[over] / net[under]).median())


def ratios(frame: pd.DataFrame, over: str, under: str, row: str = "flows") -> tuple[float, str]:
    """The same by the measure for verdicts, and a sentence with all measurements."""
    unit = unit_of(frame)
    said = [f"{ratio(frame, unit, over, under, row):.2f} in {unit}"]
    if unit != "ns":
        said.append(f"{ratio(frame, 'ns', over, under, row):.2f} in ns")
    return ratio(frame, unit, over, under, row), f"{' and '.join(said)}"


def beside_paper(costs: pd.DataFrame, paper: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The cost of a pair over the environment alone, there and here: absolute times are of another decade."""

    def over(frame: pd.DataFrame) -> pd.DataFrame:
        alone = frame[frame["algorithm"] == "none"][[*keys, "ns"]]
        both = frame[frame["algorithm"] != "none"].merge(alone, on=keys, suffixes=("", "_alone"))
        return both.assign(over=both["ns"] / both["ns_alone"])

    return beside(over(costs), over(paper), [*keys, "algorithm"], {"time of a pair / NONE's": ("over", "over")})
