"""The throughput and cost of forwarding, and of scheduling, between two interfaces, compared with the kernel."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fairlane
import numpy as np
import pandas as pd

from .. import drawing
from ..model import Experiment, Tables, Verdict
from . import _altq

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..running import Run

#: A link that is never the bottleneck, in Mbit/s.
MBIT = 20_000.0

#: The instrument's ports: of the flood's classes, one after the other, and of the probe.
FIRST_PORT, PROBE_PORT = 10_000, 9_000

#: The guaranteed rate of the probe's class, in Mbit/s: a fiftieth of the link, so that it exceeds the probe's rate
#: even at the much lower throughput of processors.
PROBE_MBIT = 400.0

#: Room of each of the flood's classes: more than its guarantee needs with frames of full length, and no more than there
#: are frames for with ten thousand of them over xdp.
ROOM = {"packets": 12, "bytes": "20kb"}

#: Frames that the daemon receives at once.
BATCH = 64


@dataclass(frozen=True)
class Contender:
    """A forwarder: the kernel's bridge or the daemon, with a number of classes in addition to the probe's, or
    none."""

    #: ``kernel``, or how the daemon reads and writes frames.
    way: str
    classes: int = 0
    #: Whether the daemon receives on threads of their own.
    workers: bool = False

    def __str__(self) -> str:
        if self.way == "kernel":
            return f"HTB, {self.classes:,} classes" if self.classes else "kernel's bridge"
        threads = ", workers" if self.workers else ""
        return f"{self.way}{threads}, {f'{self.classes:,} classes' if self.classes else 'no scheduler'}"


KERNEL = (Contender("kernel"), Contender("kernel", 4), Contender("kernel", 10_000))
DAEMON = (
    *(Contender(way, classes) for way in _altq.WAYS for classes in (0, 4, 10_000)),
    *(Contender(way, 4, workers=True) for way in _altq.WAYS),
)


@dataclass(frozen=True)
class Parameters(_altq.Rounds):
    """How it is measured."""

    contenders: tuple[Contender, ...] = (*KERNEL, *DAEMON)
    frames_bytes: tuple[int, ...] = (60, 1514)
    cores: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    contender: Contender
    frame_bytes: int
    cores: int

    def __str__(self) -> str:
        return f"{self.contender}, {self.frame_bytes} bytes, {self.cores} cores"


def site(contender: Contender) -> str:
    """The daemon's file: a class for each port of the flood, and the probe's."""
    workers = ("[workers]\n\n",) if contender.workers else ()
    # A site shapes one direction at least.
    back = _altq.table("link", name="down", to="inside", rate=_altq.bits(MBIT))
    if not contender.classes:
        return _altq.site(contender.way, *workers, back)
    names = [f"class-{number}" for number in range(contender.classes)]
    return _altq.site(
        contender.way,
        *workers,
        _altq.link(MBIT, "qfq+"),
        _altq.leaf_of("probe", rate=_altq.bits(PROBE_MBIT)),
        *(_altq.leaf_of(name, rate="1mbit", room=ROOM) for name in names),
        _altq.leaf_of("rest", default=True),
        _altq.filter_to("probe", protocol="udp", destination_port=PROBE_PORT),
        *(
            _altq.filter_to(name, protocol="udp", destination_port=FIRST_PORT + number)
            for number, name in enumerate(names)
        ),
    )


def htb(classes: int) -> str:
    """Commands for ``tc -batch``: the same classes by HTB, found by the port in two tables of 256."""
    rate = _altq.bits(MBIT)
    to_link = "filter add dev outside parent 1: protocol ip prio 1"
    is_udp = "match ip protocol 17 0xff"

    def leaf(minor: int, guaranteed: str) -> str:
        return (
            f"class add dev outside parent 1:1 classid 1:{minor:x} htb rate {guaranteed} ceil {rate} quantum 1514"
        )

    # The minor numbers 1, 2 and 3 are the link's, the probe's and the default class's.
    lines = [
        "qdisc add dev outside root handle 1: htb default 3",
        f"class add dev outside parent 1: classid 1:1 htb rate {rate} ceil {rate}",
        leaf(2, _altq.bits(PROBE_MBIT)),
        leaf(3, "1mbit"),
        *(leaf(16 + number, "1mbit") for number in range(classes)),
        f"{to_link} handle 2: u32 divisor 256",
        f"{to_link} u32 ht 800:: {is_udp} match u16 {PROBE_PORT} 0xffff at 22 flowid 1:2",
        f"{to_link} u32 ht 800:: {is_udp} hashkey mask 0x0000ff00 at 20 link 2:",
    ]
    ports = range(FIRST_PORT, FIRST_PORT + classes)
    for high in sorted({port >> 8 for port in ports}):
        lines.append(f"{to_link} handle {0x100 + high:x}: u32 divisor 256")
        lines.append(
            f"{to_link} u32 ht 2:{high:x}: match u8 0 0 at 0 hashkey mask 0x000000ff at 20 link {0x100 + high:x}:"
        )
    for number, port in enumerate(ports):
        table = f"{0x100 + (port >> 8):x}:{port & 0xFF:x}:"
        lines.append(f"{to_link} u32 ht {table} match u16 {port} 0xffff at 22 flowid 1:{16 + number:x}")
    return "\n".join(lines) + "\n"


def _measured(run: Run, cell: Cell) -> dict[str, Any]:
    asked: Parameters = run.parameters
    contender = cell.contender
    with tempfile.TemporaryDirectory(prefix="fairlane-lab-") as folder:
        options: list[object] = ["--frame", cell.frame_bytes, "--ports", max(contender.classes, 1)]
        if contender.way != "kernel":
            path = Path(folder) / "site.toml"
            path.write_text(site(contender))
            options += ["--site", path]
        elif contender.classes:
            path = Path(folder) / "htb.tc"
            path.write_text(htb(contender.classes))
            options += ["--tc", path]
        options += ["--one-core"] if cell.cores == 1 else []
        return _altq.figures(run, "path", *options, "--seconds", asked.seconds)


def bound_us(contender: Contender) -> float:
    """The delay bound of the probe's class from ``check``, in microseconds; ``None`` without one."""
    if contender.way == "kernel" or not contender.classes:
        return float("nan")
    with tempfile.TemporaryDirectory(prefix="fairlane-lab-") as folder:
        path = Path(folder) / "site.toml"
        path.write_text(site(contender))
        report = fairlane.Site(path).check()
    classes = [one for link in report["links"] for one in link["classes"] if one["name"] == "probe"]
    return classes[0]["bound_us"]


