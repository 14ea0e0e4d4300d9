"""The ALTQ paper's Tables 1 to 3."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..model import Experiment, Tables, Verdict
from . import _altq
from ._beside import beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..running import Run

#: Those that schedule, in the order of Table 3.
DISCIPLINES = ("fifo", "red", "fair-queueing", "cbq", "cbq-red")

NAMES = {
    "kernel": "kernel's bridge",
    "unshaped": "no scheduler",
    "fifo": "FIFO",
    "red": "RED",
    "fair-queueing": "fair queueing (QFQ+)",
    "cbq": "CBQ",
    "cbq-red": "CBQ+RED",
}

#: A link that is never the bottleneck, in Mbit/s.
UNLIMITED = 100_000.0

#: The paper's links that stand for ours, by Mbit/s.
THEIRS = {"10baseT": 10.0, "100baseT": 100.0, "ATM": 155.0, "loopback, MTU 1500": math.inf}

#: Capacity of the queue of a bottleneck link, in milliseconds.
QUEUE_MS = 40


@dataclass(frozen=True)
class Parameters(_altq.Rounds):
    """How it is measured."""

    #: Links that are the bottleneck; one without a limit is measured too.
    links_mbit: tuple[float, ...] = (0.128, 10.0, 100.0, 155.0, 1000.0)
    #: As many packets are sent at least in a measurement of TCP.
    packets: int = 250
    #: Bytes of requests and replies.
    round_trips: tuple[tuple[int, int], ...] = ((1, 1), (64, 64), (1024, 64), (8192, 64))
    ways: tuple[str, ...] = _altq.WAYS


@dataclass(frozen=True)
class Cell:
    """A measurement: TCP over a link, infinitely fast if it is no bottleneck, or round trips."""

    discipline: str
    #: Of the daemon; the kernel's bridge has none.
    way: str
    link_mbit: float = math.inf
    is_latency: bool = False

    def __str__(self) -> str:
        return f"{self.discipline}, {self.way}"

    @property
    def site(self) -> str | None:
        """The daemon's."""
        return None if self.discipline == "kernel" else site(self.discipline, self.way, self.link_mbit)


def site(discipline: str, way: str, link_mbit: float) -> str:
    """A link to the receiver that is scheduled so, and one back that is the same for all: a site shapes one
    direction at least."""
    back = _altq.table("link", name="down", to="inside", rate=_altq.bits(UNLIMITED))
    if discipline == "unshaped":
        return _altq.site(way, back)
    limited = math.isfinite(link_mbit)
    mbit = link_mbit if limited else UNLIMITED
    queue = {"limit": {"packets": _altq.queue_packets(mbit, QUEUE_MS)}} if limited else {}
    if discipline.endswith("red"):
        # Thresholds of 5 and 15 ms, within reason, and at least the usual ones.
        least = int(min(max(mbit * 1e3 * 5 / 8 / _altq.FRAME, 5), 1000))
        red = {"kind": "red", "min": least, "max": 3 * least}
        queue = {"queue": red, "limit": {"packets": 9 * least}}
    if not discipline.startswith("cbq"):
        # As the paper's WFQ: a queue for each flow.
        flows = {"per": "5-tuple", "algorithm": "qfq+"} if discipline == "fair-queueing" else {}
        algorithm = "qfq+" if discipline == "fair-queueing" else "fifo"
        only = _altq.leaf_of("all", default=True, **flows, **queue)
        return _altq.site(way, back, _altq.link(mbit, algorithm), only)
    # Three classes, as in the paper; each may use bandwidth that the others leave.
    classes = [
        _altq.leaf_of(name, rate=_altq.bits(mbit * part), borrow=True, **queue, **more)
        for name, part, more in (
            ("bulk", 0.5, {}),
            ("interactive", 0.3, {}),
            ("rest", 0.15, {"default": True}),
        )
    ]
    filters = (
        _altq.filter_to("bulk", protocol="tcp", destination_port=_altq.PORT),
        _altq.filter_to("interactive", protocol="udp"),
    )
    return _altq.site(way, back, _altq.link(mbit, "cbq"), *classes, *filters)


