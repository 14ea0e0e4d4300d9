"""The QFQ report's Table 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.lines import Line2D

from .. import drawing
from ..model import Experiment, Tables, Verdict
from . import _cost

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run

MIX = "1::32k,2::4k,4::2k,8::1k,128::16,1k::1"
#: Of :data:`MIX`.
MIXED = (32 + 4 + 2 + 1) * 1024 + 16 + 1


@dataclass(frozen=True)
class Parameters(_cost.Rounds):
    """How it is measured."""

    #: Numbers of flows of weight 1, and the mix.
    sets: tuple[str, ...] = ("1", "8", "64", "512", "4096", "32768", "mix")
    patterns: tuple[str, ...] = ("small", "large", "full")
    #: Patterns of which instructions are counted.
    counted: tuple[str, ...] = ("small", "large", "full")


def measure(run: Run) -> Tables:
    """Costs of all sets, patterns and algorithms."""
    asked: Parameters = run.parameters
    cells = [
        _cost.cell(
            {"flows": of, "pattern": pattern},
            algorithm,
            MIX if of == "mix" else f"1::{of}",
            MIXED if of == "mix" else int(of),
            pattern,
        )
        for of in asked.sets
        for pattern in asked.patterns
        for algorithm in _cost.ALGORITHMS
    ]
    counted = [one.labels["pattern"] in asked.counted for one in cells]
    return {"costs": _cost.measured(run, cells, counted)}


def _full(tables: Tables) -> pd.DataFrame:
    """A link that is always busy."""
    costs = tables["costs"]
    return costs[costs["pattern"] == "full"]


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """The report's conclusions, for a link that is always busy."""
    full = _full(tables)
    unit = _cost.unit_of(full)
    equal = full[full["flows"] != "mix"].astype({"flows": int})
    net = _cost.beyond(equal, unit)
    of_drr, drr_said = _cost.ratios(full, "qfq", "drr")
    of_qfq, qfq_said = _cost.ratios(full, "s-kps", "qfq")
    return [
        _cost.flat(net, unit),
        _cost.grows(net, unit),
        Verdict(
            "QFQ takes about twice the time of DRR",
            1.5 <= of_drr <= 2.5,
            "beyond the environment, 1.5 to 2.5 times DRR's; the median over the sets, backlog full",
            drr_said,
            "Both are other programs than those that the report measured.",
        ),
        Verdict(
            "S-KPS costs about three times QFQ",
            2.0 <= of_qfq <= 4.0,
            "beyond the environment, 2 to 4 times QFQ's; the median over the sets, backlog full",
            qfq_said,
            "S-KPS is built here over QFQ's groups and releases a slot when it begins, not late by a timer "
            "wheel as the one that the report measured: it costs little more than QFQ, and its index is "
            "better than the report's.",
        ),
    ]


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """For each pattern the cost of an algorithm less that of the environment alone, ours next to the paper's."""
    costs = tables["costs"]
    patterns = list(dict.fromkeys(costs["pattern"]))
    sets = list(dict.fromkeys(costs["flows"]))
    algorithms = [name for name in _cost.ALGORITHMS if name != "none"]
    all_axes = figure.subplots(1, len(patterns), sharey=True, squeeze=False)[0]
    for axes, pattern in zip(all_axes, patterns):
        for frame, aside, filled in ((paper, -0.17, False), (costs, 0.17, True)):
            of_pattern = frame[(frame["pattern"] == pattern) & frame["flows"].isin(sets)]
            wide = of_pattern.pivot(index="flows", columns="algorithm", values="ns")
            over = wide.div(wide["none"], axis=0)
            for place, algorithm in enumerate(algorithms):
                values = over[algorithm]
                x = place + aside
                axes.plot([x, x], [values.min(), values.max()], color="#999999", linewidth=1, zorder=1)
                for number, of in enumerate(sets):
                    if of in values.index:
                        look = {**drawing.style(number), "linestyle": "none", "alpha": 0.9}
                        look |= {} if filled else {"markerfacecolor": "white"}
                        axes.plot([x], [values[of]], **look)
        axes.set_yscale("log")
        axes.set_title(f"backlog: {pattern}", fontsize=9)
        axes.set_xticks(range(len(algorithms)), [_cost.NAMES[name] for name in algorithms])
        axes.grid(axis="x", visible=False)
    drawing.plain_numbers(all_axes[0], y=True)
    all_axes[0].set_yticks([1, 2, 3, 5, 10, 20])
    all_axes[0].set_ylabel("time of a pair / that of the environment alone")
    handles = [
        Line2D([], [], linestyle="none", label="mix" if of == "mix" else f"{int(of):,} flow{'s' * (of != '1')}", **drawing.style(n))
        for n, of in enumerate(sets)
    ]
    handles.append(Line2D([], [], linestyle="none", marker="o", color="#333333", label="here (filled, right)"))
    handles.append(
        Line2D(
            [], [], linestyle="none", marker="o", color="#333333", markerfacecolor="white",
            label="the paper (hollow, left)",
        )
    )  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=5)


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """Times over that of the environment alone."""
    return _cost.beside_paper(tables["costs"], paper, ["flows", "pattern"])


EXPERIMENT = Experiment(
    name="qfq-table4",
    title="what an enqueue and a dequeue cost",
    source="QFQ report (Checconi, Valente, Rizzo, 2010), Section 7.2, Table 4",
    claim="O(1) schedulers are flat over the number of flows and WF2Q+ grows as log N; QFQ takes about twice "
    "DRR's time, S-KPS about three times QFQ's",
    method="The program's controller fills and drains a scheduler as the report's did: bursts of 5 and of 30 "
    "packets a flow that drain at once (small, large), and a backlog between 3 and 30 (full). A figure is the "
    "median of rounds, each in an order of its own. Beside the time of a pair stand its instructions by "
    "callgrind, where there is valgrind: two runs that differ in whole fillings and drainings alone. The paper "
    "measured a 2.1 GHz desktop of 2010: what is compared are ratios, first of all to the environment alone "
    "(NONE).",
    full=Parameters(),
    quick=Parameters(sets=("1", "64", "4096"), counted=("full",), requests=400_000, rounds=2),
    seconds=(1500.0, 40.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(11.0, 4.6),
    needs_program=True,
)
