"""The ALTQ paper's Figs. 8 to 10."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from .. import drawing
from ..model import Experiment, Tables, Verdict
from . import _altq
from ._beside import beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..running import Run


@dataclass(frozen=True)
class Parameters(_altq.Rounds):
    """How it is measured."""

    seconds: float = 3.0
    links_mbit: tuple[float, ...] = (0.128, 10.0, 100.0, 155.0, 1000.0)
    #: The same of slow links, where a class at first spends the burst that a ceiling allows; and as many packets
    #: are sent at least.
    slow_seconds: float = 90.0
    packets: int = 60
    #: The class's part of the link; with 100 it may take all of it.
    shares_percent: tuple[int, ...] = (5, 15, 25, 35, 45, 55, 65, 75, 85, 95, 100)
    ways: tuple[str, ...] = _altq.WAYS
    #: Capacity of the class's queue at its rate, in milliseconds.
    queue_ms: float = 40.0
    #: CBQ's timers, for the paper's flaw; 0 is exact.
    timers_ms: tuple[int, ...] = (0, 1, 10)
    timer_links_mbit: tuple[float, ...] = (0.128, 10.0, 100.0)


#: Bytes of the longest packet that a link is reckoned with, overhead included: a full frame with two VLANs.
LONGEST = 1546


@dataclass(frozen=True)
class Cell:
    """A class that has a part of a link."""

    link_mbit: float
    way: str
    share_percent: int

    def __str__(self) -> str:
        return f"{self.share_percent}% of {self.link_mbit:g} Mbit/s, {self.way}"

    @property
    def mbit(self) -> float:
        """The class's rate."""
        return self.link_mbit * self.share_percent / 100

    @property
    def can_be_capped(self) -> bool:
        """Whether a site takes such a ceiling: not less than a packet a second."""
        return self.mbit * 1e6 >= LONGEST * 8


def site(cell: Cell, queue_ms: float) -> str:
    """The link, with a class that is held to its part."""
    # The class that may borrow has no ceiling, and leaves the other a little to be guaranteed.
    whole = cell.share_percent == 100
    keys = {"rate": _altq.bits(cell.mbit * (0.95 if whole else 1.0))}
    if not whole:
        keys["ceil"] = _altq.bits(cell.mbit)
    packets = _altq.queue_packets(cell.mbit, queue_ms)
    if cell.link_mbit <= _altq.SLOW_MBIT:
        # iperf3's second connection does not wait behind the first, whose queue is longer than its window: data
        # that a loss holds back here for a minute would hide the class's throughput. The burst is as short as a
        # guarantee for both allows: a class of 95% has spent it after 26 s.
        if not whole:
            keys["burst"] = "20kb"
        keys |= {"per": "5-tuple", "flows": {"most": 2}, "algorithm": "qfq+"}
        packets = 1000
    return _altq.site(
        cell.way,
        _altq.link(cell.link_mbit, "qfq+"),
        _altq.leaf_of("measured", **keys, limit={"packets": packets}),
        _altq.leaf_of("rest", default=True),
        _altq.filter_to("measured", protocol="tcp", destination_port=_altq.PORT),
    )


def measure(run: Run) -> Tables:
    """TCP in a class of every part of every link, and what CBQ with a timer would give it."""
    asked: Parameters = run.parameters
    every = itertools.product(asked.links_mbit, asked.ways, asked.shares_percent)
    cells = [cell for cell in itertools.starmap(Cell, every) if cell.can_be_capped]

    def seconds(cell: Cell) -> int:
        is_slow = cell.link_mbit <= _altq.SLOW_MBIT
        return _altq.whole_seconds(asked.slow_seconds if is_slow else asked.seconds, cell.mbit, asked.packets)

    def work(cell: Cell) -> dict:
        flow = _altq.Flow(_altq.PORT, seconds(cell))
        return _altq.tcp(run, site(cell, asked.queue_ms), [flow])[0]

    def row(cell: Cell, found: list[dict]) -> dict:
        on_link = float(np.median([one["on_link_mbit"] for one in found]))
        return {
            "link_mbit": cell.link_mbit,
            "way": cell.way,
            "share_percent": cell.share_percent,
            "tcp_mbit": float(np.median([one["tcp_mbit"] for one in found])),
            "on_link_mbit": on_link,
            "off_percent": (on_link / cell.mbit - 1) * 100,
            # The resolution of the measurement.
            "packet_percent": _altq.packet_percent(cell.mbit, seconds(cell)),
            "retransmitted_segments": float(np.median([one["retransmitted_segments"] for one in found])),
        }

    by_speed = _altq.rounds_by_speed(run, cells, lambda cell: cell.link_mbit, work)
    return {
        "allocated": pd.DataFrame(row(cell, by_speed[cell]) for cell in cells),
        "cbq_with_timer": _with_timer(run),
    }