def measure(run: Run) -> Tables:
    """TCP over every link, and round trips of every size, with each discipline."""
    asked: Parameters = run.parameters
    subjects = [("kernel", "kernel")]
    subjects += [(name, way) for way in asked.ways for name in ("unshaped", *DISCIPLINES)]
    cells = [Cell(*subject, is_latency=True) for subject in subjects]
    cells += [Cell(*subject) for subject in subjects]
    cells += [
        Cell(name, way, mbit)
        for name, way in subjects
        if name in DISCIPLINES
        for mbit in asked.links_mbit
    ]

    def work(cell: Cell) -> list[float]:
        if cell.is_latency:
            return _altq.round_trips_us(run, cell.site, asked.round_trips, asked.seconds)
        seconds = _altq.whole_seconds(asked.seconds, cell.link_mbit, asked.packets)
        flow = _altq.Flow(_altq.PORT, seconds)
        return [_altq.tcp(run, cell.site, [flow])[0]["tcp_mbit"]]

    found = _altq.rounds_by_speed(run, cells, lambda cell: cell.link_mbit, work)
    return {"tcp": _tcp(asked, found), "round_trips": _round_trips(asked, found)}


def _tcp(asked: Parameters, found: dict[Cell, list[list[float]]]) -> pd.DataFrame:
    def row(cell: Cell, figures: list[list[float]]) -> dict:
        mbit = [figure for (figure,) in figures]
        seconds = _altq.whole_seconds(asked.seconds, cell.link_mbit, asked.packets)
        return {
            "discipline": cell.discipline,
            "way": cell.way,
            "link_mbit": cell.link_mbit,
            "tcp_mbit": float(np.median(mbit)),
            "tcp_mbit_least": min(mbit),
            "tcp_mbit_most": max(mbit),
            # The resolution of the measurement.
            "packet_percent": _altq.packet_percent(cell.link_mbit, seconds),
        }

    frame = pd.DataFrame(row(cell, figures) for cell, figures in found.items() if not cell.is_latency)
    fifo = frame[frame["discipline"] == "fifo"][["way", "link_mbit", "tcp_mbit"]]
    both = frame.merge(fifo, how="left", on=["way", "link_mbit"], suffixes=("", "_of_fifo"))
    part = both["tcp_mbit"] / both.pop("tcp_mbit_of_fifo") * 100
    return both.assign(of_fifo_percent=part).sort_values("link_mbit", kind="stable", ignore_index=True)


def _round_trips(asked: Parameters, found: dict[Cell, list[list[float]]]) -> pd.DataFrame:
    rows = [
        {
            "discipline": cell.discipline,
            "way": cell.way,
            "request_bytes": request,
            "reply_bytes": reply,
            # Which core runs whom makes it longer, nothing makes it shorter.
            "us": min(figure[place] for figure in figures),
            "us_most": max(figure[place] for figure in figures),
        }
        for cell, figures in found.items()
        if cell.is_latency
        for place, (request, reply) in enumerate(asked.round_trips)
    ]
    frame = pd.DataFrame(rows)
    by = ["way", "request_bytes", "reply_bytes"]
    base = frame[frame["discipline"] == "unshaped"][[*by, "us"]]
    both = frame.merge(base, how="left", on=by, suffixes=("", "_unshaped"))
    return both.assign(added_us=both["us"] - both.pop("us_unshaped"))


#: The required part of FIFO's throughput, in percent.
KEPT = 98.0


def judge(tables: Tables, paper: pd.DataFrame) -> list[Verdict]:
    """Throughput where the link is the bottleneck and where it is not; latency by size and discipline."""
    return [
        *_of_throughput(tables["tcp"], paper),
        *_of_latency(tables["round_trips"], paper),
    ]