def measure(run: Run) -> Tables:
    """Every contender with every length of frame, on one core and on two."""
    asked: Parameters = run.parameters
    contenders = [one for one in asked.contenders if one.way != "kernel" or not one.classes or shutil.which("tc")]
    cells = [Cell(*one) for one in itertools.product(contenders, asked.frames_bytes, asked.cores)]
    found = run.rounds(cells, lambda cell: _measured(run, cell), asked.rounds, asked.seed)
    bounds = {contender: bound_us(contender) for contender in contenders}
    carried, probes = [], []
    for cell, figures in zip(cells, found):
        named = {
            "contender": str(cell.contender),
            "cores": cell.cores,
            "frame_bytes": cell.frame_bytes,
        }
        mpps = [one["arrived_mpps"] for one in figures]
        carried.append(
            {
                **named,
                "mpps": float(np.median(mpps)),
                "mpps_least": min(mpps),
                "mpps_most": max(mpps),
                "sent_mpps": _median(figures, "sent_mpps"),
                "machine_ns": _median(figures, "machine_ns_per_frame"),
                "daemon_ns": _median(figures, "daemon_ns_per_frame"),
                "daemon_kernel_ns": _median(figures, "daemon_kernel_ns_per_frame"),
            }
        )
        of = [one["probe"] for one in figures]
        probes.append(
            {
                **named,
                "sent": sum(one["sent"] for one in of),
                "lost": sum(one["lost"] for one in of),
                **{name: _median(of, name) for name in ("p50_us", "p99_us")},
                "max_us": max((one["max_us"] for one in of if one["max_us"] is not None), default=float("nan")),
                "bound_us": bounds[cell.contender],
            }
        )
    return {"carried": pd.DataFrame(carried), "probe": pd.DataFrame(probes)}


def _median(figures: list[dict[str, Any]], name: str) -> float:
    known = [one[name] for one in figures if one[name] is not None]
    return float(np.median(known)) if known else float("nan")


def judge(tables: Tables, paper: pd.DataFrame) -> list[Verdict]:
    """Ratios of the throughput with the most cores; then the probe."""
    carried, probe = tables["carried"], tables["probe"]
    most = carried[carried["cores"] == carried["cores"].max()]
    mpps = most.pivot(index="contender", columns="frame_bytes", values="mpps")
    shaped = [str(Contender("xdp", classes)) for classes in (4, 10_000)]
    goals = paper.set_index("over")["least"]
    return [
        _over(
            "over xdp the scheduler leaves the bridge its packets",
            mpps,
            [(name, str(Contender("xdp"))) for name in shaped],
            goals["our bridge without a scheduler over xdp"],
            "The thread parses, classifies, queues and paces each frame where the bridge only passes it on.",
        ),
        _several_times(most, mpps, goals["HTB with 10000 classes"]),
        _over(
            "one thread over xdp is ahead of the kernel's bridge with HTB",
            mpps,
            [(str(Contender("xdp", classes)), str(Contender("kernel", classes))) for classes in (4, 10_000)],
            1.0,
            "The kernel forwards where the sender runs, without waking anybody up, and each frame once.",
        ),
        *_of_probe(probe),
    ]


