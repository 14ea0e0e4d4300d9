"""The QFQ report's Theorems 1 and 2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import fairlane
import numpy as np
import pandas as pd

from .. import drawing, machine
from ..draws import SplitMix64
from ..model import Experiment, Tables, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..running import Run

#: Of the link: a byte takes a nanosecond.
RATE = 8_000_000_000


@dataclass(frozen=True)
class Parameters:
    """Parameters of the random sets."""

    #: Random sets of flows.
    sets: int = 1000
    #: The most flows of a set.
    flows: int = 64
    #: Packets that the link sends in a run, about.
    packets: int = 4000
    seed: int = 1


@dataclass(frozen=True)
class Drawn:
    """A flow of a set."""

    weight: int
    longest: int
    #: Nanoseconds and bytes of its packets; empty if it is always backlogged with its longest.
    arrivals: tuple[np.ndarray, np.ndarray] | None

    @property
    def plan(self) -> fairlane.Flow:
        """As a simulation takes it."""
        lengths = fairlane.Lengths.fixed(self.longest)
        if self.arrivals is None:
            return fairlane.Flow(self.weight, fairlane.Traffic.greedy(3), lengths)
        return fairlane.Flow(
            self.weight, fairlane.trace(*self.arrivals), lengths, max_len=self.longest
        )


def slot(length: int, weight: int, weights: int) -> float:
    """sigma of a flow in bytes of the link's work: the power of two from L_k / phi_k on (Eq. 4), in the
    scale in which weights are whole numbers."""
    inverse = -(-(1 << 40) // weight)
    return (1 << (length * inverse - 1).bit_length()) * weights / (1 << 40)


def drawn(seed: int, most: int, packets: int) -> tuple[list[Drawn], int]:
    """A random set of flows, and how many nanoseconds they send."""
    random = SplitMix64(seed)
    shapes = [
        (random.octaves(1, 1000), random.octaves(64, 9000), random.below(3))
        for _ in range(random.between(2, most))
    ]
    weights = sum(weight for weight, _, _ in shapes)
    end = packets * sum(longest for _, longest, _ in shapes) // len(shapes)
    flows = []
    for weight, longest, kind in shapes:
        if kind == 0:
            flows.append(Drawn(weight, longest, None))
            continue
        # Bursts of lengths of any size, or of the longest; from an eighth of the flow's share to twice.
        most_at_once = (4, 16)[kind - 1]
        mean = longest if kind == 2 else (longest + 1) // 2
        gap = (most_at_once + 1) * mean * weights * 8 // (2 * weight * random.between(1, 16))
        flows.append(Drawn(weight, longest, _bursts(random, longest, kind, gap, most_at_once, end, packets)))
    return flows, end


def _bursts(
    random: SplitMix64, longest: int, kind: int, gap: int, most: int, end: int, packets: int
) -> tuple[np.ndarray, np.ndarray]:
    times, lengths, now = [], [], random.below(gap + 1)
    while now < end and len(times) < packets:
        for _ in range(random.between(1, most)):
            times.append(now)
            lengths.append(longest if kind == 2 else random.between(1, longest))
        now += random.below(2 * gap + 1)
    return np.array(times, dtype=np.uint64), np.array(lengths, dtype=np.uint32)


def simulated(seed: int, most: int, packets: int) -> fairlane.Replayed:
    """The results of a random set under QFQ."""
    flows, end = drawn(seed, most, packets)
    return fairlane.sim("qfq", RATE, [flow.plan for flow in flows], end / 1e9)


#: Schedules that exceed a theorem, as weight and longest packet of each flow, and as nanoseconds, flow
#: and bytes of each arrival. Flow 0 ends in the last bytes of a slot and is served at its beginning, so
#: that its next start is nearly two slots after V; flow 1 is there so that V does not jump to it; then
#: flow 2's long packets finish first until V is at flow 0's rounded finish.
_FLOWS = [(1, 1024), (1, 2048), (1022, 65_000)]
COUNTEREXAMPLES = {
    "Theorem 1": [(0, 0, 1023), (0, 0, 1024), (0, 0, 1), (0, 0, 1024), (1, 1, 1)]
    + [(1024, 2, 65_000)] * 100,
    "Theorem 2": [(0, 0, 1023), (0, 0, 1024), (0, 0, 1), (1, 1, 1), (2046, 0, 1)]
    + [(2046, 2, 65_000)] * 100,
}


def _sets(run: Run) -> pd.DataFrame:
    asked: Parameters = run.parameters

    def rows(number: int) -> list[dict]:
        report = simulated(asked.seed << 32 | number, asked.flows, asked.packets).flows
        report = report[report["packets"] > 0]
        return [
            {"set": number, **_indexes(row, report["weight"].sum(), report["max_len"].max())}
            for row in report
        ]

    found = run.each(range(asked.sets), rows, jobs=machine.cores())
    return pd.DataFrame([row for rows in found for row in rows])


def _indexes(row: np.void, weights: int, longest: int) -> dict:
    """The measurements of a flow, and the theorems' bounds."""
    weight, own = int(row["weight"]), int(row["max_len"])
    work = 3 * slot(own, weight, int(weights)) + 2 * int(longest)
    return {
        "flow": int(row["flow"]),
        "weight": weight,
        "max_len_bytes": own,
        "packets": int(row["packets"]),
        "t_wfi_ns": float(row["t_wfi_ns"]),
        "theorem_2_ns": work,
        "eq_2_ns": float(row["t_wfi_bound_ns"]),
        "b_wfi_bytes": float(row["b_wfi_backlogged_bytes"]),
        "theorem_1_bytes": work * weight / int(weights),
        "eq_2_bytes": float(row["b_wfi_bound_bytes"]),
    }