def _of_throughput(tcp: pd.DataFrame, paper: pd.DataFrame) -> list[Verdict]:
    scheduled = tcp[tcp["discipline"].isin(DISCIPLINES)]
    limited = scheduled[np.isfinite(scheduled["link_mbit"])]
    short = KEPT - limited["packet_percent"] - limited["of_fifo_percent"]
    worst = limited.loc[short.idxmax()]
    free = scheduled[~np.isfinite(scheduled["link_mbit"]) & scheduled["discipline"].str.startswith("cbq")]
    least = free.loc[free["of_fifo_percent"].idxmin()]
    theirs = paper[paper["link"] == "loopback, MTU 1500"].set_index("discipline")["tcp_mbit"]
    allowed = theirs["cbq"] / theirs["fifo"] * 100
    base = scheduled[~np.isfinite(scheduled["link_mbit"]) & (scheduled["discipline"] == "fifo")]
    own = (base["tcp_mbit_least"] / base["tcp_mbit_most"] * 100).min()
    return [
        Verdict(
            "scheduling does not affect the throughput where the link is the bottleneck",
            bool(short.max() <= 0),
            f"on every limited link each discipline has {KEPT:g}% of FIFO's throughput at least, or a packet "
            "less than that in the time that counts",
            f"nearest to that is {NAMES[worst['discipline']]} over {worst['way']} at {worst['link_mbit']:g} Mbit/s "
            f"with {worst['of_fifo_percent']:.2f}% (a packet is {worst['packet_percent']:.2f}%)",
            "A queue that drops early, or a class that stops, leaves the link idle where TCP has nothing more "
            "to send just then; on a slow link each packet is a large part of what is counted.",
        ),
        Verdict(
            "where the processor is the bottleneck CBQ takes up to 22.6% of the throughput (loopback, MTU 1500)",
            None if own < allowed else bool(least["of_fifo_percent"] >= allowed),
            f"without a limit CBQ and CBQ+RED have {allowed:.1f}% of FIFO's throughput at least, the paper's, where "
            "FIFO's own least is as much of its most",
            f"{least['of_fifo_percent']:.1f}% at the least ({NAMES[least['discipline']]} over {least['way']}), FIFO's own "
            f"{own:.1f}%",
            "Sender, daemon and receiver share this machine's cores, and which core runs whom changes from "
            "run to run: tcp.csv has the least and the most of FIFO too.",
        ),
    ]


def _of_latency(trips: pd.DataFrame, paper: pd.DataFrame) -> list[Verdict]:
    theirs = paper[paper["table"] == 3].set_index("discipline")["added_us"]
    size = trips[(trips["request_bytes"] == 64) & trips["discipline"].isin(DISCIPLINES)]
    most = size.loc[size["added_us"].idxmax()]
    by = ["way", "request_bytes", "reply_bytes"]
    cbq, fifo = (trips[trips["discipline"] == name].set_index(by) for name in ("cbq", "fifo"))
    more = (cbq["us"] - fifo["us"]).groupby(level="way").agg(lambda of: of.max() - of.min())
    allowed = 2.9
    spread = float(more.max())
    # Nothing is faster for being scheduled.
    daemons = trips["added_us"].dropna()
    unsure = float(max((fifo["us_most"] - fifo["us"]).median(), -daemons.min()))
    noise = (
        f"Round trips with the same scheduler, or with one and without, differ by {unsure:.1f} us the wrong way: "
        "which core runs whom decides."
    )
    return [
        Verdict(
            "a discipline adds microseconds to a round trip (11.97 us at most, CBQ+RED)",
            None if unsure > allowed else bool(most["added_us"] <= theirs["cbq-red"]),
            f"at 64 bytes none adds more than {theirs['cbq-red']:g} us to forwarding without a scheduler, where "
            f"round trips can be told apart by {allowed:g} us",
            f"{most['added_us']:.2f} us at most ({NAMES[most['discipline']]} over {most['way']}), within {unsure:.1f} us",
            noise
            if unsure > allowed
            else "Which core runs whom makes a difference too: round_trips.csv has the least and the most of all rounds.",
        ),
        Verdict(
            "what CBQ adds is almost constant whatever the size of requests",
            None if unsure > allowed else bool(spread <= allowed),
            f"CBQ's round trips less FIFO's differ by {allowed:g} us at most between sizes, as the paper's do (9.0 to "
            "11.9 us), where round trips can be told apart by that",
            f"they differ by {spread:.2f} us, within {unsure:.1f} us",
            noise
            if unsure > allowed
            else "A request of 8192 bytes is six frames here, each of which is scheduled; over the paper's ATM "
            "(MTU 9180) it is one.",
        ),
    ]


