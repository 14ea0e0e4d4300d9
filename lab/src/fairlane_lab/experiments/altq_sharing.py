"""The ALTQ paper's Figs. 12 to 15."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

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
class Leaf:
    """A class of an agency: Floyd and Jacobson's, with our times, in which each is idle once."""

    name: str
    agency: str
    percent: float
    #: Of CBQ; interactive classes have the higher one.
    priority: int
    #: From when to when it sends.
    sends: tuple[tuple[int, int], ...]


#: Parts of the link, and the host that each agency's flows come from.
AGENCIES = {"X": (70.0, 1), "Y": (30.0, 0)}

LEAVES = (
    Leaf("class-0", "X", 30.0, 1, ((0, 5), (10, 25))),
    Leaf("class-1", "X", 40.0, 0, ((0, 15), (20, 25))),
    Leaf("class-3", "Y", 20.0, 0, ((0, 20),)),
    Leaf("class-4", "Y", 10.0, 1, ((0, 10), (15, 25))),
)

#: The disciplines that share the link.
DISCIPLINES = {
    "tree": "class tree",
    "cbq": "CBQ with priorities (Fig. 14)",
    "cbq-same-priority": "CBQ, same priority (Fig. 15)",
}

#: Ports of a class: one for each time that it sends.
PORTS = 10


@dataclass(frozen=True)
class Parameters(_altq.Rounds):
    """How it is measured."""

    link_mbit: float = 100.0
    #: Of the whole trace; the times above are for 25.
    seconds: float = 25.0
    rounds: int = 2
    step: float = 0.4
    #: Capacity of a class's queue at its rate, in milliseconds.
    queue_ms: float = 40.0
    cases: tuple[tuple[str, str], ...] = (
        ("tree", "packet"),
        ("tree", "xdp"),
        ("cbq", "packet"),
        ("cbq-same-priority", "packet"),
    )

    @property
    def scale(self) -> float:
        """Of all times."""
        return self.seconds / 25.0


def flows(asked: Parameters) -> list[tuple[Leaf, _altq.Flow]]:
    """Each time that a class sends."""
    return [
        (
            leaf,
            _altq.Flow(
                _first_port(leaf) + place,
                _altq.whole_seconds((end - begin) * asked.scale),
                begin * asked.scale,
                AGENCIES[leaf.agency][1],
            ),
        )
        for leaf in LEAVES
        for place, (begin, end) in enumerate(leaf.sends)
    ]


def _first_port(leaf: Leaf) -> int:
    return _altq.PORT + LEAVES.index(leaf) * PORTS


def site(asked: Parameters, discipline: str, way: str) -> str:
    """Two agencies with two classes each."""
    is_cbq = discipline != "tree"

    def rate(percent: float) -> str:
        return _altq.bits(asked.link_mbit * percent / 100)

    def of_cbq(leaf: Leaf) -> dict:
        priority = leaf.priority if discipline == "cbq" else 0
        return {"borrow": True, "priority": priority} if is_cbq else {}

    agencies = [
        _altq.class_of(name, rate=rate(percent), **({"borrow": True} if is_cbq else {"algorithm": "qfq+"}))
        for name, (percent, _) in AGENCIES.items()
    ]
    # Packets other than TCP, such as ARP, are few and need a class.
    leaves = [
        _altq.leaf_of(
            leaf.name,
            parent=leaf.agency,
            rate=rate(leaf.percent),
            limit={"packets": _altq.queue_packets(asked.link_mbit * leaf.percent / 100, asked.queue_ms)},
            **({"default": True} if leaf is LEAVES[0] else {}),
            **of_cbq(leaf),
        )
        for leaf in LEAVES
    ]
    filters = [
        _altq.filter_to(
            leaf.name, protocol="tcp", destination_port=f"{_first_port(leaf)}-{_first_port(leaf) + PORTS - 1}"
        )
        for leaf in LEAVES
    ]
    algorithm = "cbq" if is_cbq else "qfq+"
    return _altq.site(way, _altq.link(asked.link_mbit, algorithm), *agencies, *leaves, *filters)


def measure(run: Run) -> Tables:
    """A trace of each round, and what follows from it."""
    asked: Parameters = run.parameters
    plans = flows(asked)
    names = [leaf.name for leaf, _ in plans]

    def work(case: tuple[str, str]) -> list[dict]:
        planned = [flow for _, flow in plans]
        return _altq.tcp(run, site(asked, *case), planned, senders=2, step=asked.step)

    traces = [
        _altq.trace_of({"discipline": case[0], "way": case[1], "round": number}, names, found, asked.step)
        for case, in_rounds in zip(asked.cases, run.rounds(asked.cases, work, asked.rounds, asked.seed))
        for number, found in enumerate(in_rounds)
    ]
    return found_in(asked, pd.concat(traces, ignore_index=True))


