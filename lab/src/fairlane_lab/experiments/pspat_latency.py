"""The PSPAT paper's Table 3 and Fig. 11."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fairlane
import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from .. import drawing
from ..model import Tables, Verdict
from . import _pspat
from ._beside import beside
from ._pspat import Case

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..running import Run

DECIDERS = ("lock", "pspat")

PERCENTILES = ("min", "p10", "p50", "p90", "p98", "p99")

#: Of Table 3, and of Fig. 11: bytes of a packet.
LONG, SHORT = 1500, 60

#: The link of Table 3.
RATE = 10_000_000_000

#: A scheduler is saturated if it carries less than this part of the link's rate, though clients are always
#: backlogged.
SUSTAINED = 0.98

#: PSPAT's throughput as a multiple of the lock's, where the claim holds; in the paper 35 on I7.
TIMES = 10.0


@dataclass(frozen=True)
class Parameters(_pspat.Rounds):
    """How it is measured."""

    seconds: float = 1.0
    #: Greedy clients in addition to the victim; all have weight 1.
    greedy: int = 4
    #: Packets a second and weight of the victim.
    victim: tuple[int, int] = (4000, 50)
    #: Links of Fig. 11, in packets of 60 bytes a second.
    packet_rates: tuple[float, ...] = (2e4, 1e5, 5e5, 2e6, 1e7, 4e7)


def _cases(asked: Parameters) -> list[Case]:
    """Table 3's, and then Fig. 11's."""
    links = [(0, LONG, RATE), (asked.greedy, LONG, RATE)]
    links += [(asked.greedy, SHORT, round(packets * SHORT * 8)) for packets in asked.packet_rates]
    return [
        Case(decider, clients, packet_bytes=packet, rate_bps=rate, victim=asked.victim)
        for clients, packet, rate in links
        for decider in DECIDERS
    ]


def bound_us(case: Case, scan_ns: float) -> float:
    """The delay bound of a packet of the victim in microseconds, if the arbiter makes a round every ``scan_ns``
    (Delta_A).

    Eq. 1 with nothing between arbiter and link: packets that may be released by then leave in the next round, so
    that Delta_D is Delta_A; they leave in order, so that the (1 + k) Delta_D of dispatchers that send in parallel do
    not apply. The packet itself takes its time at the victim's own rate. The victim sends so rarely that it never has
    two packets queued.
    """
    assert case.victim is not None
    weights = [case.victim[1]] + [1] * max(case.clients, 1)
    flows = fairlane.flows(weights, case.packet_bytes)
    own = float(fairlane.bounds(case.algorithm, case.rate_bps, flows)["delay_ns"][0])
    return (own + 2 * scan_ns) / 1000


def _row(case: Case, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the rounds; but what must never be exceeded is the worst of all. NaN where no packet of
    the victim's was released."""
    assert case.rate_bps is not None
    link = case.rate_bps / (case.packet_bytes * 8e6)
    carried = [one["decisions_per_sec"] / 1e6 for one in found]
    delays = [one["victim_ns"] for one in found if one["victim_ns"]]
    looks = [one["delta_a_ns"] for one in found if one["delta_a_ns"]]
    row = {
        "scheduler": case.mode,
        "clients": case.clients + 1,
        "packet_bytes": case.packet_bytes,
        "link_mpps": link,
        "carried_mpps": float(np.median(carried)),
        # The victim by itself asks for less than any link has.
        "sustained": case.clients == 0 or float(np.median(carried)) >= SUSTAINED * link,
        "victim_packets": sum(one["victim_packets"] for one in found),
    }
    for name in PERCENTILES:
        row[f"{name}_us"] = _median([one[name] / 1000 for one in delays])
    row["max_us"] = max([one["max"] / 1000 for one in delays], default=math.nan)
    scans = [one["mean"] for one in looks] or [math.nan]
    longest = [one["max"] for one in looks] or [math.nan]
    row["delta_a_us"] = _median([scan / 1000 for scan in scans])
    row["bound_us"] = _median([bound_us(case, scan) for scan in scans])
    row["longest_bound_us"] = max(bound_us(case, scan) for scan in longest)
    return row


def _median(of: Sequence[float]) -> float:
    return float(np.median(of)) if len(of) else math.nan