def _categories(axes: Axes, labels: list[str], ylabel: str) -> None:
    axes.set_xticks(range(len(labels)), labels)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(ylabel)


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """Throughput relative to FIFO's by link, the latency that each discipline adds, and CBQ's by size."""
    throughput, added, by_size = figure.subplots(1, 3, width_ratios=(1.5, 1, 1))
    ways = list(dict.fromkeys(way for way in tables["tcp"]["way"] if way != "kernel"))
    _draw_throughput(throughput, tables["tcp"], paper, ways)
    trips = tables["round_trips"]
    theirs = paper[paper["table"] == 3].set_index("discipline")["added_us"]
    for number, name in enumerate(DISCIPLINES):
        for place, way in enumerate(ways):
            of = trips[(trips["discipline"] == name) & (trips["way"] == way) & (trips["request_bytes"] == 64)]
            added.plot([number + _altq.aside(place, len(ways) + 1)] * len(of), of["added_us"], **_altq.look(number, way))
        added.plot([number + _altq.aside(len(ways), len(ways) + 1)], [theirs[name]], **_altq.hollow(number))
    _categories(added, ["FIFO", "RED", "FQ", "CBQ", "CBQ+\nRED"], "added to a round trip of 64 bytes (us)")
    _draw_sizes(by_size, trips, paper, ways)
    _altq.legend(figure, [NAMES[name] for name in DISCIPLINES], ways, True, 8)


def _draw_throughput(axes: Axes, tcp: pd.DataFrame, paper: pd.DataFrame, ways: list[str]) -> None:
    links = sorted(tcp[tcp["discipline"] == "fifo"]["link_mbit"].unique())
    others = [name for name in DISCIPLINES if name != "fifo"]
    curves = [(name, way) for name in others for way in ways]
    for place, (name, way) in enumerate(curves):
        of = tcp[(tcp["discipline"] == name) & (tcp["way"] == way)]
        x = [links.index(mbit) + _altq.aside(place, len(curves) + 1) for mbit in of["link_mbit"]]
        axes.plot(x, of["of_fifo_percent"], **_altq.look(DISCIPLINES.index(name), way))
    theirs = paper[(paper["table"] == 1)].pivot(index="link", columns="discipline", values="tcp_mbit")
    part = theirs["cbq"] / theirs["fifo"] * 100
    for name, mbit in THEIRS.items():
        if mbit in links:
            x = links.index(mbit) + _altq.aside(len(curves), len(curves) + 1)
            axes.plot([x], [part[name]], **_altq.hollow(DISCIPLINES.index("cbq")))
    axes.axhline(100, color="#333333", linewidth=0.8)
    labels = ["no limit" if math.isinf(mbit) else f"{mbit:g}" for mbit in links]
    _categories(axes, labels, "TCP's throughput (% of FIFO's)")
    axes.set_xlabel("link (Mbit/s)")