def phases(asked: Parameters) -> list[tuple[float, float]]:
    """Periods in which no flow starts or stops."""
    changes = {time for leaf in LEAVES for sends in leaf.sends for time in sends}
    return [(begin * asked.scale, end * asked.scale) for begin, end in pairwise(sorted(changes))]


def found_in(asked: Parameters, trace: pd.DataFrame) -> Tables:
    """Means and furthest steps of agencies, and means of classes, in each phase."""
    agencies, classes = [], []
    for (discipline, way, number), of in trace.groupby(["discipline", "way", "round"], sort=False):
        for begin, end in phases(asked):
            labels = {"discipline": discipline, "way": way, "round": number, "from_s": begin, "to_s": end}
            for name, (percent, _) in AGENCIES.items():
                own = [leaf.name for leaf in LEAVES if leaf.agency == name]
                part = asked.link_mbit * percent / 100
                had = _altq.steady(of, own, begin, end, asked.step)
                agencies.append(
                    {
                        **labels,
                        "agency": name,
                        "part_mbit": part,
                        "mean_on_link_mbit": float(had.mean()),
                        "off_percent": (float(had.mean()) / part - 1) * 100,
                        "furthest_step_percent": _altq.furthest_percent(had, part),
                    }
                )
            for leaf in LEAVES:
                mean = float(_altq.steady(of, [leaf.name], begin, end, asked.step).mean())
                due = _due(leaf, (begin + end) / 2 / asked.scale) * asked.link_mbit / 100
                classes.append({**labels, "class": leaf.name, "due_mbit": due, "mean_on_link_mbit": mean})
    return {"agencies": pd.DataFrame(agencies), "classes": pd.DataFrame(classes), "trace": trace}


def _due(leaf: Leaf, at: float) -> float:
    """The ideal share of a class at a time, in percent: its part of the agency's, among the classes that send."""
    sending = [
        one
        for one in LEAVES
        if one.agency == leaf.agency and any(low <= at < high for low, high in one.sends)
    ]
    if leaf not in sending:
        return 0.0
    return AGENCIES[leaf.agency][0] * leaf.percent / sum(one.percent for one in sending)


#: How far an agency's mean and a single step may be from its part, in percent.
MEAN, STEP = 2.0, 10.0

#: How much more than it is due class-4 has where it "receives more than its share", in times.
MORE = 1.2


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """The sums of each agency with each discipline; and the paper's flaw by itself."""
    agencies, classes = tables["agencies"], tables["classes"]
    short = agencies["off_percent"].isna().any()
    too_short = "The measurement is too short: a phase has no step that counts."
    constant = (
        f"each agency's mean is within {MEAN:g}% of its part of the link, whoever is idle, and each step within {STEP:g}%"
    )
    verdicts = []
    for discipline, claim, why in (
        (
            "tree",
            "with the class tree the sum of each agency is constant, even when one of its classes is idle",
            "Payload behind a lost segment arrives with it, all at once: a step later than the rest.",
        ),
        (
            "cbq",
            "with CBQ and priorities it is (which the paper wants, and Fig. 14 shows not to be)",
            "A class of high priority that is beyond its rate takes what those above have left before one of lower "
            "priority has what it is entitled to, as the paper found (\"does not work so well as in the NS "
            "simulator\").",
        ),
        (
            "cbq-same-priority",
            "with CBQ and the same priority for all it is: the problem is improved (Fig. 15)",
            "A class may send while it is within its own rate, whatever those above have used.",
        ),
    ):
        of = agencies[agencies["discipline"] == discipline]
        if of.empty:
            continue
        mean, step = of["off_percent"].abs().max(), of["furthest_step_percent"].max()
        worst = of.loc[of["off_percent"].abs().fillna(0).idxmax()]
        verdicts.append(
            Verdict(
                claim,
                None if short else bool(mean <= MEAN and step <= STEP),
                f"in every run {constant}",
                f"means at most {mean:.2f}% off ({worst['agency']} over {worst['way']}, {worst['from_s']:.0f} to "
                f"{worst['to_s']:.0f} s), steps {step:.1f}%",
                too_short if short else why,
            )
        )
    flaw = classes[(classes["discipline"] == "cbq") & (classes["class"] == "class-4") & (classes["due_mbit"] > 0)]
    if len(flaw):
        times = flaw["mean_on_link_mbit"] / flaw["due_mbit"]
        most = flaw.loc[times.fillna(0).idxmax()]
        verdicts.append(
            Verdict(
                "with priorities class-4 receives more than its share in some situations (Fig. 14)",
                None if short else bool(times.max() >= MORE),
                f"in some phase {MORE:g} times what it is due at least",
                f"{most['mean_on_link_mbit']:.1f} Mbit/s of {most['due_mbit']:.1f}, {most['from_s']:.0f} to "
                f"{most['to_s']:.0f} s",
                too_short if short else "It has what it is due in every phase.",
            )
        )
    return verdicts


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """The first trace of each discipline: both agencies, and the class of Fig. 14's flaw."""
    trace = tables["trace"]
    present = [name for name in DISCIPLINES if name in set(trace["discipline"])]
    for axes, discipline in zip(figure.subplots(1, len(present), sharey=True, squeeze=False)[0], present):
        of = trace[(trace["discipline"] == discipline) & (trace["round"] == 0)]
        _draw_one(axes, of[of["way"] == of["way"].iloc[0]], paper)
        axes.set_title(DISCIPLINES[discipline], fontsize=9)
    # Of all, which share it.
    figure.axes[0].set_ylim(bottom=0)
    figure.axes[0].set_ylabel("what arrived, frames included (Mbit/s)")
    shares = paper.set_index("agency")["percent"]
    handles = [
        Line2D([], [], label=f"agency {name} ({percent:g}%)", **drawing.ours(number))
        for number, (name, percent) in enumerate(shares.items())
    ]
    handles.append(Line2D([], [], label="class-4, of agency Y (10%)", **drawing.ours(len(shares))))
    dark = {**drawing.papers(0), "color": "#333333"}
    handles.append(Line2D([], [], label="constant sums, the paper's claim (dashed)", **dark))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


