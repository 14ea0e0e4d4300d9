"""The QFQ+ paper's Table 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import fairlane
import pandas as pd

from .. import drawing
from ..model import Experiment, Tables, Verdict
from ._beside import beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run

#: Bytes of all packets, and a rate at which one takes a microsecond.
LENGTH, RATE = 1500, 12_000_000_000

ALGORITHMS = ("drr", "qfq+", "qfq")


@dataclass(frozen=True)
class Parameters:
    """`1k-highw`: one flow of a quarter of the link, the others share the rest."""

    #: Packets of the transmit queue, in addition to the one on the wire.
    queues: tuple[int, ...] = (1, 10, 100, 1000, 2000, 3000)
    #: All flows, and the weight of the heavy one among others of weight 1.
    flows: int = 1000
    heavy: int = 333
    #: The largest M of QFQ+.
    aggregate: int = 8


def printed(algorithm: str, flows: int, share: float, q: int, aggregate: int) -> float:
    """Eqs. 2, 22 and 15 of the paper in packets L, for equal packets, an aggregate of one flow, and q
    packets between scheduler and wire, the one on the wire included."""
    if algorithm == "qfq":
        return 7 / share + q
    if algorithm == "qfq+":
        return 10 / share + min(aggregate, q) - 1 + q
    lightest = (1 - share) / (flows - 1)
    # The paper's example has 0.75 / 1000 for the weight of a light flow.
    lightest = min(lightest, (1 - share) / flows)
    return 1 / lightest + 1 / share + flows - 1 + q


def measure(run: Run) -> Tables:
    """The bounds, as the paper prints them and as `fairlane.bounds` has them."""
    asked: Parameters = run.parameters
    flows = fairlane.flows([asked.heavy] + [1] * (asked.flows - 1), LENGTH)
    share = asked.heavy / (asked.heavy + asked.flows - 1)
    service = LENGTH / share
    rows = []

    def bounded(queue: int) -> None:
        for algorithm in ALGORITHMS:
            ours = fairlane.bounds(
                algorithm, RATE, flows, aggregate=min(asked.aggregate, queue + 1), queue_bytes=queue * LENGTH
            )[0]
            formula = printed(algorithm, asked.flows, share, queue + 1, asked.aggregate)
            rows.append(
                {
                    "algorithm": algorithm,
                    "queue_packets": queue,
                    "formula_service_times": formula * share,
                    "ours_service_times": float(ours["t_wfi_ns"]) * RATE / 8e9 / service,
                }
            )

    run.each(asked.queues, bounded)
    return {"bounds": pd.DataFrame(rows)}


def _beside(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """Ours with the paper's figures where it has them."""
    return tables["bounds"].merge(paper, how="left", on=["algorithm", "queue_packets"])


def judge(tables: Tables, paper: pd.DataFrame) -> list[Verdict]:
    """The paper's conclusions by our bounds, and its table by its formulas."""
    both = _beside(tables, paper)
    ours = both.pivot(index="queue_packets", columns="algorithm", values="ours_service_times")
    formula = both.pivot(index="queue_packets", columns="algorithm", values="formula_service_times")
    off = both[(both["formula_service_times"] / both["service_times"] - 1).abs() > 0.01]
    wrong = "; ".join(
        f"{row.algorithm} with {row.queue_packets}: {row.service_times:g} printed, "
        f"{row.formula_service_times:g} by the formula"
        for row in off.itertuples()
    )
    near = (ours["qfq+"] / ours["qfq"]).max()
    short, long = ours.index.min(), ours.index.max()
    return [
        Verdict(
            "QFQ+ and QFQ guarantee comparable T-WFIs",
            bool(near <= 2.0),
            "QFQ+'s bound is at most twice QFQ's for every queue",
            f"at most {near:.2f} times",
        ),
        Verdict(
            "DRR guarantees hundreds of packet service times, even with short transmit queues",
            bool(ours["drr"][short] >= 100 and ours["drr"][short] >= 10 * ours["qfq+"][short]),
            "with the shortest queue 100 at least, and ten times QFQ+'s",
            f"{ours['drr'][short]:.0f}, QFQ+ {ours['qfq+'][short]:.1f}",
        ),
        Verdict(
            "with 3000 packets in the transmit queue DRR's bound is still 1.8 times theirs",
            bool(ours["drr"][long] >= 1.5 * ours["qfq+"][long]),
            "1.5 times at least, with the longest queue",
            f"{ours['drr'][long] / ours['qfq+'][long]:.2f} times by our bounds, "
            f"{formula['drr'][long] / formula['qfq+'][long]:.2f} by the formulas",
        ),
        Verdict(
            "the table follows from the paper's formulas (Eqs. 2, 15 and 22)",
            bool(off.empty),
            "every figure within 1% of its formula, with the packet on the wire counted in Q (Section 8)",
            wrong or "all of them",
            "10.5 for QFQ+ follows with M = 1, but a queue of one packet is Qpkts = 2 in Section 8, and M = "
            "min(8, Qpkts); 272 for QFQ, more than QFQ+'s 262, has no formula. Other figures are cut off "
            "rather than rounded.",
        ),
        Verdict(
            "our bounds are no looser than the paper's",
            bool((ours <= formula * (1 + 1e-9)).all(axis=None)),
            "for every algorithm and queue",
            f"from {(ours / formula).min(axis=None):.2f} to {(ours / formula).max(axis=None):.2f} of them: "
            "slots are powers of two, not twice L_k / phi, and a round of DRR has each other's quantum and "
            "packet once",
        ),
    ]


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """Bounds against the transmit queue."""
    axes = figure.subplots()
    both = _beside(tables, paper)
    for number, algorithm in enumerate(ALGORITHMS):
        of = both[both["algorithm"] == algorithm]
        # Side by side: with a long queue QFQ+ and QFQ have the same.
        queue = of["queue_packets"] * 1.06 ** (number - 1)
        axes.plot(queue, of["service_times"], **drawing.papers(number))
        axes.plot(queue, of["ours_service_times"], **drawing.ours(number))
    axes.set_xscale("log")
    axes.set_yscale("log")
    drawing.plain_numbers(axes, x=True, y=True)
    axes.set_xlabel("transmit queue (packets)")
    axes.set_ylabel("bound of the T-WFI (packet service times of the flow)")
    drawing.legend_outside(figure, ["DRR", "QFQ+", "QFQ"])


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """The table next to its own formulas and our bounds."""
    figures = {
        "by the paper's formula (packet service times)": ("service_times", "formula_service_times"),
        "our bound (packet service times)": ("service_times", "ours_service_times"),
    }
    return beside(tables["bounds"], paper, ["algorithm", "queue_packets"], figures)


EXPERIMENT = Experiment(
    name="qfqplus-table2",
    title="bounds of the T-WFI of a heavy flow among 999",
    source="QFQ+ paper (Valente, 2014), Section 6, Table 2",
    claim="QFQ+ and QFQ guarantee comparable T-WFIs of at most tens of packet service times with short "
    "transmit queues, DRR hundreds",
    method="`fairlane.bounds` and the paper's formulas from the same parameters: one flow of weight 333 "
    "among 999 of weight 1, equal packets, M = min(8, Qpkts). All are in packet service times of the heavy "
    "flow, L / (phi R).",
    full=Parameters(),
    quick=Parameters(),
    seconds=(1.0, 1.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(7.0, 4.8),
)
