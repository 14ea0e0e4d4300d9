"""The QFQ+ paper's Fig. 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from .. import drawing
from ..model import Experiment, Tables, Verdict
from . import _cost
from ._beside import beside
from ._flowsets import FLOW_SETS, as_sets, count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run


@dataclass(frozen=True)
class Parameters(_cost.Rounds):
    """How it is measured."""

    sets: tuple[str, ...] = ("1k-w1", "1k-wmix", "32k-w1", "32k-wmix")
    #: The most flows of an aggregate, M.
    members: tuple[int, ...] = (1, 2, 4, 8, 16)


def measure(run: Run) -> Tables:
    """Costs of QFQ+ over M; of QFQ, and of the environment alone, as M = 0."""
    asked: Parameters = run.parameters
    cells = [
        _cost.cell(
            {"set": name, "m": members},
            algorithm,
            as_sets(name),
            count(name),
            "large",
            aggregate=max(members, 1),
        )
        for name in asked.sets
        for algorithm, members in [("none", 0), ("qfq", 0), *(("qfq+", m) for m in asked.members)]
    ]
    return {"costs": _cost.measured(run, cells)}


def _over_qfq(costs: pd.DataFrame, unit: str) -> pd.DataFrame:
    """The cost of a pair with QFQ+, generation included, over QFQ's: a row for each set, a column for each M."""
    plus = costs[costs["algorithm"] == "qfq+"].pivot(index="set", columns="m", values=unit)
    of_qfq = costs[costs["algorithm"] == "qfq"].set_index("set")[unit]
    return plus.div(of_qfq, axis=0)


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """Where the gain is."""
    costs = tables["costs"]
    unit = _cost.unit_of(costs)
    over = _over_qfq(costs, unit)
    part = (over[1] - over[8]) / (over[1] - over[16])
    time = _over_qfq(costs, "ns")
    return [
        Verdict(
            "most of the gain is there at M = 8",
            bool(part.min() >= 0.8),
            f"of what M = 16 saves of M = 1, 80% at least at M = 8, in {unit}, for every set of flows",
            f"at least {part.min():.0%}",
            "Each doubling halves how often the aggregates are ordered anew: the last one still saves something.",
        ),
        Verdict(
            "with M = 2 QFQ+ takes less than QFQ already",
            bool(over[2].max() < 1.0),
            f"less {unit} for every set of flows",
            f"at most {over[2].max():.2f} of QFQ's in {unit}, {time[2].max():.2f} in ns",
            "An aggregate of two costs here about what it saves: QFQ itself takes fewer instructions than the "
            "paper's did. The gain shows from M = 4 on.",
        ),
        Verdict(
            "with M = 1 it takes about what QFQ does",
            bool(over[1].between(0.8, 1.25).all()),
            f"0.8 to 1.25 times QFQ's {unit}, generation included, for every set of flows",
            f"{over[1].min():.2f} to {over[1].max():.2f} in {unit}, {time[1].min():.2f} to "
            f"{time[1].max():.2f} in ns",
            "With M = 1 it is QFQ that is run: what differs is the machine, not the program.",
        ),
        Verdict(
            "with M = 8 it takes 0.3 to 0.9 of QFQ's time",
            bool(time[8].between(0.3, 0.9).all()),
            "in ns, for every set of flows",
            f"{time[8].min():.2f} to {time[8].max():.2f}",
            "The controller and QFQ itself take less of the time here than there.",
        ),
    ]


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """Instructions and time over QFQ's."""
    costs = tables["costs"]
    units = ["ns"] + (["instructions"] if _cost.unit_of(costs) == "instructions" else [])
    names = list(dict.fromkeys(costs["set"]))
    for axes, unit in zip(figure.subplots(1, len(units), sharey=True, squeeze=False)[0], units):
        over = _over_qfq(costs, unit)
        for number, name in enumerate(names):
            # Side by side: 1k flows and 32k of the same weights take the same instructions.
            axes.plot(over.columns * 1.04 ** (number - 1.5), over.loc[name], **drawing.ours(number))
        if unit == "ns":
            middle = (paper["least_of_qfq"] + paper["most_of_qfq"]) / 2
            spread = (paper["most_of_qfq"] - paper["least_of_qfq"]) / 2
            axes.errorbar(
                paper["m"] * 1.12, middle, spread, fmt="o", color="#333333", markerfacecolor="white",
                capsize=4, linestyle="none",
            )  # fmt: skip
        axes.axhline(1.0, color="black", linewidth=0.8, linestyle=(0, (6, 2)))
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(over.columns))
        drawing.plain_numbers(axes, x=True)
        axes.set_xlabel("M, the most flows of an aggregate")
        axes.set_ylabel(f"{'time' if unit == 'ns' else 'instructions'} of a pair / QFQ's")
    # Of all, which share it.
    figure.axes[0].set_ylim(bottom=0)
    drawing.legend_outside(figure, names)


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """The range over the sets of flows."""
    over = _over_qfq(tables["costs"], "ns")
    ours = pd.DataFrame({"m": over.columns, "least": over.min().to_numpy(), "most": over.max().to_numpy()})
    figures = {f"time / QFQ's, the {name} of all sets": (f"{name}_of_qfq", name) for name in ("least", "most")}
    return beside(ours, paper, ["m"], figures)


EXPERIMENT = Experiment(
    name="qfqplus-fig2",
    title="cost of QFQ+ against M",
    source="QFQ+ paper (Valente, 2014), Section 8.1, Fig. 2; ranges of Section 8.2",
    claim="the decrease is quite small when passing from M = 8 to M = 16: most of the gain is there by M = 8",
    method="`fairlane bench` with smooth arrivals and flows between no backlog and 30 packets of 1700 bytes: "
    f"the paper's flow sets {', '.join(FLOW_SETS)}. Figures include packet generation, as the paper's do. Its "
    "curves are not in its text: drawn are what Section 8.1 says of M = 1 and Section 8.2 of M = 8. Packets "
    "have no memory of their own here, so that caches count for less than there.",
    full=Parameters(),
    quick=Parameters(sets=("1k-w1", "1k-wmix"), requests=400_000, rounds=2),
    seconds=(420.0, 25.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(10.0, 4.6),
    needs_program=True,
)
