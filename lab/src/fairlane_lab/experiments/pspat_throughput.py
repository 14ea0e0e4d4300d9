"""The PSPAT paper's Figs. 7 and 9."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from .. import drawing, machine
from ..model import Tables, Verdict
from . import _pspat
from ._beside import beside
from ._pspat import Case

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run

#: Fig. 7's with QFQ, Fig. 9's with DRR, as there. The case without scheduler and transmission is no figure.
CURVES = {
    "none-udp": Case("none", 1, transmit="udp"),
    "lock-udp": Case("lock", 1, algorithm="qfq", transmit="udp"),
    "arbiter-udp": Case("pspat", 1, algorithm="qfq", transmit="udp", way="straight"),
    "dispatcher-udp": Case("pspat", 1, algorithm="qfq", transmit="udp", way="dispatchers"),
    "clients-udp": Case("pspat", 1, transmit="udp"),
    "lock-noop": Case("lock", 1),
    "clients-noop": Case("pspat", 1),
}

NAMES = {
    "none-udp": "no scheduler",
    "lock-udp": "lock",
    "arbiter-udp": "PSPAT, the arbiter sends",
    "dispatcher-udp": "PSPAT, a dispatcher sends",
    "clients-udp": "PSPAT, clients send",
}

#: The lock degrades if the most clients have at most this part of its best throughput: in the paper 0.79 on
#: one machine, and below 0.2 on the other.
DEGRADED = 0.9

#: PSPAT keeps its throughput if the most clients have at least this part of its best, as in Fig. 9.
KEPT = 0.85

#: A dispatcher helps by so much; in the paper by a quarter.
HELPS = 1.1


@dataclass(frozen=True)
class Parameters(_pspat.Rounds):
    """How it is measured."""

    clients: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100)
    curves: tuple[str, ...] = tuple(CURVES)


def measure(run: Run) -> Tables:
    """Packets a second of each curve, over the number of clients."""
    asked: Parameters = run.parameters
    cells = [
        (curve, dataclasses.replace(CURVES[curve], clients=clients))
        for curve in asked.curves
        for clients in asked.clients
    ]

    found = _pspat.rounds(run, [case for _, case in cells])
    mpps = [[one["decisions_per_sec"] / 1e6 for one in figures] for figures in found]
    return {
        "rates": pd.DataFrame(
            {
                "curve": curve,
                "algorithm": case.algorithm if case.mode != "none" else "none",
                "clients": case.clients,
                "cores": machine.cores(),
                "mpps": float(np.median(rates)),
                "mpps_least": min(rates),
                "mpps_most": max(rates),
            }
            for (curve, case), rates in zip(cells, mpps)
        )
    }


@dataclass(frozen=True)
class _Curve:
    """A curve in two figures."""

    #: Millions a second with the most clients, and as a part of the best.
    last: float
    kept: float

    @classmethod
    def of(cls, rates: pd.DataFrame, name: str) -> _Curve | None:
        """Of a curve's name, where it was measured."""
        mpps = rates[rates["curve"] == name].sort_values("clients")["mpps"]
        if mpps.empty or not mpps.max() > 0:
            return None
        return cls(float(mpps.iloc[-1]), float(mpps.iloc[-1] / mpps.max()))


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """Where a lock degrades, and whether PSPAT does."""
    rates = tables["rates"]
    cores, most = int(rates["cores"].iloc[0]), int(rates["clients"].max())
    curve = {name: _Curve.of(rates, name) for name in CURVES}
    return [
        verdict
        for verdict in (
            _noop(curve["lock-noop"], curve["clients-noop"], most),
            _udp(curve, most),
            _flat(curve["clients-udp"], most),
            _dispatcher(curve["arbiter-udp"], curve["dispatcher-udp"], cores, most),
        )
        if verdict is not None
    ]


#: The requirements for a lock and for PSPAT.
_ASKED = (
    f"with the most clients the lock has at most {DEGRADED:g} of its best throughput, and PSPAT at least {KEPT:g} "
    "of its own and more than the lock"
)


def _against(lock: _Curve, pspat: _Curve, most: int) -> tuple[bool, str]:
    holds = lock.kept <= DEGRADED and pspat.kept >= KEPT and pspat.last > lock.last
    return holds, (
        f"with {most} clients the lock keeps {lock.kept:.3g} of its best, PSPAT {pspat.kept:.3g}, which is "
        f"{pspat.last / lock.last:.3g} times the lock's"
    )


def _noop(lock: _Curve | None, pspat: _Curve | None, most: int) -> Verdict | None:
    if lock is None or pspat is None:
        return None
    holds, found = _against(lock, pspat, most)
    return Verdict(
        "decisions alone (a no-op for sending): with more clients a lock loses throughput, PSPAT keeps it",
        holds,
        _ASKED,
        found,
        "Clients share cores here, so that few contend at a time.",
    )


