"""Fair packet scheduling: schedulers of Python objects, simulated links, guarantees, a client.

Functions that take arrays run without the GIL, and Ctrl-C ends them within some 10 ms.
"""

from __future__ import annotations

import json
import operator
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _fairlane
from ._fairlane import Client, Flow, Lengths, NotBefore, Scheduler, Traffic, __version__
from ._tree import Tree
from .errors import (
    ArgumentError,
    AttachError,
    AttachRefused,
    DaemonGone,
    DtypeError,
    FairlaneError,
    LengthError,
    MailboxFull,
    RateError,
    Rejected,
    SiteError,
    UnknownAlgorithm,
    UnknownFlow,
    UnsortedError,
    WeightError,
)
from .records import (
    ARRIVALS,
    BOUNDS,
    DEPARTURES,
    FLOW_REPORT,
    FLOWS,
    PACKETS,
    SIM_FLOWS,
    columns,
    flows,
)
from .sweeps import sweep

Rate = str | int
Path = str | os.PathLike[str]

_ARRIVALS = ("time_ns", "flow", "len")
_FLOWS = ("weight", "max_len")


class Replayed(NamedTuple):
    """The result of a replay or a simulation."""

    #: In the order of service (:data:`DEPARTURES`).
    departures: NDArray
    #: By flow (:data:`FLOW_REPORT`, or :data:`SIM_FLOWS` of a simulation); ``None`` if not requested.
    flows: NDArray | None


def _list(argument: str, values: Any, kind: str) -> list:
    try:
        return list(values)
    except TypeError as error:
        what = type(values).__name__
        raise DtypeError(f"{argument} is {what}: it is a list of {kind}", argument) from error


def _seed(seed: Any) -> int:
    sentence = f"seed is {seed!r}: it is a whole number, 0 to {2**64 - 1}"
    try:
        number = operator.index(seed)
    except TypeError as error:
        raise DtypeError(sentence, "seed") from error
    if not 0 <= number < 2**64:
        raise ArgumentError(sentence, "seed")
    return number


def algorithms() -> dict[str, str]:
    """The algorithms by name, with a description of each."""
    return dict(_fairlane.algorithms())


def replay(
    algorithm: str,
    rate: Rate,
    flows: ArrayLike,
    arrivals: ArrayLike,
    *,
    overhead: int = 0,
    aggregate: int = 8,
    report: bool = False,
) -> Replayed:
    """Sends ``arrivals`` over a link of ``rate`` in the order of ``algorithm``: the departures that
    ``fairlane replay`` writes, to the nanosecond.

    ``flows`` are records of :data:`FLOWS` (:func:`flows` makes them), ``arrivals`` of :data:`ARRIVALS` in
    order of time; or tuples of these columns. Columns of 32 and 64 bits are not copied. ``overhead`` is the
    number of bytes that each packet takes on the link in addition to its own; ``aggregate`` is M of the
    algorithms whose name ends in +. With ``report`` both indexes, their bounds and the delays are measured for
    each flow.

    O(1) a packet in the O(1) algorithms; 40 bytes a departure.
    """
    departures, measured = _fairlane.replay(
        (algorithm, rate, overhead, aggregate),
        columns("flows", flows, _FLOWS),
        columns("arrivals", arrivals, _ARRIVALS),
        report,
    )
    return Replayed(
        departures.view(DEPARTURES), None if measured is None else measured.view(FLOW_REPORT)
    )


def sim(
    algorithm: str,
    rate: Rate,
    flows: list[Flow],
    seconds: float,
    *,
    seed: int = 1,
    aggregate: int = 8,
    queue_packets: int | None = None,
    queue_bytes: int | None = None,
    until_sent: bool = False,
) -> Replayed:
    """Simulates a link of ``rate`` to which ``flows`` send for ``seconds``, then sends the queued packets.

    The transmit queue before the link has room for ``queue_packets``, or ``queue_bytes``, in addition to the
    packet that is being sent; by default for none. For the indexes a packet is backlogged until it leaves the
    scheduler, as the proofs of the bounds assume; or, with ``until_sent``, until its last bit has left.

    The same arguments give the same result, to the bit.
    """
    flows = _list("flows", flows, "Flow")
    for index, flow in enumerate(flows):
        if not isinstance(flow, Flow):
            what = type(flow).__name__
            raise DtypeError(f"flows[{index}] is {what}: it is a Flow", "flows", index)
    if queue_packets is not None and queue_bytes is not None:
        raise ArgumentError("queue_packets and queue_bytes are given: one of both", "queue_bytes")
    departures, report = _fairlane.simulate(
        (algorithm, rate, 0, aggregate),
        flows,
        (seconds, seed),
        (queue_packets, queue_bytes),
        until_sent,
    )
    return Replayed(departures.view(DEPARTURES), report.view(SIM_FLOWS))


def fluid(
    rate: Rate, flows: ArrayLike, arrivals: ArrayLike, *, overhead: int = 0
) -> NDArray[np.uint64]:
    """Returns the time at which the ideal fluid server (GPS) finishes each of the ``arrivals``, in
    picoseconds, rounded down: 64 bits hold 213 days, so times should begin near 0. O(log flows) a packet."""
    return _fairlane.fluid(
        ("fifo", rate, overhead, 1),
        columns("flows", flows, _FLOWS),
        columns("arrivals", arrivals, _ARRIVALS),
    )


