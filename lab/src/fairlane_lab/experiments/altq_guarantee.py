"""The ALTQ paper's Fig. 11."""

from __future__ import annotations

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
    from matplotlib.figure import Figure

    from ..running import Run

#: The class of all that no filter matches, in which a flow sends all the time.
BACKGROUND = "background"


@dataclass(frozen=True)
class Parameters(_altq.Rounds):
    """How it is measured."""

    #: As the paper's ATM.
    link_mbit: float = 155.0
    classes_mbit: tuple[float, ...] = (10.0, 20.0, 30.0, 40.0)
    #: The host, of two, that sends each class's flow; the background's is the first.
    senders: tuple[int, ...] = (1, 0, 1, 0)
    #: How long each class's flow sends; 5 s after one the next begins, or that part of it.
    seconds: float = 20.0
    apart: float = 0.25
    #: Seconds between two points of the trace.
    step: float = 0.4
    #: Capacity of a class's queue at its rate, in milliseconds.
    queue_ms: float = 40.0
    ways: tuple[str, ...] = _altq.WAYS

    @property
    def rates(self) -> dict[str, float]:
        """Of the classes, by name."""
        return {f"class-{number}": mbit for number, mbit in enumerate(self.classes_mbit)}


def flows(asked: Parameters) -> dict[str, _altq.Flow]:
    """One for each class, one after the other, and that of the background, all the time."""
    seconds = _altq.whole_seconds(asked.seconds)
    of = {
        name: _altq.Flow(_altq.PORT + number, seconds, number * asked.apart * asked.seconds, asked.senders[number])
        for number, name in enumerate(asked.rates)
    }
    whole = _altq.whole_seconds(max(flow.end for flow in of.values()))
    return {**of, BACKGROUND: _altq.Flow(_altq.PORT + len(of), whole)}


def site(asked: Parameters, way: str) -> str:
    """Classes that are held to their rates, and the background."""

    def queue(mbit: float) -> dict:
        return {"limit": {"packets": _altq.queue_packets(mbit, asked.queue_ms)}}

    classes = [
        _altq.leaf_of(name, rate=_altq.bits(mbit), ceil=_altq.bits(mbit), **queue(mbit))
        for name, mbit in asked.rates.items()
    ]
    filters = [
        _altq.filter_to(name, protocol="tcp", destination_port=flow.port)
        for name, flow in flows(asked).items()
        if name != BACKGROUND
    ]
    rest = _altq.leaf_of(BACKGROUND, default=True, **queue(asked.link_mbit))
    return _altq.site(way, _altq.link(asked.link_mbit, "qfq+"), *classes, rest, *filters)


def measure(run: Run) -> Tables:
    """A trace of each round, and what follows from it."""
    asked: Parameters = run.parameters
    plans = flows(asked)

    def work(way: str) -> list[dict]:
        return _altq.tcp(run, site(asked, way), list(plans.values()), senders=2, step=asked.step)

    traces = [
        _altq.trace_of({"way": way, "round": number}, list(plans), found, asked.step)
        for way, in_rounds in zip(asked.ways, run.rounds(asked.ways, work, asked.rounds, asked.seed))
        for number, found in enumerate(in_rounds)
    ]
    return found_in(asked, pd.concat(traces, ignore_index=True))


def found_in(asked: Parameters, trace: pd.DataFrame) -> Tables:
    """Means and furthest steps of each class while its flow sends, and how full the link is meanwhile."""
    plans, rates = flows(asked), asked.rates
    classes, link = [], []
    for (way, number), of in trace.groupby(["way", "round"], sort=False):
        for name, flow in plans.items():
            had = _altq.steady(of, [name], flow.start, flow.end, asked.step)
            rate = rates.get(name, np.nan)
            classes.append(
                {
                    "way": way,
                    "round": number,
                    "class": name,
                    "rate_mbit": rate,
                    "from_s": flow.start,
                    "to_s": flow.end,
                    "mean_on_link_mbit": float(had.mean()),
                    "furthest_step_percent": _altq.furthest_percent(had, rate),
                }
            )
        # From when the last has come to when the first leaves.
        begin = max(plans[name].start for name in rates)
        end = min(plans[name].end for name in rates)
        together = _altq.steady(of, list(plans), begin, end, asked.step)
        link.append({"way": way, "round": number, "used_percent": float(together.mean()) / asked.link_mbit * 100})
    return {"classes": pd.DataFrame(classes), "link": pd.DataFrame(link), "trace": trace}


