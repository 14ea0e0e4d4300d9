"""The QFQ report's Fig. 10."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from .. import drawing
from ..model import Experiment, Tables, Verdict
from . import _cost

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run


@dataclass(frozen=True)
class Parameters(_cost.Rounds):
    """How it is measured."""

    #: Flows of weight 1.
    flows: tuple[int, ...] = tuple(1 << power for power in range(16))


def measure(run: Run) -> Tables:
    """Costs over the number of flows."""
    asked: Parameters = run.parameters
    cells = [
        _cost.cell({"flows": flows}, algorithm, f"1::{flows}", flows, "full")
        for flows in asked.flows
        for algorithm in _cost.ALGORITHMS
    ]
    return {"costs": _cost.measured(run, cells)}


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """Flat, or growing."""
    costs = tables["costs"]
    unit = _cost.unit_of(costs)
    net = _cost.beyond(costs, unit)
    return [_cost.flat(net, unit), _cost.grows(net, unit)]


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """Time with the paper's points; instructions beyond the environment."""
    costs = tables["costs"]
    counted = _cost.unit_of(costs) == "instructions"
    all_axes = figure.subplots(1, 2 if counted else 1, squeeze=False)[0]
    for number, algorithm in enumerate(_cost.ALGORITHMS):
        for frame, look in ((paper, drawing.papers(number)), (costs, drawing.ours(number))):
            of = frame[frame["algorithm"] == algorithm]
            all_axes[0].plot(of["flows"], of["ns"], **look)
    all_axes[0].set_yscale("log")
    all_axes[0].set_yticks([5, 10, 20, 50, 100, 200, 500, 1000, 2000])
    drawing.plain_numbers(all_axes[0], y=True)
    all_axes[0].set_ylabel("time of an enqueue and a dequeue, generation included (ns)")
    if counted:
        net = _cost.beyond(costs, "instructions")
        for number, algorithm in enumerate(_cost.ALGORITHMS):
            if algorithm in net:
                # Side by side: FIFO and DRR take alike.
                all_axes[1].plot(net.index * 1.08 ** (number - 3), net[algorithm], **drawing.ours(number))
        all_axes[1].set_ylabel("instructions of a pair beyond the environment's")
        all_axes[1].set_ylim(bottom=0)
    for axes in all_axes:
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 8, 64, 512, 4096, 32768])
        drawing.plain_numbers(axes, x=True)
        axes.set_xlabel("flows, all of weight 1, backlog 3 to 30 packets a flow")
    drawing.legend_outside(figure, [_cost.NAMES[name] for name in _cost.ALGORITHMS])


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """Times over that of the environment alone."""
    return _cost.beside_paper(tables["costs"], paper, ["flows"])


EXPERIMENT = Experiment(
    name="qfq-fig10",
    title="cost of a pair against the number of flows",
    source="QFQ report (Checconi, Valente, Rizzo, 2010), Section 7.2, Fig. 10",
    claim="all O(1) algorithms do not depend on the number of flows, whereas WF2Q+ grows as log N",
    method="As qfq-table4, with the link always busy and all flows of weight 1. The paper's points are those of "
    "its Table 4, from which its figure is. Instructions (right) repeat from run to run; time (left) counts the "
    "processor's caches too, as it did for the paper above 4k flows.",
    full=Parameters(),
    quick=Parameters(flows=(1, 8, 64, 512, 4096), requests=400_000, rounds=2),
    seconds=(900.0, 40.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(11.0, 4.8),
    needs_program=True,
)
