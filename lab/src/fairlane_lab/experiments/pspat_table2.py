"""The PSPAT paper's Table 2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from .. import drawing, machine
from ..model import Experiment, Tables, Verdict
from . import _pspat

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run

#: A slow access costs at least this many fast ones, where the claim holds.
MANY = 5.0

SIDES = ("reader", "writer")


@dataclass(frozen=True)
class Parameters(_pspat.Rounds):
    """How it is measured."""

    seconds: float = 0.05
    rounds: int = 5
    #: Pauses of the slower side after each access: at first it does nothing, then these, each half of the
    #: one before, then none.
    slowest_ns: int = 16384
    fastest_ns: int = 16

    @property
    def pauses_ns(self) -> list[int | None]:
        """All of them; ``None`` where it does nothing."""
        pauses: list[int | None] = [None]
        pause = self.slowest_ns
        while pause >= max(self.fastest_ns, 1):
            pauses.append(pause)
            pause //= 2
        return [*pauses, 0]


class Cell(NamedTuple):
    """The pair of cores, the side that goes as fast as it can, and the other's pause."""

    pair: str
    cores: tuple[int, int]
    fast: str
    pause_ns: int | None

    def __str__(self) -> str:
        pause = "idle" if self.pause_ns is None else f"{self.pause_ns} ns"
        return f"{self.pair}, fast {self.fast}, {pause}"