def _over(claim: str, mpps: pd.DataFrame, pairs: list[tuple[str, str]], least: float, why: str) -> Verdict:
    """Each over its other at least so much, for every length of frame."""
    known = [(ours, theirs) for ours, theirs in pairs if ours in mpps.index and theirs in mpps.index]
    criterion = f"{least:g} times as many packets a second at least, with every length of frame and all cores"
    if not known:
        return Verdict(claim, None, criterion, "not measured", "There is no tc(8), or one of the two was not asked for.")
    ratios = pd.DataFrame({pair: mpps.loc[pair[0]] / mpps.loc[pair[1]] for pair in known})
    found = "; ".join(
        f"{ours} over {theirs}: " + ", ".join(f"{ratios[ours, theirs][size]:.2f} at {size} bytes" for size in ratios.index)
        for ours, theirs in known
    )
    return Verdict(claim, bool(ratios.to_numpy().min() >= least), criterion, found, why)


def _several_times(most: pd.DataFrame, mpps: pd.DataFrame, least: float) -> Verdict:
    """Ten thousand classes compared with HTB's: the required multiple, unless the kernel's part of a frame alone
    forbids it."""
    ours, theirs = str(Contender("xdp", 10_000)), str(Contender("kernel", 10_000))
    verdict = _over(
        "over xdp ten thousand classes carry several times what HTB's carry, as far as the kernel lets them",
        mpps,
        [(ours, theirs)],
        least,
        "The kernel's part of a frame is copies from and to a virtual cable, and what a call costs.",
    )
    criterion = f"{verdict.criterion}; or a daemon that took no time of its own could not carry as much"
    if verdict.holds is None:
        return replace(verdict, criterion=criterion)
    kernel = most[most["contender"] == ours].set_index("frame_bytes")
    # The daemon forwards on one core, and the sender has the other.
    could_be = 1e3 / kernel["daemon_kernel_ns"] / mpps.loc[theirs]
    parts = ", ".join(
        f"{one.daemon_kernel_ns:,.0f} of {one.daemon_ns:,.0f} ns at {size} bytes, with which alone it would be {could_be[size]:.2f}"
        for size, one in kernel.iterrows()
    )
    return replace(
        verdict,
        criterion=criterion,
        found=f"{verdict.found}. The daemon is in the kernel for {parts}",
        holds=bool(((mpps.loc[ours] / mpps.loc[theirs] >= least) | (could_be < least)).all()),
    )


def _of_probe(probe: pd.DataFrame) -> list[Verdict]:
    ours = probe[probe["bound_us"].notna()]
    if not len(ours):
        return []
    lost = ours.loc[(ours["lost"] / ours["sent"]).idxmax()]
    # A frame that arrives just after the others of a batch waits until they are queued.
    late = ours["max_us"] - ours["bound_us"]
    worst = ours.loc[late.idxmax()]
    return [
        Verdict(
            "a class that keeps to its guarantee loses nothing beside a flood",
            bool(lost["lost"] == 0),
            "no datagram of the probe is lost, whoever schedules, with every length of frame, on one core and on all",
            f"{lost['lost']} of {lost['sent']} at the most ({lost['contender']}, {lost['frame_bytes']} bytes, "
            f"{lost['cores']} cores)",
            "What the kernel drops before the daemon has it is beyond its reach: the ring of the interface is full where "
            "the thread does not get its core for long enough.",
        ),
        Verdict(
            "and waits no longer than its bound and a batch",
            bool((late <= _batch_us(ours)).all()),
            f"its longest delay is within what `check` promises and {BATCH} frames more at the link's rate",
            f"{worst['max_us']:,.0f} us at the most where {worst['bound_us']:.3g} us are promised ({worst['contender']}, "
            f"{worst['frame_bytes']} bytes, {worst['cores']} cores); half of all within {ours['p50_us'].median():,.0f} us",
            "The promise is for what the daemon has received. A frame waits for its turn in the interface's ring before "
            "that, behind what the flood has there, and whenever the thread has no core.",
        ),
    ]


def _batch_us(ours: pd.DataFrame) -> pd.Series:
    """The time of a batch of the flood at the link's rate: next to nothing."""
    return ours["frame_bytes"] * 8 * BATCH / MBIT


