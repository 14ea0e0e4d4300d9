"""The PSPAT paper's Table 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from .. import drawing
from ..model import Experiment, Tables, Verdict
from . import _pspat
from ._beside import beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run

#: A lock at which users look until they have it, as in a kernel, and one at which they give up their core.
LOCKS = ("spins", "yields")

#: With fewer cores, contention for the lock cannot be distinguished from losing a core while holding it: with two
#: users the paper itself has three quarters of the throughput of one, and a fifth with three.
CORES = 3

#: The lock loses if as many users as there are cores have at most this part of the throughput of one.
LOST = 0.5


@dataclass(frozen=True)
class Parameters(_pspat.Rounds):
    """How it is measured."""

    seconds: float = 0.2
    rounds: int = 5
    users: tuple[int, ...] = (1, 2, 3, 4, 8, 20, 40)
    section_ns: int = 100
    #: Looks at a taken lock, after which a user of the second kind gives up its core.
    patience_looks: int = 100


def measure(run: Run) -> Tables:
    """The total throughput of all users, with either lock."""
    asked: Parameters = run.parameters
    cells = [(users, lock) for users in asked.users for lock in LOCKS]

    def counted(cell: tuple[int, str]) -> tuple[float, int]:
        users, lock = cell
        how = ["--users", users, "--section-ns", asked.section_ns, "--seconds", asked.seconds]
        how += ["--patience", asked.patience_looks] if lock == "yields" else []
        figures = run.instruments.figures("spinlock", *how)
        return figures["sections_per_sec"] / 1e6, figures["cores"]

    rows = []
    for (users, lock), found in zip(cells, run.rounds(cells, counted, asked.rounds, asked.seed)):
        rates = [rate for rate, _ in found]
        rows.append(
            {
                "users": users,
                "lock": lock,
                "cores": found[0][1],
                "mops": float(np.median(rates)),
                "mops_least": min(rates),
                "mops_most": max(rates),
                "us_per_section": users / float(np.median(rates)),
            }
        )
    return {"rates": pd.DataFrame(rows)}


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """Whether the lock loses while each user has a core, and what falls beyond."""
    rates = tables["rates"]
    of = rates.pivot(index="users", columns="lock", values="mops")
    part = of / of.loc[1]
    cores = int(rates["cores"].iloc[0])
    apart, most = int(part.index[part.index <= cores].max()), int(part.index.max())
    kept = float(part.loc[apart, "spins"])
    few = "There are too few cores to tell: what falls beyond them is preemption. A user that loses its core "
    few += "while it holds the lock keeps all others looking in vain; the lock at which users give up their "
    few += "core shows what is left without that."
    return [
        Verdict(
            "the more users a lock has, the less they do in total",
            None if apart < CORES else bool(kept <= LOST),
            f"as many users as there are cores, {CORES} at least, do at most {LOST:g} times what one does alone",
            f"{apart} users with a core each do {kept:.3g} times what one does alone; {most} on {cores} cores "
            f"{part.loc[most, 'spins']:.3g} times, and {part.loc[most, 'yields']:.3g} times with the lock "
            "that yields",
            few if apart < CORES else "Handing a line from core to core costs less here than there.",
        )
    ]


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """The total throughput, over the number of users."""
    axes = figure.subplots()
    rates = tables["rates"]
    for number, lock in enumerate(LOCKS):
        of = rates[rates["lock"] == lock]
        axes.plot(of["users"], of["mops"], **drawing.ours(number))
    axes.plot(paper["users"], paper["mops"], **drawing.papers(0))
    axes.axvline(float(rates["cores"].iloc[0]), color="#333333", linewidth=0.9, linestyle=(0, (1, 2)))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(sorted(set(rates["users"])))
    drawing.plain_numbers(axes, x=True)
    drawing.ones_twos_fives(axes.yaxis)
    axes.set_xlabel("users of the lock")
    axes.set_ylabel("all together (million sections a second)")
    names = ("here, a lock that spins", "here, one that gives up its core")
    handles = [Line2D([], [], label=name, **drawing.ours(number)) for number, name in enumerate(names)]
    handles.append(Line2D([], [], label="the paper (dashed)", **drawing.papers(0)))
    cores = {"color": "#333333", "linestyle": (0, (1, 2))}
    handles.append(Line2D([], [], label="cores here: beyond, users share them", **cores))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """The total throughput of all users over that of one, with a lock that spins."""
    ours = tables["rates"][tables["rates"]["lock"] == "spins"]
    ours, theirs = (
        frame.assign(part=frame["mops"] / frame.loc[frame["users"] == 1, "mops"].iloc[0]) for frame in (ours, paper)
    )
    return beside(ours, theirs, ["users"], {"all together / one alone": ("part", "part")})


EXPERIMENT = Experiment(
    name="pspat-table1",
    title="a critical section of 100 ns under a spinlock",
    source="PSPAT (Rizzo, Valente, Lettieri, Maffione, 2018), Section 2.3, Table 1",
    claim="the more users a lock has, the less they do in total",
    method="Threads, spread over all cores, take the lock, work for 100 ns (a chain of multiplications, timed just "
    "before, which goes on where the last section's ended), count, release. The paper does not say which lock; "
    "here it is test and test-and-set. Its users had a hardware thread each. Where users share a core, one may "
    "lose it inside the section, and all others look in vain until it has it again: a cost of running in user "
    "space, and much larger than that of the cache line. So the same is done with a lock at which users give up "
    "their core after a while, and the claim is judged by as many users as there are cores.",
    full=Parameters(),
    quick=Parameters(users=(1, 2, 4, 40), seconds=0.05, rounds=3),
    seconds=(16.0, 2.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(8.0, 4.8),
    needs_instruments=True,
    cores=2,
)