#: Tolerances of a class's mean and of a single step from its rate, and the required utilization of the link, in
#: percent.
MEAN, STEP, FULL = 2.0, 10.0, 97.0


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """Each class has its share, whichever flows start and stop, and the link is full."""
    classes = tables["classes"][tables["classes"]["rate_mbit"].notna()]
    off = (classes["mean_on_link_mbit"] / classes["rate_mbit"] - 1).abs() * 100
    used = tables["link"]["used_percent"]
    short = "The measurement is too short: a class has no step that counts." if off.isna().any() else ""

    def verdict(claim: str, holds: bool, criterion: str, found: str, why: str) -> Verdict:
        return Verdict(claim, None if short else bool(holds), f"in every run {criterion}", found, short or why)

    worst = classes.loc[classes["furthest_step_percent"].fillna(0).idxmax()]
    return [
        verdict(
            "each class receives its share",
            off.max() <= MEAN,
            f"each class's mean is within {MEAN:g}% of its rate",
            f"at most {off.max():.2f}% off",
            "What TCP sends again after a loss takes its part of the link, and is no payload.",
        ),
        verdict(
            "there is no interference from other traffic",
            worst["furthest_step_percent"] <= STEP,
            f"each step of each class's trace is within {STEP:g}% of its rate, whoever comes and goes",
            f"at most {worst['furthest_step_percent']:.1f}% off, {worst['class']} over {worst['way']}",
            "Payload behind a lost segment arrives with it, all at once: a step later than the rest.",
        ),
        Verdict(
            "the background flow receives the remaining bandwidth, and the link is almost fully utilized",
            None if used.isna().any() else bool(used.min() >= FULL),
            f"in every run at least {FULL:g}% of the link are used while all flows send",
            f"{used.min():.1f}% at the least",
            "The measurement is too short: not all flows are there at once."
            if used.isna().any()
            else "Cores that are shared by all hosts and the daemon may be the bottleneck instead.",
        ),
    ]


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """The first trace of each method, over each class's guaranteed rate."""
    trace, classes = tables["trace"], tables["classes"]
    ways = list(trace["way"].unique())
    names = list(trace["class"].unique())
    share = paper.set_index("class")["on_link_mbit"]
    for axes, way in zip(figure.subplots(1, len(ways), sharey=True, squeeze=False)[0], ways):
        first = trace[(trace["way"] == way) & (trace["round"] == 0)]
        step = first["from_s"].drop_duplicates().sort_values().diff().min()
        wide = first.pivot(index="from_s", columns="class", values="on_link_mbit")
        times = classes[(classes["way"] == way) & (classes["round"] == 0)].set_index("class")
        for number, name in enumerate(names):
            look = {**drawing.ours(number), "markevery": (number, max(len(wide) // 10, 1))}
            axes.plot(wide.index + step / 2, wide[name], **look)
            if name in share.index:
                at = times.loc[name]
                axes.plot([at["from_s"], at["to_s"]], [share[name]] * 2, **drawing.papers(number))
        axes.plot(wide.index + step / 2, wide.sum(axis=1), color="#333333", linewidth=0.9)
        axes.set_xlabel("seconds")
        axes.set_title(f"daemon over {way}", fontsize=9)
    # Of all, which share it.
    figure.axes[0].set_ylim(bottom=0)
    figure.axes[0].set_ylabel("what arrived, frames included (Mbit/s)")
    handles = [
        Line2D([], [], label=f"{name} ({share[name]:g} Mbit/s)" if name in share.index else name, **drawing.ours(number))
        for number, name in enumerate(names)
    ]
    handles.append(Line2D([], [], color="#333333", linewidth=0.9, label="all"))
    handles.append(Line2D([], [], label="the share, as the paper's classes received it (dashed)", **drawing.papers(0)))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """The throughput of each class, the median of all runs."""
    ours = tables["classes"].groupby("class", as_index=False)["mean_on_link_mbit"].median()
    return beside(ours, paper, ["class"], {"what it received (Mbit/s)": ("on_link_mbit", "mean_on_link_mbit")})


EXPERIMENT = Experiment(
    name="altq-guarantee",
    title="classes that get what they were promised, whoever comes and goes",
    source="ALTQ (Cho, 1998), Section 4.4, Fig. 11",
    claim="each class receives its share, there is no interference, and the link is almost fully utilized",
    method=f"{_altq.BED} Classes of 10, 20, 30 and 40 Mbit/s of 155, which do not borrow, a flow of 20 s in each, 5 s "
    "apart, from two hosts as in the paper, and one in the background all the time. The paper counted a class's "
    "octets every 400 ms in its kernel; here payload is counted where it arrives, and converted to what it takes of "
    "the link. After somebody came or went three steps of the trace do not count, and the last one before does "
    "not either. The plot shows the first round.",
    full=Parameters(),
    quick=Parameters(seconds=8.0, rounds=1, ways=("packet",)),
    seconds=(250.0, 17.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(11.0, 4.8),
    needs_instruments=True,
    network="tcp",
)