def _counterexamples() -> pd.DataFrame:
    rows = []
    for theorem, arrivals in COUNTEREXAMPLES.items():
        flows = []
        for number, (weight, longest) in enumerate(_FLOWS):
            own = [(time, length) for time, flow, length in arrivals if flow == number]
            times, lengths = zip(*own)
            flows.append(Drawn(weight, longest, (np.array(times), np.array(lengths))).plan)
        for sent in (False, True):
            report = fairlane.sim("qfq", RATE, flows, 1.0, until_sent=sent).flows
            of = _indexes(report[0], report["weight"].sum(), report["max_len"].max())
            measured, allowed, eq_2, unit = (
                (of["b_wfi_bytes"], of["theorem_1_bytes"], of["eq_2_bytes"], "bytes")
                if theorem == "Theorem 1"
                else (of["t_wfi_ns"], of["theorem_2_ns"], of["eq_2_ns"], "ns")
            )
            rows.append(
                {
                    "theorem": theorem,
                    "backlogged_until": "sent" if sent else "dequeued",
                    "unit": unit,
                    "measured": measured,
                    "theorem_allows": allowed,
                    "eq_2_allows": eq_2,
                }
            )
    return pd.DataFrame(rows)


def measure(run: Run) -> Tables:
    """Both indexes of all flows of random sets, and of the counterexamples."""
    return {"counterexamples": _counterexamples(), "flows": _sets(run)}


def judge(tables: Tables, _paper: pd.DataFrame) -> list[Verdict]:
    """Random sets, schedules that were made to exceed, and the bound that holds."""
    flows, made = tables["flows"], tables["counterexamples"]
    sets = flows["set"].nunique()
    t_ratio = (flows["t_wfi_ns"] / flows["theorem_2_ns"]).max()
    b_ratio = (flows["b_wfi_bytes"] / flows["theorem_1_bytes"]).max()
    exceeds = (made["measured"] / made["theorem_allows"]).groupby(made["theorem"]).min()
    right = pd.concat(
        [
            flows["t_wfi_ns"] / flows["eq_2_ns"],
            flows["b_wfi_bytes"] / flows["eq_2_bytes"],
            made["measured"][made["backlogged_until"] == "dequeued"]
            / made["eq_2_allows"][made["backlogged_until"] == "dequeued"],
        ]
    )
    of_sets = f"{len(flows):,} flows of {sets:,} random sets"
    verdicts = [
        Verdict(
            f"{theorem} on random sets",
            bool(most <= 1.0),
            "measured / bound is at most 1 for every flow",
            f"at most {most:.3f}, of {of_sets}",
            "A random set comes beyond the bound as it is printed; see the counterexample.",
        )
        for theorem, most in (("Theorem 2, T-WFI <= (3 sigma + 2 L) / R", t_ratio),
                              ("Theorem 1, B-WFI <= 3 phi sigma + 2 phi L", b_ratio))
    ]  # fmt: skip
    reasons = {
        "Theorem 1": "Its proof takes the rounded start for the exact one, which lies up to L_k / phi further "
        "after V (Theorem 3 has it right).",
        "Theorem 2": "Its proof (Eq. 40) rounds the flow's backlog down to whole slots: a packet of one byte may "
        "wait a slot more.",
    }
    verdicts += [
        Verdict(
            f"{theorem} for every schedule",
            bool(exceeds[theorem] <= 1.0),
            "measured / bound is at most 1 for the schedule in the table, also by the definition of a backlog "
            "that favours the theorem",
            f"{exceeds[theorem]:.3f} of it",
            reasons[theorem],
        )
        for theorem in exceeds.index
    ]
    verdicts.append(
        Verdict(
            "Eq. 2 of the QFQ+ paper, T-WFI R <= 3 sigma + L_k / phi + L - L_k + Q, bounds them all",
            bool(right.max() <= 1.0),
            "measured / bound is at most 1, of random sets and counterexamples",
            f"at most {right.max():.3f}",
        )
    )
    return verdicts