def fit(accesses: Sequence[float], changes: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """The times of a fast and a slow access, by Eqs. A.1 and A.2 over all runs, by least squares: there were as
    many slow ones as changes, the others were fast, and together they took these times. NaN if the runs do not
    distinguish the two."""
    # Per unit of time, so that runs count alike whatever their length.
    counts = np.array([accesses, changes, times], dtype=float)
    counts = counts[:, counts[2] > 0]
    slow = counts[1] / counts[2]
    fast = (counts[0] - counts[1]) / counts[2]
    matrix = np.array([[fast @ fast, fast @ slow], [fast @ slow, slow @ slow]])
    if np.linalg.det(matrix) <= 1e-9 * matrix[0, 0] * matrix[1, 1]:
        return math.nan, math.nan
    both = np.linalg.solve(matrix, [fast.sum(), slow.sum()])
    return float(both[0]), float(both[1])


def _costs(found: Sequence[Sequence[dict[str, Any]]], fast: str) -> tuple[float, float]:
    """The median over the rounds, each by itself: a disturbed run spoils one round only."""
    what, took = ("reads", "reading_ns") if fast == "reader" else ("writes", "writing_ns")
    fits = [
        fit([one[what] for one in runs], [one["changes"] for one in runs], [one[took] for one in runs])
        for runs in zip(*found)
    ]
    told = [both for both in fits if not math.isnan(both[0])]
    if not told:
        return math.nan, math.nan
    return float(np.median([both[0] for both in told])), float(np.median([both[1] for both in told]))


def _per_second(one: dict[str, Any], what: str, took: str) -> float:
    return one[what] / one[took] * 1e9 if one[took] else math.nan


def measure(run: Run) -> Tables:
    """Stalls, and the fraction of written values that a reader sees, for each distance between cores."""
    asked: Parameters = run.parameters
    cells = [
        Cell(pair, cores, fast, pause)
        for pair, cores in machine.pairs().items()
        for fast in SIDES
        for pause in asked.pauses_ns
    ]

    def counted(cell: Cell) -> dict[str, Any]:
        reader, writer = cell.cores
        how = ["--fast", cell.fast, "--reader-core", reader, "--writer-core", writer, "--seconds", asked.seconds]
        how += [] if cell.pause_ns is None else ["--pause-ns", cell.pause_ns]
        return run.instruments.figures("stalls", *how)

    found = dict(zip(cells, run.rounds(cells, counted, asked.rounds, asked.seed)))
    visible, stalls = [], []
    for cell, runs in found.items():
        if cell.fast == "reader" and cell.pause_ns is not None:
            written = [_per_second(one, "writes", "writing_ns") for one in runs]
            seen = [_per_second(one, "changes", "reading_ns") for one in runs]
            visible.append(
                {
                    "pair": cell.pair,
                    "pause_ns": cell.pause_ns,
                    "writes_per_sec": float(np.nanmedian(written)),
                    "seen_per_sec": float(np.nanmedian(seen)),
                }
            )
    for pair in machine.pairs():
        for fast, access in zip(SIDES, ("read", "write")):
            of = [runs for cell, runs in found.items() if (cell.pair, cell.fast) == (pair, fast)]
            quick_ns, stall_ns = _costs(of, fast)
            stalls.append({"pair": pair, "access": access, "fast_ns": quick_ns, "stall_ns": stall_ns})
    return {"stalls": pd.DataFrame(stalls), "visible": pd.DataFrame(visible)}


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """Whether reads from another core are slow, and slower from further away."""
    stalls = tables["stalls"]
    # The paper has no figure for writes between hyperthreads: they share the cache.
    asked = stalls[(stalls["pair"] != "HT-HT") | (stalls["access"] == "read")]
    over = asked["stall_ns"] / asked["fast_ns"]
    told = bool(over.notna().all()) and len(over) > 0
    most = tables["visible"].groupby("pair")["seen_per_sec"].max()
    near_to_far = [pair for pair in machine.DISTANCES if pair in most.index]
    seen = [float(most[pair]) for pair in near_to_far]
    reads = stalls[stalls["access"] == "read"].set_index("pair")["stall_ns"]
    waits = [float(reads[pair]) for pair in near_to_far]
    several = len(near_to_far) > 1
    return [
        Verdict(
            "an access that finds its cache line on another core costs many times one that does not",
            bool((over >= MANY).all()) if told else None,
            f"a slow access costs at least {MANY:g} fast ones, reading and writing, for every pair of cores",
            "; ".join(
                f"{pair}: to {access} takes {stall:.3g} ns instead of {fast:.2g} ns"
                for pair, access, fast, stall in asked[["pair", "access", "fast_ns", "stall_ns"]].itertuples(
                    index=False
                )
            ),
            "The line changes hands for less here."
            if told
            else "The runs do not tell fast and slow accesses apart.",
        ),
        Verdict(
            "the further apart two cores are, the longer a read stalls and the fewer updates it sees",
            waits == sorted(waits) and seen == sorted(seen, reverse=True) if several else None,
            "from each distance to the next, among hyperthreads, cores and sockets",
            "; ".join(
                f"{pair}: {count / 1e6:.3g} M updates a second are seen, a read stalls for {wait:.3g} ns"
                for pair, count, wait in zip(near_to_far, seen, waits)
            ),
            "The system does not tell truly which cores are near, or their caches are joined otherwise."
            if several
            else "This machine has cores at one distance only.",
        ),
    ]


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """Updates seen over updates made; and stalls by distance."""
    left, right = figure.subplots(1, 2)
    visible, stalls = tables["visible"], tables["stalls"]
    for number, pair in enumerate(machine.DISTANCES):
        of = visible[visible["pair"] == pair].sort_values("writes_per_sec")
        left.plot(of["writes_per_sec"], of["seen_per_sec"], **drawing.ours(number))
        level = paper[(paper["pair"] == pair) & (paper["figure"] == "visible_updates_per_sec")]["least"]
        ends = [visible["writes_per_sec"].min(), visible["writes_per_sec"].max()]
        left.plot(ends, [float(level.iloc[0])] * 2, **drawing.papers(number))
        for place, access in enumerate(("read", "write")):
            ours = stalls[(stalls["pair"] == pair) & (stalls["access"] == access)]
            x = place + 0.24 * (number - 1)
            look = {**drawing.style(number), "linestyle": "none"}
            right.plot([x] * len(ours), ours["stall_ns"], **look)
            fast = {**look, "marker": "_", "markersize": 12}
            right.plot([x] * len(ours), ours["fast_ns"], **fast)
            theirs = paper[(paper["pair"] == pair) & (paper["figure"] == f"{access}_stall_ns")]
            for least, most in theirs[["least", "most"]].itertuples(index=False):
                hollow = {**look, "markerfacecolor": "white", "linestyle": "-", "linewidth": 0.9}
                right.plot([x + 0.1] * 2, [least, most], **hollow)
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlabel("updates made (a second)")
    left.set_ylabel("updates that the reader sees (a second)")
    right.set_yscale("log")
    drawing.ones_twos_fives(right.yaxis)
    right.set_xticks([0, 1], ["reading", "writing"])
    right.set_xlim(-0.5, 1.5)
    right.grid(axis="x", visible=False)
    right.set_ylabel("time of an access (ns)")
    dark = {"color": "#333333", "linestyle": "none"}
    handles = [
        Line2D([], [], label=pair, **{**drawing.style(number), "linestyle": "none"})
        for number, pair in enumerate(machine.DISTANCES)
    ]
    handles += [
        Line2D([], [], marker="o", label="here (filled, solid)", **dark),
        Line2D([], [], marker="_", markersize=12, label="here, without a stall", **dark),
        Line2D([], [], marker="o", markerfacecolor="white", label="the paper (hollow, dashed)", **dark),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=6)


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """Stalls, and the most updates that are seen; of the paper's ranges the middle."""
    most = tables["visible"].groupby("pair")["seen_per_sec"].max()
    here = {(pair, "visible_updates_per_sec"): seen for pair, seen in most.items()}
    here |= {(row.pair, f"{row.access}_stall_ns"): row.stall_ns for row in tables["stalls"].itertuples()}
    rows = [
        {"pair": row.pair, "figure": row.figure, "paper": (row.least + row.most) / 2, "here": here[row.pair, row.figure]}
        for row in paper.itertuples()
        if (row.pair, row.figure) in here
    ]
    return pd.DataFrame(rows, columns=["pair", "figure", "paper", "here"])


EXPERIMENT = Experiment(
    name="pspat-table2",
    title="reading and writing memory that another core uses",
    source="PSPAT (Rizzo, Valente, Lettieri, Maffione, 2018), Section 2.4, Table 2 and Appendix A",
    claim="an access that finds its cache line on another core costs many times one that does not: what mailboxes "
    "must amortise",
    method="Appendix A. A reader reads two variables on lines of their own as fast as it can while a writer writes "
    "them at a rate that doubles from run to run; then the other way round. Each new value that the reader sees "
    "cost one slow access, all others were fast, so that N_RS T_RS + (N_R - N_RS) T_RF = D_R for every run: least "
    "squares over all rates give both times. D is the thread's processor time, so that other programs do not "
    "count. Pairs of cores are those that the system tells of, which may be wrong of a virtual machine. Fast "
    "accesses overlap in a modern core: their time is what each adds. A mailbox that moves one item with each "
    "change of a line could not move more items a second than there are visible updates.",
    full=Parameters(),
    quick=Parameters(seconds=0.02, rounds=2),
    seconds=(10.0, 2.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(10.0, 4.6),
    needs_instruments=True,
    cores=2,
)