def _draw_one(axes: Axes, of: pd.DataFrame, paper: pd.DataFrame) -> None:
    wide = of.pivot(index="from_s", columns="class", values="on_link_mbit")
    middle = wide.index + wide.index.to_series().diff().min() / 2
    every = max(len(wide) // 8, 1)
    for number, (name, percent) in enumerate(paper.itertuples(index=False, name=None)):
        own = [leaf.name for leaf in LEAVES if leaf.agency == name]
        axes.plot([0, wide.index.max()], [percent] * 2, **drawing.papers(number))
        axes.plot(middle, wide[own].sum(axis=1), **drawing.ours(number), markevery=(number, every))
    axes.plot(middle, wide["class-4"], **drawing.ours(len(paper)), markevery=(2, every))
    axes.set_xlabel("seconds")


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """The least and the most that each agency had in a phase, over its part, by discipline."""
    agencies = tables["agencies"]
    part = (agencies["mean_on_link_mbit"] / agencies["part_mbit"]).rename("part")
    of = part.groupby([agencies["discipline"], agencies["agency"]]).agg(["min", "max"]).reset_index()
    theirs = paper.assign(min=1.0, max=1.0)
    figures = {"mean of a phase / its part, least": ("min", "min"), "mean of a phase / its part, most": ("max", "max")}
    found = [
        beside(one, theirs, ["agency"], figures).assign(discipline=name) for name, one in of.groupby("discipline", sort=False)
    ]
    return pd.concat(found, ignore_index=True)[["discipline", "agency", "figure", "paper", "here"]]


EXPERIMENT = Experiment(
    name="altq-sharing",
    title="two agencies share a link, and each one's classes what the other leaves",
    source="ALTQ (Cho, 1998), Section 4.5, Figs. 12 to 15",
    claim="each agency receives its share of the link all the time, even when one of its leaf classes is idle; but "
    "CBQ with priorities and borrowing gives a class of high priority more than its share",
    method=f"{_altq.BED} Two agencies with an interactive and a bulk class each, a TCP flow in each class, which is "
    "idle once, from two hosts: with the class tree (QFQ+), with CBQ where interactive classes have priority, and with "
    "CBQ where all are alike. The parts of Fig. 12 and the times of Fig. 13 are not in the paper's text: the parts are "
    "those of Floyd and Jacobson's two agencies, the times ours. After somebody came or went three steps of the trace "
    "do not count, and the last one before does not either. The plot shows the first round of each discipline.",
    full=Parameters(),
    quick=Parameters(
        seconds=15.0, rounds=1, cases=(("tree", "packet"), ("cbq", "packet"), ("cbq-same-priority", "packet"))
    ),
    seconds=(240.0, 55.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(12.5, 4.6),
    needs_instruments=True,
    network="tcp",
)