def _with_timer(run: Run) -> pd.DataFrame:
    asked: Parameters = run.parameters

    def row(cell: tuple[float, int, int]) -> dict:
        link, timer, share = cell
        on_link = _altq.with_timer_mbit(run, link, share, timer)
        return {
            "link_mbit": link,
            "timer_ms": timer,
            "share_percent": share,
            "on_link_mbit": on_link,
            "off_percent": (on_link / (link * share / 100) - 1) * 100,
        }

    cells = [
        (link, timer, share)
        for link in asked.timer_links_mbit
        for timer in asked.timers_ms
        for share in asked.shares_percent
    ]
    return pd.DataFrame(run.each(cells, row))


#: How far a class may be from its part, relative to it, in percent; and where CBQ is called satisfactory.
LINEAR, SATISFACTORY = 2.0, 10.0

#: Which figure of the paper has a link like this.
FIGURES = {
    0.128: ", as the serial line's of Fig. 10",
    10.0: ", as 10baseT's of Fig. 9",
    100.0: ", as 100baseT's of Fig. 8",
    155.0: ", as ATM's of Fig. 8",
}


def judge(tables: Tables, paper: pd.DataFrame) -> list[Verdict]:
    """Link by link; then CBQ with the paper's timers."""
    allocated = tables["allocated"]
    verdicts = [_linear(link, of) for link, of in allocated.groupby("link_mbit")]
    timed = tables["cbq_with_timer"]
    for timer, link in ((10, 0.128), (10, 10.0), (1, 100.0)):
        of = timed[(timed["timer_ms"] == timer) & (timed["link_mbit"] == link)]
        if len(of):
            verdicts.append(_satisfactory(timer, link, of))
    stuck = timed[(timed["timer_ms"] == 10) & (timed["link_mbit"] == 100)].set_index("share_percent")
    stuck = stuck["on_link_mbit"]
    both = paper.set_index("share_percent")["tcp_mbit"].to_frame("theirs").join(stuck, how="inner")
    if len(both):
        off = (both["on_link_mbit"] / both["theirs"] - 1).abs().max()
        verdicts.append(
            Verdict(
                "over 100 Mbit/s a timer of 10 ms holds CBQ to 9.6 Mbit/s, whatever the class's part, up to 55%",
                bool(off <= 0.25),
                "within 25% of it, from 15% to 55%",
                f"{both['on_link_mbit'].min():.1f} to {both['on_link_mbit'].max():.1f} Mbit/s",
                "A burst, and the wait for two ticks after it, are not exactly 16 packets in 20 ms.",
            )
        )
    beyond = stuck[(stuck.index > 55) & (stuck.index < 100)]
    if len(beyond):
        verdicts.append(
            Verdict(
                "beyond 55% packet events help CBQ with that timer",
                None,
                "other packets' events, as those of the paper's kernel",
                f"without any, {beyond.iloc[-1]:.1f} Mbit/s with {beyond.index[-1]}%",
                "What CBQ does with a timer is computed on a clock of its own, where nothing else happens that "
                "would wake it up.",
            )
        )
    return verdicts


def _linear(link: float, of: pd.DataFrame) -> Verdict:
    beyond = of["off_percent"].abs() - of["packet_percent"]
    worst = of.loc[beyond.idxmax()]
    slow = link <= _altq.SLOW_MBIT
    within = f"{LINEAR:g}% of it, and a packet of the time that counts"
    least = of["share_percent"].min()
    span = "over the whole range" if least <= 5 else f"from {least}% on"
    is_packet = f" (a packet is {worst['packet_percent']:.2f}%)"
    return Verdict(
        f"TCP's throughput follows the class's part of {link:g} Mbit/s{FIGURES.get(link, '')}, {span}",
        bool(beyond.max() <= LINEAR),
        f"each class is within {within}, over {' and '.join(of['way'].unique())}",
        f"{worst['off_percent']:+.2f}% with {worst['share_percent']:.0f}% over {worst['way']}{is_packet}",
        "A class at first spends the burst that its ceiling allows, for as long as that takes at what the link has "
        "beyond the ceiling; and TCP begins with a retransmission timer that is shorter than the time of a packet, "
        "and what it sends twice is no payload."
        if slow
        else "What TCP sends again after a loss takes its part of the link, and is no payload.",
    )


