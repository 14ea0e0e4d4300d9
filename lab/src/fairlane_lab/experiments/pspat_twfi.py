"""The PSPAT paper's Section 5."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import fairlane
import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from .. import drawing, machine
from ..draws import SplitMix64
from ..model import Experiment, Tables, Verdict
from ._beside import beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run

#: Of the link, and the packets on it: L / B is 1.2 us.
RATE, LENGTH = 10_000_000_000, 1500
PACKET_NS = 1200

#: Half the link is the first client's, weights are 0.005 of the sum at least.
WEIGHTS = 200

ALGORITHMS = ("drr", "qfq")


@dataclass(frozen=True)
class Parameters:
    """Parameters of the computation and the measurement."""

    clients: tuple[int, ...] = (5, 10, 25, 50, 100)
    #: Packets that the link sends in a run, about.
    packets: int = 200_000
    #: Microseconds between two rounds of the arbiter, and of dispatchers (Delta_A and Delta_D).
    scans_us: tuple[float, ...] = (0.5, 1.0)
    seed: int = 1


def weights_of(clients: int) -> list[int]:
    """One client has half of :data:`WEIGHTS`, one 1, the others the rest as evenly as whole numbers go."""
    rest = WEIGHTS // 2 - 1
    others = clients - 2
    each, more = divmod(rest, others)
    return [WEIGHTS // 2, 1] + [each + (number < more) for number in range(others)]


def printed(algorithm: str, clients: int) -> float:
    """Eqs. 2 and 3 of the paper for the first client, in packets, L / B."""
    share, lightest = 0.5, 1 / WEIGHTS
    return 6 / share if algorithm == "qfq" else 1 / lightest + 1 / share + clients - 1


def with_pspat(t_wfi_ns: float, scan_ns: float) -> float:
    """Eq. 1, with Delta_D = Delta_A and k packets of the link in a scan."""
    block = max(math.ceil(scan_ns / PACKET_NS), 1)
    return t_wfi_ns + scan_ns + (2 + block) * scan_ns


def _measured(algorithm: str, clients: int, packets: int, seed: int) -> float:
    """The T-WFI of the first client in nanoseconds, which sends bursts of 1 to 4 packets at 40% of its
    share, among others that are always backlogged."""
    random, end = SplitMix64(seed), packets * PACKET_NS
    times: list[int] = []
    now = 0
    while now < end:
        burst = random.between(1, 4)
        times += [now] * burst
        now += 1 + random.below(2 * burst * PACKET_NS * 5)
    lengths = fairlane.Lengths.fixed(LENGTH)
    trace = fairlane.trace(np.array(times), np.full(len(times), LENGTH))
    heavy, *others = weights_of(clients)
    flows = [fairlane.Flow(heavy, trace, lengths)]
    flows += [fairlane.Flow(weight, fairlane.Traffic.greedy(2), lengths) for weight in others]
    return float(fairlane.sim(algorithm, RATE, flows, end / 1e9).flows["t_wfi_ns"][0])


def measure(run: Run) -> Tables:
    """The paper's formulas, our bounds and the results of a simulated link, over the number of clients."""
    asked: Parameters = run.parameters
    cells = [(algorithm, clients) for algorithm in ALGORITHMS for clients in asked.clients]

    def row(cell: tuple[str, int]) -> dict:
        algorithm, clients = cell
        bounds = fairlane.bounds(algorithm, RATE, fairlane.flows(weights_of(clients), LENGTH))
        formula = printed(algorithm, clients)
        return {
            "algorithm": algorithm,
            "clients": clients,
            "formula_packets": formula,
            "formula_us": formula * PACKET_NS / 1000,
            "bound_us": float(bounds["t_wfi_ns"][0]) / 1000,
            "measured_us": _measured(algorithm, clients, asked.packets, asked.seed) / 1000,
            **{
                f"formula_with_pspat_{scan:g}us_us": with_pspat(formula * PACKET_NS, scan * 1000) / 1000
                for scan in asked.scans_us
            },
        }

    return {"t_wfi": pd.DataFrame(run.each(cells, row, jobs=machine.cores()))}