def measure(run: Run) -> Tables:
    """The victim's delays behind either, with the bound of Eq. 1 where there is one: nothing bounds how long
    one waits for a lock."""
    asked: Parameters = run.parameters
    cases = _cases(asked)
    found = _pspat.rounds(run, cases)
    return {"delays": pd.DataFrame(_row(case, of) for case, of in zip(cases, found))}


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """Delays and bounds, where the arbiter sustains the link; and the rate that each scheduler sustains."""
    delays = tables["delays"]
    bounded = delays[delays["bound_us"].notna() & delays["p99_us"].notna()]
    within = bounded[bounded["sustained"]]
    saturated = bounded[~bounded["sustained"]]
    usual = (within["p99_us"] / within["bound_us"]).max()
    longest = (within["max_us"] / within["longest_bound_us"]).max()
    found = "in no run the arbiter sustained the link"
    if len(within):
        found = (
            f"in {len(within)} of {len(bounded)} runs the arbiter sustained the link; there the 99th percentile is at "
            f"most {usual:.3g} of the bound, and the longest delay {longest:.3g}"
        )
    found += "".join(
        f"; saturated: {run.carried_mpps:.3g} of {run.link_mpps:.3g} Mpps were carried, where the 99th percentile is "
        f"{run.p99_us / run.bound_us:.3g} of the bound"
        for run in saturated.itertuples()
    )
    short = delays[delays["packet_bytes"] == SHORT]
    most = short.groupby("scheduler")["carried_mpps"].max()
    times = float(most.get("pspat", math.nan) / most.get("lock", math.nan))
    return [
        Verdict(
            "the victim's delay stays within the bound of Eq. 1 while the arbiter sustains the link",
            bool(usual <= 1.0 and longest <= 1.0) if len(within) else None,
            f"in every PSPAT run that carries {SUSTAINED:.0%} of what the link could (Eq. 1 assumes that the "
            "arbiter sustains it) 99% of the victim's packets are within the bound with the mean Delta_A, and all "
            "within it with the longest",
            found,
            "Where the arbiter is slower than the link, Eq. 1 says nothing."
            if not len(within)
            else "The mean of Delta_A is over all looks: a packet in a round that was held up waits for longer.",
        ),
        Verdict(
            "PSPAT saturates at rates far above those of a lock",
            bool(times >= TIMES) if not math.isnan(times) else None,
            f"with packets of {SHORT} bytes the most that it carries is {TIMES:g} times the lock's at least",
            f"{most.get('pspat', math.nan):.3g} against {most.get('lock', math.nan):.3g} Mpps, {times:.3g} times",
            "Clients share cores here, so that few contend at a time; or no link was fast enough to saturate "
            "PSPAT.",
        ),
    ]


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """Fig. 11 and Table 3."""
    left, right = figure.subplots(1, 2)
    _rates(left, tables["delays"], paper)
    _percentiles(right, tables["delays"], paper)
    names = ("lock (the paper: TC)", "PSPAT")
    handles = [
        Line2D([], [], label=f"{name}, among greedy clients", **drawing.ours(number))
        for number, name in enumerate(names)
    ]
    handles += [
        Line2D([], [], label=f"{name}, alone", **drawing.ours(number + 2)) for number, name in enumerate(names)
    ]
    dark = {"color": "#333333"}
    handles += [
        Line2D([], [], linestyle=(0, (1, 1)), marker="_", label="bound of Eq. 1 (dotted)", **dark),
        Line2D([], [], linestyle="none", marker="x", markersize=9, label="saturated", **dark),
        Line2D([], [], linestyle=(0, (5, 2, 1, 2)), label="saturates in the paper", **dark),
        Line2D([], [], label="the paper (dashed)", **{**drawing.papers(0), **dark}),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


def _rates(axes: Axes, delays: pd.DataFrame, paper: pd.DataFrame) -> None:
    short = delays[delays["packet_bytes"] == SHORT]
    for number, decider in enumerate(DECIDERS):
        of = short[short["scheduler"] == decider]
        axes.plot(of["link_mpps"], of["p98_us"], **drawing.ours(number))
        lost = of[~of["sustained"]]
        color = drawing.style(number)["color"]
        axes.plot(lost["link_mpps"], lost["p98_us"], linestyle="none", marker="x", markersize=10, color=color)
        turns = paper[(paper["figure"] == "Fig. 11") & (paper["configuration"] == ("TC", "PSPAT")[number])]
        axes.axvline(float(turns["saturates_mpps"].iloc[0]), color=color, linewidth=0.9, linestyle=(0, (5, 2, 1, 2)))
    of = short[short["bound_us"].notna()]
    dotted = {**drawing.ours(1), "linestyle": (0, (1, 1)), "marker": "_"}
    axes.plot(of["link_mpps"], of["bound_us"], **dotted)
    axes.set_title("Fig. 11: packets of 60 bytes", fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    drawing.plain_numbers(axes, x=True, y=True)
    axes.set_xlabel("rate of the link (million packets a second)")
    axes.set_ylabel("98th percentile of the victim's delay (us)")


def _percentiles(axes: Axes, delays: pd.DataFrame, paper: pd.DataFrame) -> None:
    columns = [f"{name}_us" for name in PERCENTILES]
    places = range(len(columns))
    long = delays[delays["packet_bytes"] == LONG]
    alone = long["clients"] == 1
    table = paper[paper["figure"] == "Table 3"]
    for number, decider in enumerate(DECIDERS):
        of = long["scheduler"] == decider
        theirs = table[table["configuration"] == ("TC", "PSPAT")[number]]
        for among, shift in ((True, 0), (False, 2)):
            for row in long[of & (alone != among)][columns].to_numpy():
                axes.plot(places, row, **drawing.ours(number + shift))
            for row in theirs[(theirs["clients"] > 1) == among][columns].to_numpy():
                axes.plot(places, row, **drawing.papers(number + shift))
    axes.set_title("Table 3: packets of 1500 bytes at 10 Gbit/s", fontsize=9)
    axes.set_yscale("log")
    drawing.plain_numbers(axes, y=True)
    axes.set_xticks(list(places), ["min", "10%", "50%", "90%", "98%", "99%"])
    axes.set_xlabel("percentile")
    axes.set_ylabel("the victim's delay (us)")


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """Table 3."""
    delays = tables["delays"]
    ours = delays[delays["packet_bytes"] == LONG].assign(
        configuration=lambda of: of["scheduler"].map({"lock": "TC", "pspat": "PSPAT"})
    )
    figures = {f"{name} (us)": (f"{name}_us", f"{name}_us") for name in PERCENTILES}
    return beside(ours, paper[paper["figure"] == "Table 3"], ["configuration", "clients"], figures)


EXPERIMENT = _pspat.experiment(
    name="pspat-latency",
    title="delay of a client that sends little, among greedy ones",
    source="PSPAT (Rizzo, Valente, Lettieri, Maffione, 2018), Section 6.6, Table 3 and Fig. 11",
    claim="PSPAT's delay stays within the bound of Eq. 1 under any load, and it saturates at rates far above TC's",
    method="A victim sends 4000 packets a second with weight 50, four others as fast as they can with weight 1; DRR. "
    "First as in Table 3 (1500 bytes, 10 Gbit/s, alone and among the others), then as in Fig. 11 (60 bytes, links "
    "from 20 thousand packets a second to more than can be scheduled). A delay is from the push of a packet to its "
    "release to the link; the paper's ends at a receiver, behind a network card in Table 3 and loopback in Fig. 11, "
    "some microseconds later. Nobody stands between arbiter and link, so that Delta_D is Delta_A and nothing is "
    "reordered: the bound is T-WFI_SA + 2 Delta_A and the packet itself at the victim's rate, with Delta_A, the time "
    "between two looks at a mailbox, as it was in the same run. Eq. 1 assumes that the arbiter sustains the link: "
    "what is carried is measured, and runs that carry less are left out of the verdict. Victim and greedy clients "
    "share a core on two, which delays the victim's pushes, not its packets. With the lock, clients of one core take "
    "turns, as in a kernel, and the victim has the next one; but who holds the lock in user space may lose its core, "
    "and the victim waits for slices of the system's scheduler.",
    full=Parameters(),
    quick=Parameters(packet_rates=(1e5, 2e6, 4e7), seconds=0.2, rounds=1),
    seconds=(60.0, 6.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(10.5, 5.2),
)