def draw(figure: Figure, tables: Tables, _paper: pd.DataFrame) -> None:
    """How near flows come to the bounds."""
    flows, made = tables["flows"], tables["counterexamples"]
    made = made[made["backlogged_until"] == "dequeued"].set_index("theorem")
    for axes, theorem, index, measured, allowed, eq_2 in zip(
        figure.subplots(1, 2, sharey=True),
        ("Theorem 2", "Theorem 1"),
        ("T-WFI", "B-WFI"),
        ("t_wfi_ns", "b_wfi_bytes"),
        ("theorem_2_ns", "theorem_1_bytes"),
        ("eq_2_ns", "eq_2_bytes"),
    ):
        part = (np.arange(len(flows)) + 1) / len(flows)
        for number, (bound, label) in enumerate(
            ((allowed, f"random sets, {theorem} of the report"), (eq_2, "random sets, Eq. 2 of QFQ+"))
        ):
            look = {**drawing.ours(number), "marker": "", "linestyle": ("-", (0, (1, 1)))[number]}
            axes.plot(np.sort(flows[measured] / flows[bound]), part, label=label, **look)
        one = made.loc[theorem]
        for bound, marker, label in (
            ("theorem_allows", "*", f"counterexample, {theorem}"),
            ("eq_2_allows", "P", "the same, Eq. 2"),
        ):
            axes.plot(
                [one["measured"] / one[bound]], [0.5], marker, color="black", markersize=10,
                markerfacecolor="white", label=label, clip_on=False,
            )  # fmt: skip
        axes.axvline(1.0, color="black", linewidth=1.0, linestyle=(0, (6, 2)))
        axes.annotate(
            "the bound", (1.0, 0.03), xytext=(-4, 0), textcoords="offset points", ha="right", fontsize=8
        )
        axes.set_xlim(-0.02, max(1.4, math.ceil(one["measured"] / one["theorem_allows"] * 10) / 10))
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(f"{index}, measured / bound")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
        axes.set_title(f"{index} ({theorem})", fontsize=9)
    figure.axes[0].set_ylabel("part of all flows at or below")


def beside_paper(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """The cases closest to each theorem's bound, or beyond it."""
    flows, made = tables["flows"], tables["counterexamples"]
    made = made[made["backlogged_until"] == "dequeued"]
    beyond = dict(zip(made["theorem"], made["measured"] / made["theorem_allows"]))
    random = {
        "Theorem 1": (flows["b_wfi_bytes"] / flows["theorem_1_bytes"]).max(),
        "Theorem 2": (flows["t_wfi_ns"] / flows["theorem_2_ns"]).max(),
    }
    return pd.DataFrame(
        {
            "index": row.index,
            "theorem": row.theorem,
            "figure": f"measured / bound, at most, {what}",
            "paper": row.most_measured_over_bound,
            "here": found[row.theorem],
        }
        for row in paper.itertuples(index=False)
        for what, found in (("random sets", random), ("counterexample", beyond))
    )


EXPERIMENT = Experiment(
    name="qfq-wfi",
    title="worst-case fair indexes measured, over the bounds of the theorems",
    source="QFQ report (Checconi, Valente, Rizzo, 2010), Section 5, Theorems 1 and 2",
    claim="B-WFI <= 3 phi sigma + 2 phi L, and T-WFI <= (3 sigma + 2 L) / R",
    method="Random sets of flows (2 to 64; weights 1 to 1000 and longest packets 64 to 9000 bytes, each "
    "doubling as likely as the next; always backlogged, or bursts of random or longest packets at an eighth "
    "to twice the flow's share) through a simulated link, exact to the picosecond, with our meters of both "
    "indexes. All is drawn as whole numbers by SplitMix64, so that the same seed gives the same packets "
    "everywhere. Beside them two schedules that follow from the report's equations and exceed its theorems.",
    full=Parameters(),
    quick=Parameters(sets=60, flows=32, packets=1500),
    seconds=(40.0, 4.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_paper,
    size=(10.0, 5.0),
)