def _satisfactory(timer: int, link: float, of: pd.DataFrame) -> Verdict:
    worst = of.loc[of["off_percent"].abs().idxmax()]
    paper = "satisfactory" if timer == 1 else "almost linear"
    return Verdict(
        f"with a timer of {timer} ms CBQ over {link:g} Mbit/s is {paper}",
        bool(abs(worst["off_percent"]) <= SATISFACTORY),
        f"each class is within {SATISFACTORY:g}% of its part, as computed",
        f"{worst['on_link_mbit']:.3g} Mbit/s with {worst['share_percent']:.0f}%, which is {worst['off_percent']:+.1f}%",
        f"16 packets in two ticks are the paper's limit of {16 * 1500 * 8 / (2 * timer) / 1e3:g} Mbit/s, but to send them "
        f"takes {16 * _altq.FRAME * 8 / link / 1e3:.1f} ms of its own, and the wait for a tick comes after that, where only "
        "the timer wakes CBQ up. In the paper's kernel every packet that came did too.",
    )


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """The classes' throughput relative to their share; and our deviation from it, which the first cannot show."""
    whole, off = figure.subplots(1, 2, width_ratios=(1, 1.25))
    _draw_whole(whole, tables["cbq_with_timer"], paper)
    allocated = tables["allocated"]
    curves = list(allocated.groupby(["link_mbit", "way"], sort=True))
    links, shares = (sorted(allocated[name].unique()) for name in ("link_mbit", "share_percent"))
    for place, ((link, way), of) in enumerate(curves):
        # Side by side: none hides another.
        aside = _altq.aside(place, len(curves), 0.8)
        x = [shares.index(share) + aside for share in of["share_percent"]]
        off.plot(x, of["off_percent"], **_altq.look(links.index(link), way))
    off.axhspan(-LINEAR, LINEAR, color="#eeeeee", zorder=0)
    off.axhline(0, color="#333333", linewidth=0.8)
    off.set_xticks(range(len(shares)), [str(share) for share in shares])
    off.grid(axis="x", visible=False)
    off.set_xlabel("class's part of the link (%), links and ways side by side")
    off.set_ylabel("what it had, off its part (%)")
    off.set_title(f"the class tree, off the line on the left; grey: {LINEAR:g}%", fontsize=9)
    names = [f"{link:g} Mbit/s" for link in links]
    _altq.legend(figure, names, sorted(allocated["way"].unique()), False, 7)


def _draw_whole(axes: Axes, timed: pd.DataFrame, paper: pd.DataFrame) -> None:
    fast = timed[timed["link_mbit"] == timed["link_mbit"].max()]
    link = fast["link_mbit"].max()
    axes.plot([0, 100], [0, 100], color="#333333", linewidth=0.8)
    handles = [Line2D([], [], color="#333333", linewidth=0.8, label="linear; ours are on the right")]
    for number, (timer, of) in enumerate(fast.groupby("timer_ms")):
        name = f"CBQ, timer of {timer} ms" if timer else "CBQ, exact times"
        look = {**drawing.ours(number + 4), "linewidth": 0.9}
        axes.plot(of["share_percent"], of["on_link_mbit"] / link * 100, **look)
        handles.append(Line2D([], [], label=f"{name}, {link:g} Mbit/s", **look))
        theirs = paper[(paper["timer_ms"] == timer) & (paper["link_mbit"] == link)]
        if len(theirs):
            look = drawing.papers(number + 4)
            axes.plot(theirs["share_percent"], theirs["tcp_mbit"] / link * 100, **look)
            handles.append(Line2D([], [], label=f"the paper, timer of {timer} ms", **look))
    axes.set_xlabel("class's part of the link (%)")
    axes.set_ylabel("what it had of the link (%)")
    axes.legend(handles=handles, loc="upper left")


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """CBQ with the paper's timer of 10 ms over 100 Mbit/s."""
    keys = ["link_mbit", "timer_ms", "share_percent"]
    theirs = paper.astype({"link_mbit": float})
    return beside(tables["cbq_with_timer"], theirs, keys, {"what the class had (Mbit/s)": ("tcp_mbit", "on_link_mbit")})


EXPERIMENT = Experiment(
    name="altq-allocation",
    title="TCP in a class that has a part of the link",
    source="ALTQ (Cho, 1998), Section 4.3, Figs. 8 to 10",
    claim="TCP's throughput changes almost linearly with the part of the link that its class has; over 100 Mbit/s "
    "it does not, because of a timer of 10 ms, and with one of 1 ms it is satisfactory",
    method=f"{_altq.BED} One class of the tree (QFQ+) with a ceiling at its part of the link; with 100% it has no "
    "ceiling, as the paper's borrows from the root. Over 155 Mbit/s, the paper's ATM, frames are Ethernet's here. "
    "Payload is converted: a full segment has 1448 bytes in 1538 of the link. "
    "CBQ with a timer is computed on a clock of its own: a class that may not borrow, whose packets always wait, and "
    "no other event that would wake it up. A site takes no ceiling of less than a packet a second, as 5% of 128 kbit/s "
    "would be.",
    full=Parameters(),
    quick=Parameters(
        seconds=2.0, slow_seconds=45.0, rounds=1, packets=40, links_mbit=(0.128, 10.0, 100.0), shares_percent=(25, 55, 85),
        ways=("packet",),
    ),
    seconds=(2000.0, 65.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(12.5, 4.8),
    needs_instruments=True,
    network="tcp",
)  # fmt: skip
