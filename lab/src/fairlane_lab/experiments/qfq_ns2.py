"""The QFQ report's simulation of a network: Fig. 8, Tables 2 and 3."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import fairlane
import pandas as pd
from matplotlib.lines import Line2D

from .. import drawing, machine
from ..model import Experiment, Tables, Verdict
from ._beside import beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run

#: The routers' algorithms, and their names in the plot.
ALGORITHMS = {
    "drr": "DRR",
    "qfq": "QFQ",
    "s-kps": "S-KPS",
    "s-kps-late": "S-KPS, late",
    "wf2q+": "WF2Q+",
}

#: The neighbouring column of the paper's tables: there S-KPS releases slots as they end.
PAPERS = {"s-kps-late": "s-kps"}

FLOWS = ("f0", "f1")

#: Time of a packet that never waits, in milliseconds: 22 on the wires, and 200 bytes sent four times.
ALONE = 22.0 + 2 * 0.016 + 2 * 0.160

#: Weight of a best-effort flow in the file; all others leave 118 for both.
WEIGHT = 53


@dataclass(frozen=True)
class Parameters:
    """The simulated time, and parameters that the report does not give."""

    #: Seconds that are measured, and before.
    seconds: float = 15.0
    warm_up: float = 5.0
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    #: Other weights of best-effort flows, and whether the flows of 160 kbit/s take turns or send as one.
    weights: tuple[int, ...] = (16, WEIGHT, 59)


def topology(algorithm: str, weight: int = WEIGHT, together: bool = False, warm_up: float = 5.0) -> str:
    """Fig. 8 as ``fairlane sim`` runs it."""
    folder = resources.files(__package__)
    text = (folder / "qfq_ns2.toml").read_text(encoding="utf-8")
    text = text.replace('algorithm = "qfq"', f'algorithm = "{algorithm}"')
    text = text.replace('warm-up = "5s"', f'warm-up = "{warm_up}s"')
    text = text.replace(f"weight = {WEIGHT}\n", f"weight = {weight}\n")
    if together:
        head, others = text.split('[[source]]\nname = "others"\n')
        others, tail = others.split("\n\n", 1)
        others = others.replace("count = 50\n", "")
        text = head + "".join(f'[[source]]\nname = "other {n}"\n{others}\n\n' for n in range(50)) + tail
    return text


def simulated(text: str, seconds: float, seed: int) -> dict[str, dict]:
    """The results of a network's flows, by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.toml"
        path.write_text(text, encoding="utf-8")
        outcome = fairlane.scenario(path, seconds=seconds, seed=seed)
    return {source["name"]: source for source in outcome["sources"]}


def measure(run: Run) -> Tables:
    """Both tables, and the same with other assumptions."""
    asked: Parameters = run.parameters
    mine = [(name, seed, WEIGHT, False) for name in ALGORITHMS for seed in asked.seeds]
    others = [
        (name, asked.seeds[0], weight, together)
        for weight in asked.weights
        for together in (False, True)
        for name in ALGORITHMS
    ]

    def rows(cell: tuple[str, int, int, bool]) -> list[dict]:
        name, seed, weight, together = cell
        sources = simulated(topology(name, weight, together, asked.warm_up), asked.seconds, seed)
        return [
            {
                "flow": flow,
                "algorithm": name,
                "seed": seed,
                "best_effort_weight": weight,
                "others_send": "as one" if together else "in turns",
                "packets": sources[flow]["received_packets"],
                "lost": sources[flow]["rejected"] + sources[flow]["displaced"],
                **{
                    f"{key}_ms": sources[flow]["delay_us"][key] / 1e3
                    for key in ("mean", "deviation", "p50", "p99", "max")
                },
            }
            for flow in FLOWS
        ]

    cells = [row for found in run.each(mine + others, rows, jobs=machine.cores()) for row in found]
    split = len(mine) * len(FLOWS)
    every, assumed = pd.DataFrame(cells[:split]), pd.DataFrame(cells[split:])
    delays = every.groupby(["flow", "algorithm"], as_index=False).agg(
        packets=("packets", "sum"),
        lost=("lost", "sum"),
        mean_ms=("mean_ms", "mean"),
        deviation_ms=("deviation_ms", "mean"),
        p99_ms=("p99_ms", "max"),
        max_ms=("max_ms", "max"),
    )
    return {"delays": delays, "runs": every, "assumptions": assumed}


