"""The ALTQ paper's Fig. 7."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .. import drawing
from ..draws import SplitMix64
from ..model import Experiment, Tables, Verdict
from . import _altq

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..running import Run

#: The conditions of filters: no destination address, or one and a port, which the paper hashes.
KINDS = ("wildcard", "fixed")

#: The search: our classifier, or one filter after the other as in the paper's wildcard list.
SEARCHES = {"ours": "our classifier", "one-by-one": "one after the other"}

#: The repeated elements in the daemon: filters, or classes with a filter each.
MANY = ("filters", "classes")

#: Bytes of request and reply, as in the paper.
SIZE = (64, 64)


@dataclass(frozen=True)
class Parameters(_altq.Rounds):
    """How it is measured."""

    seconds: float = 1.0
    #: Filters in the classifier by itself.
    filters: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000, 10_000)
    #: Filters, or classes, in the daemon.
    daemon: tuple[int, ...] = (10, 100, 1000, 10_000)


def drawn(kind: str, count: int, seed: int) -> list[dict[str, str]]:
    """This number of filters, none of which matches traffic between hosts in 10.0.0.0/8: sources or destinations
    in 172.16.0.0/12, ports and ranges of them."""
    random = SplitMix64(seed)

    def ports(most: int, more: int) -> str:
        first = random.between(1, most)
        return f"{first}-{first + more}"

    def one() -> dict[str, str]:
        protocol = ("tcp", "udp")[random.below(2)]
        host = 0xAC10_0000 | random.below(1 << 20)
        if kind == "fixed":
            return {
                "destination": f"{_dotted(host)}/32",
                "destination_port": ports(65_534, 0),
                "protocol": protocol,
            }
        length = (16, 20, 24, 32)[random.below(4)]
        network = host & (0xFFFF_FFFF << (32 - length))
        return {
            "source": f"{_dotted(network)}/{length}",
            "destination_port": ports(60_000, (0, 0, 100)[random.below(3)]),
            "protocol": protocol,
        }

    return [one() for _ in range(count)]


def _dotted(address: int) -> str:
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))


def site(filters: list[dict[str, str]], many: str = "filters") -> str:
    """A link that is never the bottleneck, with these filters for one class, or a class for each, in addition to
    the default class of unmatched packets."""
    classes = len(filters) if many == "classes" else 1
    return _altq.site(
        "packet",
        _altq.link(100_000.0, "qfq+"),
        _altq.leaf_of("rest", default=True),
        *(_altq.leaf_of(f"class-{number}") for number in range(classes)),
        *(_altq.filter_to(f"class-{number % classes}", **one) for number, one in enumerate(filters)),
    )


def measure(run: Run) -> Tables:
    """The classifier by itself, and round trips through the daemon."""
    asked: Parameters = run.parameters
    alone = [(kind, search, count) for kind in KINDS for search in SEARCHES for count in asked.filters]
    through = [(many, count) for many in MANY for count in asked.daemon]

    def classified(cell: tuple[str, str, int]) -> float:
        kind, search, count = cell
        return _altq.classify_ns(run, site(drawn(kind, count, asked.seed)), search, asked.seconds)

    def passed(cell: tuple[str, int]) -> float:
        many, count = cell
        text = site(drawn("wildcard", count, asked.seed), many)
        return _altq.round_trips_us(run, text, [SIZE], asked.seconds)[0]

    return {
        "classifier": pd.DataFrame(
            {
                "kind": kind,
                "search": search,
                "filters": count,
                "ns": float(np.median(ns)),
                "ns_least": min(ns),
                "ns_most": max(ns),
            }
            for (kind, search, count), ns in zip(alone, run.rounds(alone, classified, asked.rounds, asked.seed))
        ),
        "round_trips": pd.DataFrame(
            # Each round has a daemon of its own: which core runs whom makes a round trip longer, nothing
            # makes it shorter.
            {"many": many, "number": count, "us": min(us), "us_median": float(np.median(us)), "us_most": max(us)}
            for (many, count), us in zip(through, run.rounds(through, passed, asked.rounds, asked.seed))
        ),
    }


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """The costs that grow, and those that need not."""
    frame = tables["classifier"]
    by = {
        search: frame[frame["search"] == search].pivot(index="filters", columns="kind", values="ns")
        for search in SEARCHES
    }
    linear = by["one-by-one"].loc[lambda of: of.index >= min(100, of.index.max()), "wildcard"]
    slope = (
        float(np.polyfit(np.log(linear.index.to_numpy(float)), np.log(linear), 1)[0])
        if len(linear) > 1
        else float("nan")
    )
    ours, walked = by["ours"], by["one-by-one"]
    most = ours.index.max()
    growth = ours.iloc[-1] / ours.iloc[0]
    times = (walked.iloc[-1] / ours.iloc[-1]).min()
    trips = tables["round_trips"]
    of_classes = trips[trips["many"] == "classes"].set_index("number")["us"]
    highest = of_classes.idxmax()
    spread = (trips["us_most"] / trips["us"]).max()
    return [
        Verdict(
            "the overhead of a packet grows linearly with wildcard filters that are tried one after the other",
            None if np.isnan(slope) else bool(0.8 <= slope <= 1.25),
            "from 100 filters on a straight line of slope 0.8 to 1.25 over both logarithms",
            f"a slope of {slope:.2f}",
            "There is only one number of filters from 100 on."
            if np.isnan(slope)
            else "So many filters do not fit into the processor's caches any more.",
        ),
        Verdict(
            "a classifier could be implemented more efficiently",
            bool(growth.max() <= 4.0 and times >= 10.0),
            f"with {most:,} filters of either kind ours takes at most 4 times what it does with the fewest, and a "
            "tenth at most of what one after the other takes",
            f"{growth.max():.2f} times; one after the other takes {times:.0f} times ours at least "
            f"({ours.iloc[-1].max():.1f} ns)",
            "The classifier looks into a table for each combination of prefix lengths and fields: few filters "
            "are found as fast one after the other.",
        ),
        Verdict(
            "the number of classes does not directly affect the packet scheduler",
            bool(of_classes[highest] <= 1.25 * of_classes.iloc[0]),
            "the least round trip with any number of classes is at most 1.25 times that with the fewest",
            f"{of_classes[highest] / of_classes.iloc[0]:.2f} times at most, with {highest:,} classes; with the same "
            f"number round trips differ from round to round by up to {spread:.2f} times",
            WHY_LONGER,
        ),
    ]


#: Why a round trip may be longer with some number of classes, and is not because of them.
WHY_LONGER = (
    "A round trip wakes client, daemon and server one after the other, and takes longer wherever the system puts "
    "two of them on one core, or one on a core that sleeps: that is decided anew with each daemon, whatever its "
    "classes, and the least of few rounds may have it. With 1000 classes it once took 33 us, with 10,000 21."
)


def draw(figure: Figure, tables: Tables, _paper: pd.DataFrame) -> None:
    """The classifier for both kinds of filters, and round trips with the range over the rounds."""
    wildcard, fixed, trips = figure.subplots(1, 3)
    fixed.sharey(wildcard)
    for axes, kind in ((wildcard, "wildcard"), (fixed, "fixed")):
        _draw_alone(axes, tables["classifier"], kind)
    wildcard.set_ylabel("parsing and classifying a packet (ns)")
    frame = tables["round_trips"]
    for number, many in enumerate(MANY):
        of = frame[frame["many"] == many]
        x = of["number"] * (0.93, 1.08)[number]
        range_of = [of["us_median"] - of["us"], of["us_most"] - of["us_median"]]
        look = {**drawing.ours(number), "linewidth": 0.9}
        trips.errorbar(x, of["us_median"], yerr=range_of, capsize=3, label=f"so many {many}", **look)
    trips.set_xscale("log")
    drawing.plain_numbers(trips, x=True)
    trips.set_ylim(bottom=0)
    trips.set_xlabel("filters, or classes of a filter each, in the daemon")
    trips.set_ylabel("UDP round trip: median, least and most (us)")
    trips.legend(loc="lower left")


def _draw_alone(axes: Axes, frame: pd.DataFrame, kind: str) -> None:
    for number, (search, name) in enumerate(SEARCHES.items()):
        of = frame[(frame["kind"] == kind) & (frame["search"] == search)]
        axes.plot(of["filters"], of["ns"], label=name, **drawing.ours(number))
    walked = frame[(frame["kind"] == kind) & (frame["search"] == "one-by-one")]
    last = walked.iloc[-1]
    line = last["ns"] / last["filters"] * walked["filters"]
    dashed = {"color": "#333333", "linestyle": (0, (4, 3)), "linewidth": 0.9}
    axes.plot(walked["filters"], line, label="linear, as the paper's wildcard list", **dashed)
    axes.set_xscale("log")
    axes.set_yscale("log")
    drawing.plain_numbers(axes, x=True, y=True)
    axes.set_xlabel(f"{kind} filters, none of which matches")
    axes.legend(loc="upper left")


EXPERIMENT = Experiment(
    name="altq-filters",
    title="what a packet costs against the number of filters",
    source="ALTQ (Cho, 1998), Section 4.2, Fig. 7",
    claim="the overhead of a packet grows linearly with wildcard filters, and a classifier could be implemented "
    "more efficiently; the number of classes does not affect the scheduler",
    method="Parsing and classification of 1024 frames that match no filter, against wildcard filters (source "
    "prefixes of four lengths, ports or ranges of them) and fixed ones (a destination and a port), by our "
    "classifier and one filter after the other; the paper went to 100. And UDP round trips of 64 bytes through "
    "the daemon with so many wildcard filters for one class, or classes of a filter each; each round has a daemon "
    "of its own, and shows the least median of five passes. The paper's figure is a picture: of its curves the "
    "text says only how they grow.",
    full=Parameters(),
    quick=Parameters(seconds=0.1, rounds=1, filters=(10, 100, 1000, 10_000), daemon=(10, 100, 1000)),
    seconds=(200.0, 15.0),
    measure=measure,
    judge=judge,
    draw=draw,
    size=(12.5, 4.4),
    needs_instruments=True,
    network="namespaces",
)
