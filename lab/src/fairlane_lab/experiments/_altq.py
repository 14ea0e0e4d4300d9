"""Shared parts of the ALTQ paper's experiments: its hosts as network namespaces, sites of the daemon between them,
TCP flows and round trips, by the instruments."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from .. import drawing
from ..model import LabError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run

Cell = TypeVar("Cell", bound=Hashable)
Found = TypeVar("Found")

#: Bytes of a full frame on the wire: 1500 of IP, an Ethernet header, and preamble, checksum and gap, which
#: a site's ``overhead = "ethernet"`` adds. TCP's payload of it is 1448.
FRAME = 1500 + 14 + 24

#: How the daemon reads and writes frames: AF_PACKET and AF_XDP.
WAYS = ("packet", "xdp")

#: The receiver's port of a TCP flow, which a class's filter has.
PORT = 5201

#: Links up to this are mostly waited for, several at a time.
SLOW_MBIT, AT_A_TIME = 1.0, 8

#: How the experiments are done, as their reports say it.
BED = (
    "The paper's hosts A, B and C are network namespaces of one machine, joined by virtual cables, and B is a "
    "bump in the wire: the daemon between two interfaces. TCP is Linux' (CUBIC), by iperf3, and measured where "
    "it arrives. No device leaves checksums or segmentation to hardware. All share this machine's cores."
)


@dataclass(frozen=True)
class Rounds:
    """How often and how long each measurement is made."""

    #: Of a measurement, whose first third does not count.
    seconds: float = 2.0
    rounds: int = 3
    #: Of the order within a round, and of what else is drawn.
    seed: int = 1


def rounds_by_speed(
    run: Run, cells: Sequence[Cell], mbit: Callable[[Cell], float], work: Callable[[Cell], Found]
) -> dict[Cell, list[Found]]:
    """The results of ``work`` for each cell in every round; those of slow links, which leave the processors idle,
    several at a time."""
    asked: Rounds = run.parameters
    slow = [cell for cell in cells if mbit(cell) <= SLOW_MBIT]
    fast = [cell for cell in cells if mbit(cell) > SLOW_MBIT]
    in_rounds = [
        *zip(slow, run.rounds(slow, work, asked.rounds, asked.seed, jobs=AT_A_TIME)),
        *zip(fast, run.rounds(fast, work, asked.rounds, asked.seed)),
    ]
    return dict(in_rounds)


def whole_seconds(seconds: float, mbit: float = math.inf, packets: int = 0) -> int:
    """Whole seconds, as iperf3 needs: at least ``seconds``, and long enough for ``packets`` full packets."""
    return max(math.ceil(max(seconds, packets * FRAME * 8 / (mbit * 1e6)) - 1e-9), 1)


def packet_percent(mbit: float, seconds: float) -> float:
    """One full packet, in percent of the bytes sent at this rate in the measured time."""
    return FRAME * 8 / (mbit * 1e6 * seconds * 2 / 3) * 100


def bits(mbit: float) -> str:
    """A rate, as a site has it."""
    return f"{round(mbit * 1e6)}bit"


def queue_packets(mbit: float, milliseconds: float) -> int:
    """Packets that a queue needs so that TCP keeps it busy: the rate times that delay, but at least as many as
    TCP's loss recovery needs."""
    return max(math.ceil(mbit * 1e3 * milliseconds / 8 / FRAME), 32)


def table(name: str, /, **keys: Any) -> str:
    """A table of an array in a site; underscores are dashes there."""
    lines = [f"{key.replace('_', '-')} = {_value(value)}\n" for key, value in keys.items()]
    return f"[[{name}]]\n{''.join(lines)}\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


def link(mbit: float, algorithm: str) -> str:
    """The link to the receiver, without a class of its own for link-layer control: the papers have none."""
    keys = {"to": "outside", "rate": bits(mbit), "overhead": "ethernet", "link_control": "none"}
    return table("link", name="up", **keys, algorithm=algorithm)


def class_of(name: str, /, **keys: Any) -> str:
    """A class of the link before it."""
    return table("link.class", name=name, **keys)


def leaf_of(name: str, /, **keys: Any) -> str:
    """A class with a queue that drops packets only when it is full, unless ``keys`` name another ``queue``."""
    return class_of(name, **({"queue": "tail-drop"} | keys))


def filter_to(name: str, /, **keys: Any) -> str:
    """A filter for this class."""
    return table("link.filter", **{"class": name}, **keys)


def site(way: str, *tables: str) -> str:
    """The daemon's file."""
    head = f'[interfaces]\ninside = "inside"\noutside = "outside"\nbackend = "{way}"\n\n'
    return head + "".join(tables)


#: How often a measurement that fails is made again: of hundreds of connections one may not come about.
AGAIN = 2


def figures(run: Run, *words: object) -> dict[str, Any]:
    """The results of an instrument that needs namespaces."""
    failures = 0
    while True:
        try:
            return run.instruments.figures(*words)
        except LabError as error:
            failures += 1
            if failures > AGAIN or run.ended:
                raise
            print(f"again, since {error}", file=sys.stderr)


