"""The PSPAT paper's Section 6.5."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from .. import drawing
from ..model import Tables, Verdict
from . import _pspat
from ._beside import beside
from ._pspat import Case

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run

DECIDERS = ("lock", "pspat")

#: Shares are kept where no client's is further from its weight's, relative to it, and lost where one's is.
KEPT_PERCENT, LOST_PERCENT = 1.0, 5.0

#: Bytes of all packets.
PACKET = 60


@dataclass(frozen=True)
class Parameters(_pspat.Rounds):
    """How it is measured."""

    seconds: float = 0.5
    #: Of two clients that send as fast as they can.
    weights: tuple[int, int] = (10, 1)
    #: Rate of the link, as a multiple of the locked scheduler's throughput, which is measured first.
    rates: tuple[float, ...] = (0.5, 0.8, 1.1, 1.5, 2.0)


def measure(run: Run) -> Tables:
    """The shares of two clients of links of all rates, with either scheduler."""
    asked: Parameters = run.parameters

    def measured(cases: list[tuple[float, Case]]) -> list[dict]:
        found = _pspat.rounds(run, [case for _, case in cases])
        return [_row(times, case, figures) for (times, case), figures in zip(cases, found)]

    def case(decider: str, rate_bps: int | None) -> Case:
        return Case(
            decider, 2, algorithm="qfq", packet_bytes=PACKET, rate_bps=rate_bps, weights=asked.weights
        )

    unlimited = measured([(math.nan, case(decider, None)) for decider in DECIDERS])
    sustained = unlimited[0]["mpps"] * 1e6 * PACKET * 8
    # No link is slower than the slowest that a site may have.
    links = [(times, max(round(times * sustained), 1000)) for times in asked.rates]
    limited = measured([(times, case(decider, rate)) for times, rate in links for decider in DECIDERS])
    return {"shares": pd.DataFrame([*limited, *unlimited])}


def _row(times: float, case: Case, figures: list[dict]) -> dict:
    """Medians of the rounds."""

    def median(of: list[float]) -> float:
        return float(np.median(of))

    heavy = max(case.weights)
    shares = [
        next(share["share"] for share in one["shares"] if share["weight"] == heavy) for one in figures
    ]
    return {
        "link_over_lock": times,
        "link_mpps": math.nan if case.rate_bps is None else case.rate_bps / (PACKET * 8 * 1e6),
        "scheduler": case.mode,
        "mpps": median([one["decisions_per_sec"] / 1e6 for one in figures]),
        "heavy_percent": median(shares) * 100,
        "by_weight_percent": heavy / sum(case.weights) * 100,
        # The larger of both clients' distances from the share of their weight, relative to that.
        "off_percent": median([one["max_share_error"] for one in figures]) * 100,
    }


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """The schedulers that keep the weights, and on which links."""
    shares = tables["shares"]
    limited = shares[shares["link_over_lock"].notna()]
    pspat = limited[limited["scheduler"] == "pspat"]["off_percent"].max()
    # A link without limit is faster than any.
    above = shares[(shares["scheduler"] == "lock") & ~(shares["link_over_lock"] <= 1.0)]
    lock = above["off_percent"].max()
    weight = float(shares["by_weight_percent"].iloc[0])
    return [
        Verdict(
            "PSPAT keeps the weights, whatever the link's rate",
            bool(pspat <= KEPT_PERCENT),
            f"on links of every rate no client's share is further than {KEPT_PERCENT:g}% from its weight's",
            f"at most {pspat:.3g}%",
            "A client that does not have its core cannot fill its mailbox.",
        ),
        Verdict(
            "on a link faster than a locked scheduler can serve, weights are lost",
            bool(lock > LOST_PERCENT),
            f"above what the lock sustains a client's share is further than {LOST_PERCENT:g}% from its weight's",
            f"up to {lock:.3g}%; instead of {weight:.3g}% the heavy client has "
            + ", ".join(
                f"{row.heavy_percent:.3g}% at {row.link_over_lock:g} times that"
                for row in above.dropna().itertuples()
            ),
            "The lock leaves packets to choose from.",
        ),
    ]


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """The heavy client's share, over the link's rate."""
    axes = figure.subplots()
    shares = tables["shares"]
    limited = shares[shares["link_over_lock"].notna()]
    for number, decider in enumerate(DECIDERS):
        of = limited[limited["scheduler"] == decider]
        axes.plot(of["link_over_lock"], of["heavy_percent"], **drawing.ours(number))
    axes.plot(paper["link_over_lock"], paper["heavy_percent"], **drawing.papers(0))
    weight = {"color": "#333333", "linewidth": 0.9, "linestyle": (0, (1, 2))}
    axes.axhline(float(shares["by_weight_percent"].iloc[0]), **weight)
    axes.set_ylim(0, 100)
    axes.set_xlabel("rate of the link / what the locked scheduler sustains")
    axes.set_ylabel("share of the heavy client (%)")
    handles = [
        Line2D([], [], label=f"here, {_pspat.DECIDERS[decider]}", **drawing.ours(number))
        for number, decider in enumerate(DECIDERS)
    ]
    handles.append(Line2D([], [], label="the paper, TC (dashed)", **drawing.papers(0)))
    handles.append(Line2D([], [], label="by weight", **weight))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """The heavy client's share behind the lock; the paper's is TC's."""
    shares = tables["shares"]
    figures = {"share of the heavy client behind the lock (%)": ("heavy_percent", "heavy_percent")}
    return beside(shares[shares["scheduler"] == "lock"], paper, ["link_over_lock"], figures)


EXPERIMENT = _pspat.experiment(
    name="pspat-allocation",
    title="shares of a link that the scheduler cannot fill",
    source="PSPAT (Rizzo, Valente, Lettieri, Maffione, 2018), Section 6.5",
    claim="on a link faster than a locked scheduler can serve, weights are lost (40 to 60 instead of 91 to 9 just "
    "10% above it); PSPAT keeps them",
    method="Two greedy clients of weights 10 and 1, packets of 60 bytes, QFQ, a no-op in place of sending. First what "
    "the locked scheduler does on a link without limit, then both on links of 0.5 to 2 times that. A scheduler that "
    "cannot keep up with its link never has two packets to choose from: shares are then those of the lock. TC kept "
    "up to 1.2 Mpps there; the rates here are relative to our lock's.",
    full=Parameters(),
    quick=Parameters(rates=(0.5, 1.1, 2.0), seconds=0.2, rounds=1),
    seconds=(26.0, 4.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(8.0, 4.6),
)