def _udp(curve: dict[str, _Curve | None], most: int) -> Verdict | None:
    lock, pspat, alone, decided = (
        curve[name] for name in ("lock-udp", "clients-udp", "none-udp", "lock-noop")
    )
    if lock is None or pspat is None:
        return None
    holds, found = _against(lock, pspat, most)
    # A sender waits for the network stack, and hardly ever for the lock.
    idle = alone is not None and decided is not None and alone.last <= decided.last
    if idle:
        found += (
            f"; without a scheduler {alone.last:.3g} Mpps pass the network stack, and the lock decides "
            f"{decided.last:.3g} M a second"
        )
    return Verdict(
        "UDP: with more clients a lock loses throughput, PSPAT keeps it and has more",
        None if idle else holds,
        f"{_ASKED}; only where the network stack carries more than the lock decides",
        found,
        "The network stack on these cores is the bottleneck, not the lock: nobody waits for it."
        if idle
        else "One core is the arbiter's, and clients send with those that are left.",
    )


def _flat(pspat: _Curve | None, most: int) -> Verdict | None:
    if pspat is None:
        return None
    return Verdict(
        "UDP: PSPAT in user space saturates flat",
        pspat.kept >= KEPT,
        f"with the most clients it has at least {KEPT:g} of its best throughput",
        f"with {most} clients {pspat.kept:.3g} of it, {pspat.last:.3g} Mpps",
        "More threads share the cores that send.",
    )


def _dispatcher(direct: _Curve | None, dispatched: _Curve | None, cores: int, most: int) -> Verdict | None:
    if direct is None or dispatched is None:
        return None
    helps = dispatched.last / direct.last
    return Verdict(
        "UDP: a dispatcher beside the arbiter carries more than an arbiter that sends by itself",
        None if cores < 3 else helps >= HELPS,
        f"with the most clients {HELPS:g} times as much at least, on three cores or more (the paper: 4 against "
        "3.2 Mpps)",
        f"{helps:.3g} times with {most} clients, {dispatched.last:.3g} Mpps, on {cores} cores",
        "All clients have one core, and the dispatcher shares it with them."
        if cores < 3
        else "The dispatcher shares its core with clients.",
    )


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """Rates against clients: with UDP, and with a no-op."""
    udp, noop = figure.subplots(1, 2)
    rates = tables["rates"]
    place = {"lock-noop": 1, "clients-noop": 4, **{name: number for number, name in enumerate(NAMES)}}
    for axes, transmit, title in ((udp, "udp", "UDP (Figs. 7 and 9)"), (noop, "noop", "no-op (Fig. 9)")):
        for name in (name for name in CURVES if name.endswith(transmit)):
            of = rates[rates["curve"] == name]
            axes.plot(of["clients"], of["mpps"], **drawing.ours(place[name]))
            theirs = paper[(paper["curve"] == name) & paper["clients"].notna()]
            # Two of the paper's points are the same.
            aside = 1.15 if name == "dispatcher-udp" else 1.0
            axes.plot(theirs["clients"] * aside, theirs["mpps"], **drawing.papers(place[name]))
        axes.set_title(title, fontsize=9)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(sorted({*rates["clients"], *paper["clients"].dropna()}))
        drawing.plain_numbers(axes, x=True)
        drawing.ones_twos_fives(axes.yaxis)
        axes.set_xlabel("clients")
    udp.set_ylabel("million packets a second")
    noop.set_ylabel("million decisions a second")
    handles = [Line2D([], [], label=name, **drawing.ours(number)) for number, name in enumerate(NAMES.values())]
    plain = {"color": "#333333", "marker": "o"}
    handles.append(Line2D([], [], linestyle="-", label="here (solid)", **plain))
    dashed = {"linestyle": (0, (4, 3)), "markerfacecolor": "white"}
    handles.append(Line2D([], [], label="the paper (dashed)", **dashed, **plain))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """Millions a second, where the text has the number of clients."""
    known = paper.dropna(subset=["clients"]).astype({"clients": int})
    return beside(tables["rates"], known, ["curve", "clients"], {"millions a second": ("mpps", "mpps")})


EXPERIMENT = _pspat.experiment(
    name="pspat-throughput",
    title="packets and decisions a second against the number of clients",
    source="PSPAT (Rizzo, Valente, Lettieri, Maffione, 2018), Section 6.4, Figs. 7 and 9",
    claim="with more clients, a scheduler behind a lock loses throughput and PSPAT keeps it",
    method="`fairlane-instruments bench pspat` with 1 to 100 clients, a thread each, which send packets of 60 bytes as "
    "fast as they can on a link that is never the bottleneck: with UDP to ports of loopback that nobody reads, and with a "
    "no-op in its place. Fig. 7's curves are with QFQ, Fig. 9's with DRR. With PSPAT one core is the arbiter's, and "
    "clients (and the dispatcher) have the others; without it they have all. The lock is ours around the same "
    "algorithms, not Linux' TC: it is fair, as those of kernels are, and of the clients of one core one contends at "
    "a time, as a kernel's thread that holds a lock or waits for it keeps its core. Fig. 7 is of the paper's "
    "in-kernel version, which is faster by what a system call costs. Figs. 8 and 10 "
    "need a network card of many queues, and forty hyperthreads on two sockets, and are not here; they show of a lock and of "
    "PSPAT what these do. Clients that neither ask nor send are no figure: the paper has no such curve.",
    full=Parameters(),
    quick=Parameters(clients=(1, 5, 50), seconds=0.1, rounds=1),
    seconds=(100.0, 8.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(10.5, 5.0),
)