@dataclass(frozen=True)
class Flow:
    """A planned TCP flow: it starts after ``start`` seconds, and lasts a whole number of seconds."""

    port: int
    seconds: int
    start: float = 0.0
    sender: int = 0

    @property
    def end(self) -> float:
        """When it stops."""
        return self.start + self.seconds


@contextlib.contextmanager
def _written(text: str | None) -> Iterator[list[object]]:
    """The option for a site; none for the kernel's bridge."""
    with tempfile.TemporaryDirectory(prefix="fairlane-lab-") as folder:
        if text is None:
            yield []
            return
        path = Path(folder) / "site.toml"
        path.write_text(text)
        yield ["--site", path]


def tcp(
    run: Run, text: str | None, flows: Sequence[Flow], *, senders: int = 1, step: float = 0.4
) -> list[dict[str, Any]]:
    """The arrivals of flows through a site, in their order."""
    plans = [f"--flow={flow.sender}:{flow.port}:{flow.start:g}:{flow.seconds}" for flow in flows]
    warm = min(flow.seconds for flow in flows) / 3
    with _written(text) as where:
        options = [*where, "--senders", senders, "--warm", warm, "--step", step, *plans]
        return figures(run, "altq", "tcp", *options)["flows"]


def round_trips_us(
    run: Run, text: str | None, sizes: Sequence[tuple[int, int]], seconds: float
) -> list[float]:
    """The least median round trip of each size of request and reply, of five passes: the placement of processes on
    cores matters more than the path between them."""
    asked = [f"--size={request}:{reply}" for request, reply in sizes]
    with _written(text) as where:
        found = figures(run, "altq", "round-trip", *where, "--seconds", seconds, *asked)
    return [min(one["medians_us"]) for one in found["sizes"]]


def classify_ns(run: Run, text: str, search: str, seconds: float) -> float:
    """Nanoseconds to parse a packet and find its filter among those of a site."""
    how = ("--search", search, "--seconds", seconds, "--seed", run.parameters.seed)
    with _written(text) as where:
        return figures(run, "altq", "classify", *where, *how)["ns_per_packet"]


def with_timer_mbit(run: Run, mbit: float, share_percent: float, timer_ms: int) -> float:
    """The throughput of a class under CBQ with a timer, in Mbit/s."""
    how = ("--link", bits(mbit), "--share", share_percent, "--timer-ms", timer_ms)
    return figures(run, "altq", "timer", *how)["on_link_mbit"]


def aside(number: int, of: int, width: float = 0.6) -> float:
    """Horizontal offset of a curve from its category, so that curves do not hide one another."""
    return (number - (of - 1) / 2) * width / of


def look(number: int, way: str) -> dict[str, Any]:
    """How points of a way are drawn: filled for packet, half filled for xdp."""
    style = {**drawing.style(number), "linestyle": "none"}
    return {**style, "fillstyle": "full" if way == "packet" else "left", "markerfacecoloralt": "white"}


def hollow(number: int) -> dict[str, Any]:
    """How the paper's points are drawn."""
    return {**drawing.style(number), "linestyle": "none", "markerfacecolor": "white"}


def legend(figure: Figure, names: Sequence[str], ways: Sequence[str], paper: bool, columns: int) -> None:
    """A legend below all axes: names by marker, ways and the paper by filling."""
    handles = [
        Line2D([], [], label=name, **look(number, "packet")) for number, name in enumerate(names) if name
    ]
    dark = {"linestyle": "none", "marker": "o", "color": "#333333"}
    handles += [
        Line2D([], [], label=f"{way} ({'filled' if way == 'packet' else 'half filled'})",
               **{**look(0, way), "color": "#333333", "marker": "o"})
        for way in ways
    ]  # fmt: skip
    if paper:
        handles.append(Line2D([], [], label="the paper (hollow)", markerfacecolor="white", **dark))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


#: Steps of a trace that do not count after a flow started or stopped, in which TCP finds its rate again, and
#: before that.
AFTER, BEFORE = 3, 1


def trace_of(labels: dict[str, Any], names: Sequence[str], found: Sequence[dict[str, Any]], step: float) -> pd.DataFrame:
    """The share of the link of each name's flows in each step: a row for each name and step."""
    steps = {name: 0.0 for name in names}
    for name, one in zip(names, found):
        steps[name] = steps[name] + np.array(one["steps_on_link_mbit"])
    rows = [
        {**labels, "class": name, "from_s": place * step, "on_link_mbit": float(mbit)}
        for name, all_mbit in steps.items()
        for place, mbit in enumerate(all_mbit)
    ]
    return pd.DataFrame(rows)


def steady(trace: pd.DataFrame, names: Sequence[str], begin: float, end: float, step: float) -> pd.Series:
    """The total of these in each step between two starts or stops of flows, except for the steps just after and
    before."""
    low, high = begin + AFTER * step - 1e-9, end - (BEFORE + 1) * step + 1e-9
    within = trace[trace["class"].isin(names) & trace["from_s"].between(low, high)]
    return within.groupby("from_s")["on_link_mbit"].sum()


def furthest_percent(had: pd.Series, part: float) -> float:
    """The furthest of these from a part, relative to it; nothing of none."""
    return float((had / part - 1).abs().max() * 100)
