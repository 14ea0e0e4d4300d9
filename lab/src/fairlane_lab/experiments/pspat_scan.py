"""The PSPAT paper's Section 3.4: how many mailboxes a step looks at."""

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
from ._pspat import Case

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run

#: The label for all mailboxes.
ALL = 1 << 20

#: A visit of all keeps up if its throughput is this part of that with any other limit.
KEEPS_UP = 0.9


@dataclass(frozen=True)
class Parameters(_pspat.Rounds):
    """How it is measured."""

    rounds: int = 5
    #: All send.
    clients: tuple[int, ...] = (20, 100, 1000)
    #: The most mailboxes that a step looks at; the first is what an arbiter has by default.
    limits: tuple[int, ...] = (6, 32, ALL)
    #: That clients are spread over.
    threads: int = 8


def measure(run: Run) -> Tables:
    """Packets a second and Delta_A of each limit, over the number of clients."""
    asked: Parameters = run.parameters
    cells = [
        Case("pspat", clients, algorithm="qfq+", scan_limit=limit, threads=min(asked.threads, clients))
        for clients in asked.clients
        for limit in asked.limits
    ]
    found = _pspat.rounds(run, cells)
    rows = []
    for case, figures in zip(cells, found):
        mpps = [one["decisions_per_sec"] / 1e6 for one in figures]
        looks = [one["delta_a_ns"]["mean"] / 1000 for one in figures if one["delta_a_ns"]]
        rows.append(
            {
                "clients": case.clients,
                "scan_limit": _words(case.scan_limit),
                "mpps": float(np.median(mpps)),
                "mpps_least": min(mpps),
                "mpps_most": max(mpps),
                "delta_a_us": float(np.median(looks)) if looks else math.nan,
                "delta_a_us_most": max(looks, default=math.nan),
            }
        )
    return {"rates": pd.DataFrame(rows)}


def _words(limit: int | None) -> str:
    return "all" if limit == ALL else str(limit)


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """The cost of visiting all mailboxes, and its benefit."""
    rates = tables["rates"]
    mpps, looks = (rates.pivot(index="clients", columns="scan_limit", values=name) for name in ("mpps", "delta_a_us"))
    part = mpps["all"] / mpps.drop(columns="all").max(axis=1)
    shorter = looks["all"] / looks[rates["scan_limit"].iloc[0]]
    of = ", ".join(f"{value:.2g} with {clients:,}" for clients, value in part.items())
    times = ", ".join(f"{value:.2g} with {clients:,}" for clients, value in shorter.items())
    return [
        Verdict(
            "a step may look at the mailboxes of all active clients before it releases a packet",
            bool(part.min() >= KEEPS_UP),
            f"with every number of clients it carries {KEEPS_UP:g} at least of what it does with the better limit",
            f"{of} clients",
            "A look costs a cache line that its client has just written, and where many send, few packets are found at "
            "each: with so many clients the arbiter spends its time on looks.",
        ),
        Verdict(
            "then packets wait in their mailboxes for less",
            bool(shorter.max() <= 1.0),
            "Delta_A, from one look at a mailbox to the next, is no longer than with the limit by default, with every "
            "number of clients",
            f"{times} clients",
            "A step that looks at all mailboxes takes longer than steps enough for all of them.",
        ),
    ]


def draw(figure: Figure, tables: Tables, _paper: pd.DataFrame) -> None:
    """Rates and Delta_A against clients."""
    rates = tables["rates"]
    limits = list(dict.fromkeys(rates["scan_limit"]))
    columns = (("mpps", "million packets a second"), ("delta_a_us", "Delta_A, from one look to the next (us)"))
    for axes, (column, label) in zip(figure.subplots(1, 2), columns):
        for number, limit in enumerate(limits):
            of = rates[rates["scan_limit"] == limit]
            # Side by side: none hides another.
            axes.plot(of["clients"] * 1.06 ** (number - 1), of[column], **drawing.ours(number))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(sorted(set(rates["clients"])))
        drawing.plain_numbers(axes, x=True)
        drawing.ones_twos_fives(axes.yaxis)
        axes.set_xlabel("clients, all of which send")
        axes.set_ylabel(label)
    names = ["all, as the paper's" if limit == "all" else f"{limit} mailboxes a step" for limit in limits]
    handles = [Line2D([], [], label=name, **drawing.ours(number)) for number, name in enumerate(names)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


EXPERIMENT = _pspat.experiment(
    name="pspat-scan",
    title="what it costs to look at all mailboxes in one step",
    source="PSPAT (Rizzo, Valente, Lettieri, Maffione, 2018), Section 3.4, Fig. 5",
    claim="do_scan empties the mailboxes of all active clients before it releases a packet, so that all packets that "
    "arrived before are in the scheduler",
    method="`fairlane-instruments bench pspat` with QFQ+, packets of 60 bytes and a no-op instead of sending: clients on "
    "eight threads that send as fast as they can, and a step of the arbiter that looks at 6 mailboxes at most (as by "
    "default), at 32, or at all. With a limit the paper's sentence does not hold where more clients send, and Eq. 1 holds "
    "with Delta_A for a round of all of them, which is measured (docs/internals/arbiter.md has the proof). The paper has "
    "no figures of this.",
    full=Parameters(),
    quick=Parameters(clients=(20, 1000), seconds=0.1, rounds=1),
    seconds=(35.0, 3.0),
    measure=measure,
    judge=judge,
    draw=draw,
    size=(10.0, 4.6),
)