def judge(tables: Tables, paper: pd.DataFrame) -> list[Verdict]:
    """The paper's examples, and their expected outcome."""
    frame = tables["t_wfi"]
    both = paper.merge(frame, on=["algorithm", "clients"])
    off = (both["formula_us"] / both["us"] - 1).abs().max()
    by = {
        column: frame.pivot(index="clients", columns="algorithm", values=column)
        for column in ("formula_us", "bound_us", "measured_us")
    }
    bound, measured = by["bound_us"], by["measured_us"]
    spread = bound["qfq"].max() / bound["qfq"].min()
    growth = bound["drr"].iloc[-1] / bound["drr"].iloc[0]
    within = (frame["measured_us"] / frame["bound_us"]).max()
    worse = measured["drr"].iloc[-1] / measured["qfq"].iloc[-1]
    added = frame[[name for name in frame if name.startswith("formula_with_pspat")]]
    of_qfq = frame["algorithm"] == "qfq"
    more = ((added.max(axis=1) - frame["formula_us"]) / frame["formula_us"])[of_qfq].max()
    return [
        Verdict(
            "Eqs. 2 and 3 give 14.4 us for QFQ, and for DRR 271.2 us with 25 clients and 361.2 with 100",
            bool(off <= 0.005) and len(both) == len(paper),
            "each within 0.5%",
            f"within {off:.2%}",
        ),
        Verdict(
            "QFQ's does not depend on the number of clients, DRR's does",
            bool(spread <= 1.05 and growth >= 1.2),
            "by our bounds QFQ's varies by 5% at most, DRR's grows by a fifth at least",
            f"a factor of {spread:.2f} and of {growth:.2f}, from {bound.index[0]} to {bound.index[-1]} clients",
        ),
        Verdict(
            "what a simulated link shows is within our bounds",
            bool(within <= 1.0),
            "measured / bound is at most 1",
            f"at most {within:.3f}",
        ),
        Verdict(
            "DRR is many times worse than QFQ",
            bool(worse >= 5.0),
            "measured with the most clients, five times at least",
            f"{worse:.1f} times",
        ),
        Verdict(
            "what PSPAT adds is small",
            bool(more <= 1 / 3),
            "by Eq. 1 at most a third of QFQ's T-WFI, for the longest scan",
            f"{more:.0%} of it",
        ),
    ]


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """T-WFIs against clients."""
    axes = figure.subplots()
    frame = tables["t_wfi"]
    for number, algorithm in enumerate(ALGORITHMS):
        of = frame[frame["algorithm"] == algorithm]
        theirs = paper[paper["algorithm"] == algorithm]
        axes.plot(of["clients"], of["measured_us"], **drawing.ours(number))
        bound = {**drawing.ours(number), "linestyle": (0, (1, 1)), "marker": "_"}
        axes.plot(of["clients"], of["bound_us"], **bound)
        axes.plot(theirs["clients"], theirs["us"], **drawing.papers(number))
    axes.set_yscale("log")
    axes.set_yticks([2, 5, 10, 20, 50, 100, 200, 400])
    drawing.plain_numbers(axes, y=True)
    axes.set_xlim(left=0)
    axes.set_xlabel("clients, the first of which has half the link")
    axes.set_ylabel("T-WFI of the first client (us)")
    handles = [
        Line2D([], [], label=f"{name}, measured here", **drawing.ours(number))
        for number, name in enumerate(("DRR", "QFQ"))
    ]
    dark = {"color": "#333333"}
    handles.append(Line2D([], [], linestyle=(0, (1, 1)), marker="_", label="our bound (dotted)", **dark))
    look = {**drawing.papers(0), **dark}
    handles.append(Line2D([], [], label="the paper's Eqs. 2 and 3 (dashed)", **look))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """The paper's examples."""
    figures = {"by the formulas (us)": ("us", "formula_us"), "our bound (us)": ("us", "bound_us")}
    return beside(tables["t_wfi"], paper, ["algorithm", "clients"], figures)


EXPERIMENT = Experiment(
    name="pspat-twfi",
    title="T-WFI of a client with half of a 10 Gbit/s link",
    source="PSPAT (Rizzo, Valente, Lettieri, Maffione, 2018), Section 5.2, Eqs. 1 to 3",
    claim="the T-WFI of QFQ is 12 L/B = 14.4 us whatever the number of clients, that of DRR 226 L/B for 25 and "
    "301 L/B for 100; what PSPAT adds is small beside it",
    method="The paper's formulas, `fairlane.bounds` for clients of the same weights (one of half, one of 0.005, "
    "the others even), and a simulated link whose first client sends bursts of 1 to 4 packets at 40% of its "
    "share among others that are always backlogged. Our bounds hold for arrivals at any time, a packet on the "
    "wire included, which the paper's leave out; slots are powers of two where the paper has twice L / phi. Eq. "
    "1 is computed for Delta_D = Delta_A.",
    full=Parameters(),
    quick=Parameters(packets=20_000),
    seconds=(15.0, 2.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(8.0, 4.8),
)