def _waits(delays: pd.DataFrame, column: str = "mean_ms") -> pd.Series:
    """Milliseconds that packets wait, by flow and algorithm."""
    return delays.set_index(["flow", "algorithm"])[column] - ALONE


def judge(tables: Tables, paper: pd.DataFrame) -> list[Verdict]:
    """The paper's conclusions."""
    waits, theirs = _waits(tables["delays"]), _waits(paper)
    ratio = {flow: waits[flow, "drr"] / waits[flow, "qfq"] for flow in FLOWS}
    paper_ratio = {flow: theirs[flow, "drr"] / theirs[flow, "qfq"] for flow in FLOWS}
    apart = {
        (flow, name): waits[flow, name] - waits[flow, "wf2q+"]
        for flow in FLOWS
        for name in ("qfq", "s-kps")
    }
    longest, said = (frame.set_index(["flow", "algorithm"])["max_ms"] for frame in (tables["delays"], paper))
    near = max(abs(value) for (flow, _), value in apart.items() if flow == "f1")
    far = {name: apart["f0", name] for name in ("qfq", "s-kps")}
    pairs = tables["assumptions"].pivot_table(
        index=["best_effort_weight", "others_send"], columns=["flow", "algorithm"], values="mean_ms"
    )
    least = {flow: ((pairs[flow, "drr"] - ALONE) / (pairs[flow, "qfq"] - ALONE)).min() for flow in FLOWS}
    return [
        Verdict(
            "DRR is several times worse than QFQ",
            bool(min(ratio.values()) >= 2.5),
            "under DRR packets wait 2.5 times as long as under QFQ at least, of both flows",
            "; ".join(
                f"{flow} {ratio[flow]:.1f} times (the paper: {paper_ratio[flow]:.1f})" for flow in FLOWS
            ),
            "Our DRR has the smallest quanta that serve each packet in a turn; the paper's rounds take longer.",
        ),
        Verdict(
            "QFQ and S-KPS are near WF2Q+, nearer for the flow of the high rate",
            bool(near <= 1.0 and all(near <= abs(value) for value in far.values())),
            "f1's mean is within 1 ms of WF2Q+'s, and nearer to it than f0's is",
            f"f1 within {near:.2f} ms; f0 "
            + " and ".join(f"{value:+.2f} ms under {name}" for name, value in far.items())
            + " (the paper: f0 +8.77 and +11.89 ms)",
            "What f0 waits depends on when others begin and on best effort's weight.",
        ),
        Verdict(
            "f0 waits for longer under S-KPS than under QFQ",
            bool(longest["f0", "s-kps-late"] > longest["f0", "qfq"]),
            "f0's longest delay under S-KPS, whose slots are released as they end, is above that under QFQ",
            "; ".join(
                f"{flow} {longest[flow, 's-kps-late']:.1f} ms against {longest[flow, 'qfq']:.1f} (the paper: "
                f"{said[flow, 's-kps']:g} against {said[flow, 'qfq']:g}), released as slots begin "
                f"{longest[flow, 's-kps']:.1f}"
                for flow in FLOWS
            ),
            "How long slots are goes with the length of packets, which the report does not say.",
        ),
        Verdict(
            "DRR is several times worse whatever the report leaves open",
            bool(min(least.values()) >= 2.5),
            "the same for every weight of best effort and every start of the others in the table",
            "; ".join(f"{flow} {least[flow]:.1f} times at least" for flow in FLOWS),
            "Where reserved rates and best effort fill the link, or all flows of 160 kbit/s send as one, the flow "
            "of the lowest rate waits for nearly all others under every algorithm; f1 does not.",
        ),
    ]