def _draw_sizes(axes: Axes, trips: pd.DataFrame, paper: pd.DataFrame, ways: list[str]) -> None:
    by = ["request_bytes", "reply_bytes"]
    sizes = list(dict.fromkeys(trips[by].itertuples(index=False, name=None)))
    number = DISCIPLINES.index("cbq")

    def beyond_fifo(frame: pd.DataFrame, column: str) -> list[tuple[int, float]]:
        cbq, fifo = (frame[frame["discipline"] == name].set_index(by)[column] for name in ("cbq", "fifo"))
        return [(sizes.index(size), more) for size, more in (cbq - fifo).items() if size in sizes]

    for place, way in enumerate(ways):
        points = beyond_fifo(trips[trips["way"] == way], "us")
        x = [category + _altq.aside(place, len(ways) + 1) for category, _ in points]
        axes.plot(x, [more for _, more in points], **_altq.look(number, way))
    for link, note in (("ATM", 0.12), ("10baseT", 0.24)):
        theirs = paper[(paper["table"] == 2) & (paper["link"] == link)]
        points = beyond_fifo(theirs.astype({name: int for name in by}), "round_trip_us")
        x = [category + note for category, _ in points]
        axes.plot(x, [more for _, more in points], **_altq.hollow(number))
    axes.axhline(0, color="#333333", linewidth=0.8)
    _categories(axes, [f"{request}\n{reply}" for request, reply in sizes], "CBQ's round trip less FIFO's (us)")
    axes.set_xlabel("bytes of request and reply")


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """CBQ's throughput over FIFO's, and what disciplines add to a round trip of 64 bytes."""
    first = paper[(paper["table"] == 1) & paper["link"].isin(THEIRS)]
    wide = first.pivot(index="link", columns="discipline", values="tcp_mbit")
    part = (wide["cbq"] / wide["fifo"] * 100).rename("percent").reset_index()
    part = part.assign(link_mbit=part["link"].map(THEIRS), discipline="cbq")
    tcp, trips = tables["tcp"], tables["round_trips"]
    trips = trips[trips["request_bytes"] == 64]
    figures = [
        (tcp, part, ["discipline", "link_mbit"], {"TCP's throughput (% of FIFO's)": ("percent", "of_fifo_percent")}),
        (trips, paper[paper["table"] == 3], ["discipline"], {"added to a round trip of 64 bytes (us)": ("added_us", "added_us")}),
    ]
    found = [
        beside(frame[frame["way"] == way], theirs, keys, columns).assign(way=way)
        for frame, theirs, keys, columns in figures
        for way in frame["way"].unique()
        if way != "kernel"
    ]
    return pd.concat(found, ignore_index=True)[["discipline", "way", "link_mbit", "figure", "paper", "here"]]


EXPERIMENT = Experiment(
    name="altq-overhead",
    title="what scheduling costs in throughput and in latency",
    source="ALTQ (Cho, 1998), Section 4.2, Tables 1 to 3",
    claim="CBQ does not affect throughput where the link is the bottleneck, and adds some 10 us to a round trip, "
    "whatever its size; other disciplines add less",
    method=f"{_altq.BED} TCP over links of 128 kbit/s to 1 Gbit/s and over one without a limit, and UDP requests "
    "and replies one at a time (the least of all passes' medians), with FIFO, RED, a queue for each flow, CBQ of "
    "three classes, and CBQ with RED; beside them forwarding without a scheduler, which is the base as the "
    "kernel without ALTQ was in the paper, and the kernel's bridge. 155 Mbit/s is the paper's ATM, with frames of "
    "1500 bytes in place of 9180. Requests of 8192 bytes go in six frames. "
    "Replies pass a link without a limit in every case.",
    full=Parameters(),
    quick=Parameters(
        seconds=1.0, rounds=1, packets=50, links_mbit=(0.128, 10.0, 100.0), ways=("packet",)
    ),
    seconds=(800.0, 45.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(12.5, 4.8),
    needs_instruments=True,
    network="tcp",
)