def bounds(
    algorithm: str,
    rate: Rate,
    flows: ArrayLike,
    *,
    overhead: int = 0,
    aggregate: int = 8,
    queue_bytes: int = 0,
) -> NDArray:
    """Returns the guarantees of ``algorithm`` for each of the ``flows`` (:data:`BOUNDS`): its share, its
    guaranteed rate while it is backlogged, both worst-case fair indexes, and ``delay_ns``, the worst-case
    delay of its longest packet at an empty queue. NaN without a guarantee. Strict priority has a
    bound, and a share of 1, for a flow alone on the highest level; the others have a share of 0.
    ``queue_bytes`` is the transmit queue, without the packet on the wire."""
    cells = _fairlane.bounds(
        (algorithm, rate, overhead, aggregate), columns("flows", flows, _FLOWS), queue_bytes
    )
    return cells.view(BOUNDS)


def packets(traffic: Traffic, lengths: Lengths, seconds: float, seed: int = 1) -> NDArray:
    """Returns the packets of an open-loop source within ``seconds`` (:data:`PACKETS`)."""
    return _fairlane.packets(traffic, lengths, seed, seconds).view(PACKETS)


def arrivals(
    sources: list[tuple[Traffic, Lengths]], seconds: float, seed: int = 1
) -> NDArray:
    """Returns the packets of these sources within ``seconds``, each a flow, in order of time
    (:data:`ARRIVALS`).

    Each has a seed of its own, derived from ``seed`` as in :func:`sim`, so the packets are
    the same, except that times are rounded down to nanoseconds.
    """
    seed = _seed(seed)
    sent = []
    for number, source in enumerate(_list("sources", sources, "tuples of Traffic and Lengths")):
        match source:
            case (Traffic() as traffic, Lengths() as lengths):
                own = (seed + number * 0x9E3779B97F4A7C15) % 2**64
            case _:
                what = type(source).__name__
                sentence = f"sources[{number}] is {what}: it is a Traffic and its Lengths"
                raise DtypeError(sentence, "sources", number)
        try:
            sent.append(packets(traffic, lengths, seconds, own))
        except ArgumentError as error:
            if error.argument != "traffic":
                raise
            raise ArgumentError(f"sources[{number}]: {error}", "sources", number) from None
    made = np.empty(sum(map(len, sent)), dtype=ARRIVALS)
    made["time_ns"] = np.concatenate([one["time_ps"] // 1000 for one in sent]) if sent else 0
    made["len"] = np.concatenate([one["len"] for one in sent]) if sent else 0
    made["flow"] = np.repeat(np.arange(len(sent)), np.array([len(one) for one in sent], dtype=np.int64))
    return made[np.argsort(made["time_ns"], kind="stable")]


def trace(time_ns: ArrayLike, len: ArrayLike) -> Traffic:
    """Returns a source that sends the given packets, at times since its start."""
    times, lens = columns("trace", (time_ns, len), ("time_ns", "len"))
    return Traffic._trace(times, lens)


class Site(_fairlane.Site):
    """A valid site file; otherwise :class:`SiteError` has line and column of each error.
    The MTUs are those of this machine's interfaces."""

    def check(self) -> dict[str, Any]:
        """Returns the guarantees of the file, as ``fairlane check --json`` prints them."""
        return json.loads(self._check())


class Scenario(dict):
    """The result of a scenario, as ``fairlane sim --json`` prints it, with ``rates``."""

    #: By class, seconds and Mbit/s over time; ``None`` if not requested, and for a network.
    rates: dict[str, NDArray] | None = None


def scenario(
    path: Path,
    *,
    link: str | None = None,
    seconds: float | None = None,
    seed: int | None = None,
    rates: bool = False,
) -> Scenario:
    """Simulates a scenario file, as ``fairlane sim`` does: returns the results of each class of the site,
    or of each source of a network."""
    text, drawn = _fairlane.scenario(os.fspath(path), link, seconds, seed, rates)
    outcome = Scenario(json.loads(text))
    if drawn is not None:
        outcome.rates = {name: np.array(points).reshape(-1, 2) for name, points in drawn}
    return outcome


def attach(path: Path) -> Client:
    """Attaches to the daemon that listens at ``path``, as a process of this user."""
    return Client(os.fspath(path))


__all__ = [
    "ARRIVALS",
    "BOUNDS",
    "DEPARTURES",
    "FLOWS",
    "FLOW_REPORT",
    "PACKETS",
    "SIM_FLOWS",
    "ArgumentError",
    "AttachError",
    "AttachRefused",
    "Client",
    "DaemonGone",
    "DtypeError",
    "FairlaneError",
    "Flow",
    "LengthError",
    "Lengths",
    "MailboxFull",
    "NotBefore",
    "RateError",
    "Rejected",
    "Replayed",
    "Scenario",
    "Scheduler",
    "Site",
    "SiteError",
    "Traffic",
    "Tree",
    "UnknownAlgorithm",
    "UnknownFlow",
    "UnsortedError",
    "WeightError",
    "__version__",
    "algorithms",
    "arrivals",
    "attach",
    "bounds",
    "flows",
    "fluid",
    "packets",
    "replay",
    "scenario",
    "sim",
    "sweep",
    "trace",
]