def draw(figure: Figure, tables: Tables, paper: pd.DataFrame) -> None:
    """Means with deviations, and maxima."""
    ours = tables["delays"].set_index(["flow", "algorithm"])
    theirs = paper.set_index(["flow", "algorithm"])
    for axes, flow in zip(figure.subplots(1, 2, sharey=True), FLOWS):
        for number, name in enumerate(ALGORITHMS):
            for at, of, aside, hollow in (
                (ours, name, -0.12, False),
                (theirs, PAPERS.get(name, name), 0.12, True),
            ):
                row = at.loc[flow, of]
                look = {**drawing.style(number), "linestyle": "none", "markersize": 7}
                if hollow:
                    look["markerfacecolor"] = "white"
                axes.errorbar(
                    [number + aside], [row["mean_ms"]], yerr=[row["deviation_ms"]], capsize=3, **look
                )
                axes.plot(
                    [number + aside], [row["max_ms"]], marker="_", linestyle="none", color=look["color"],
                    markersize=14,
                )  # fmt: skip
        axes.axhline(ALONE, color="black", linewidth=0.8, linestyle=(0, (6, 2)))
        axes.set_yscale("log")
        axes.set_yticks([20, 30, 50, 100, 200])
        drawing.plain_numbers(axes, y=True)
        axes.set_xticks(range(len(ALGORITHMS)), list(ALGORITHMS.values()))
        axes.grid(axis="x", visible=False)
        axes.set_title({"f0": "f0, 32 kbit/s", "f1": "f1, 512 kbit/s"}[flow], fontsize=9)
    figure.axes[0].set_ylabel("delay from end to end (ms)")
    dark = {"linestyle": "none", "color": "#333333"}
    handles = [
        Line2D([], [], marker="o", label="here (filled): mean and deviation", **dark),
        Line2D([], [], marker="o", markerfacecolor="white", label="the paper (hollow)", **dark),
        Line2D([], [], marker="_", markersize=14, label="the longest", **dark),
        Line2D([], [], color="black", linewidth=0.8, linestyle=(0, (6, 2)), label="a packet that never waits"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """Both tables; the paper's S-KPS next to both of ours."""
    again = [paper[paper["algorithm"] == theirs].assign(algorithm=ours) for ours, theirs in PAPERS.items()]
    figures = {f"{name} (ms)": (f"{name}_ms", f"{name}_ms") for name in ("mean", "deviation", "max")}
    return beside(tables["delays"], pd.concat([paper, *again]), ["flow", "algorithm"], figures)


EXPERIMENT = Experiment(
    name="qfq-ns2",
    title="delays from end to end over two bottlenecks",
    source="QFQ report (Checconi, Valente, Rizzo, 2010), Section 6, Fig. 8, Tables 2 and 3",
    claim="DRR's delays are several times those of QFQ, S-KPS and WF2Q+; QFQ and S-KPS are near WF2Q+, nearer for "
    "flows of a high rate",
    method="The topology of Fig. 8, packet by packet, in `fairlane sim`'s simulator (qfq_ns2.toml beside this "
    "experiment is a file that it runs); 15 s after the first 5, five seeds. The report's text does not say how "
    "long packets are (200 bytes here), what flows weigh (by their rates; those of best effort together nine "
    "tenths of what the others leave of the link), when they begin (those alike take turns), and at which routers "
    "the hosts of best effort are (at the two ends, as all others); a table has the same with other weights, and "
    "with all flows of 160 kbit/s sending as one. Only best effort is random, and it nearly always has something to "
    "send: seeds differ little. S-KPS stands twice: its slots released as they begin, as Fairlane has it, and as they end "
    "(late), as the report has it, whose figures stand beside both. Deviations are means over seeds, maxima the longest "
    "of all.",
    full=Parameters(),
    quick=Parameters(seconds=5.0, seeds=(1,), weights=(16, 59)),
    seconds=(20.0, 4.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(9.0, 4.4),
)