def draw(figure: Figure, tables: Tables, _paper: pd.DataFrame) -> None:
    """The throughput by length of frame and number of cores; the probe's delays during the shortest frames."""
    carried, probe = tables["carried"], tables["probe"]
    names = list(dict.fromkeys(carried["contender"]))
    sizes = sorted(carried["frame_bytes"].unique())
    cores = sorted(carried["cores"].unique())
    all_axes = figure.subplots(1, len(sizes) + 1, sharey=True)
    for axes, size in zip(all_axes, sizes):
        for number, count in enumerate(cores):
            of = carried[(carried["frame_bytes"] == size) & (carried["cores"] == count)].set_index("contender").loc[names]
            _across(axes, of, ("mpps_least", "mpps", "mpps_most"), number, len(cores), f"{count} cores" if count > 1 else "1 core")
        axes.set_xlim(left=0)
        axes.set_xlabel(f"million frames of {size} bytes a second:\nmedian, least and most")
    last = all_axes[-1]
    for number, count in enumerate(cores):
        of = probe[(probe["frame_bytes"] == sizes[0]) & (probe["cores"] == count)].set_index("contender").loc[names]
        _across(last, of, ("p50_us", "p99_us", "max_us"), number, len(cores), "")
    last.set_xscale("log")
    drawing.plain_numbers(last, x=True)
    last.set_xlabel(f"delay of a thin flow beside {sizes[0]} byte frames (us):\nhalf, 99% (marked) and all within")
    all_axes[0].set_yticks(range(len(names)), names)
    all_axes[0].set_ylabel("who forwards")
    all_axes[0].invert_yaxis()
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(cores))


def _across(
    axes: Axes, of: pd.DataFrame, columns: tuple[str, str, str], number: int, count: int, label: str
) -> None:
    """A point and its range for each contender, side by side."""
    least, middle, most = (of[column].to_numpy(float) for column in columns)
    y = [place + _altq.aside(number, count) for place in range(len(of))]
    look = {**drawing.style(number), "linestyle": "none", "capsize": 3, "linewidth": 0.9}
    axes.errorbar(middle, y, xerr=[middle - least, most - middle], label=label, **look)
    axes.grid(axis="y", visible=False)


def beside_goals(tables: Tables, paper: pd.DataFrame) -> pd.DataFrame:
    """The goals and the results, the least over the lengths of frames."""
    carried = tables["carried"]
    most = carried[carried["cores"] == carried["cores"].max()]
    mpps = most.pivot(index="contender", columns="frame_bytes", values="mpps")
    pairs = {
        "our bridge without a scheduler over xdp": (Contender("xdp", 10_000), Contender("xdp")),
        "HTB with 10000 classes": (Contender("xdp", 10_000), Contender("kernel", 10_000)),
    }
    rows = []
    for goal in paper.itertuples():
        ours, theirs = (str(one) for one in pairs[goal.over])
        if ours in mpps.index and theirs in mpps.index:
            ratio = float((mpps.loc[ours] / mpps.loc[theirs]).min())
            rows.append({"figure": f"xdp, 10,000 classes, over {goal.over}", "paper": goal.least, "here": ratio})
    return pd.DataFrame(rows, columns=["figure", "paper", "here"])


EXPERIMENT = Experiment(
    name="path",
    title="what passes between two interfaces beside the kernel",
    source="No paper: what this project asks of its data path (docs/performance.md)",
    claim="with ten thousand classes the daemon over xdp carries 0.9 of what it does without a scheduler and three times "
    "what HTB carries; a flow in a class of its own loses nothing beside a flood, and stays within its bound and a batch",
    method="A sender, the middle and a receiver are network namespaces joined by virtual cables, without offloads. The "
    "sender floods by AF_XDP from the first core, to a port of each class in turns; the receiver is not whom the "
    "frames are for, and drops them at once, whoever forwards. Counted is what arrives there. The time of a frame is "
    "all that the machine worked by what arrived, sender and receiver included. The link has 20 Gbit/s, and each class "
    "may take it, so that processors decide. HTB's classes are found by tables of the port. The thin flow has 200 "
    "datagrams a second from the same sender, in a class with a fiftieth of the link; its delay ends where the "
    "receiver's kernel has the frame. On one core all three share it.",
    full=Parameters(),
    quick=Parameters(
        seconds=0.5, rounds=1, frames_bytes=(60,), cores=(2,),
        contenders=(KERNEL[0], KERNEL[1], Contender("xdp"), Contender("xdp", 4), Contender("packet", 4)),
    ),
    seconds=(780.0, 15.0),
    measure=measure,
    judge=judge,
    draw=draw,
    beside=beside_goals,
    size=(13.0, 5.4),
    needs_instruments=True,
    network="namespaces",
)  # fmt: skip
