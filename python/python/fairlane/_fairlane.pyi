"""The compiled part. Use :mod:`fairlane`, which has the public interface."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Rate = str | int
_Link = tuple[str, _Rate, int, int]
_Cells = NDArray[np.uint64]
_Flows = tuple[NDArray[Any], NDArray[Any]]
_Arrivals = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

__version__: str

class NotBefore:
    """Packets are queued, and none may leave before ``time``, in nanoseconds. Its truth value is false."""

    time: int
    def __init__(self, time: int) -> None: ...
    def __bool__(self) -> bool: ...

class Scheduler:
    """Flows with their packets, which are any objects, in the order of an algorithm."""

    def __init__(
        self,
        algorithm: str,
        *,
        aggregate: int = 8,
        limit_packets: int | None = None,
        limit_bytes: int | None = None,
    ) -> None: ...
    @property
    def algorithm(self) -> str: ...
    def add_flow(
        self,
        weight: int = 1,
        max_len: int = 1500,
        *,
        limit_packets: int | None = None,
        limit_bytes: int | None = None,
    ) -> int: ...
    def change_flow(
        self,
        flow: int,
        weight: int,
        max_len: int,
        *,
        limit_packets: int | None = None,
        limit_bytes: int | None = None,
    ) -> None: ...
    def remove_flow(self, flow: int) -> list[tuple[int, Any]]:
        """Length and packet of each that was queued."""
    def enqueue(self, flow: int, length: int, packet: Any) -> None: ...
    def dequeue(self) -> tuple[int, int, Any] | None:
        """Flow, length and packet; ``None`` if no packet is queued."""
    def stats(self, flow: int | None = None) -> dict[str, int]: ...
    def __len__(self) -> int: ...

class Tree:
    def __init__(
        self,
        algorithm: str,
        *,
        aggregate: int = 8,
        limit_packets: int | None = None,
        limit_bytes: int | None = None,
    ) -> None: ...
    @property
    def algorithm(self) -> str: ...
    def remove(self, class_: int) -> None:
        """Removes a class without children, and discards its packets."""
    def flush(self, class_: int, now: int = 0) -> None:
        """Discards all packets of a class and its descendants."""
    def enqueue(
        self, class_: int, length: int, packet: Any, now: int = 0, *, flow: int = 0
    ) -> None: ...
    def dequeue(self, now: int = 0) -> tuple[int, int, Any] | NotBefore | None:
        """Class, length and packet; ``None`` if no packet is queued."""
    def take_discarded(self) -> list[tuple[int, int, Any, str]]:
        """Class, length, packet and reason of each accepted packet that the last call discarded.
        The reason is ``congestion``, ``flushed`` or ``displaced``."""
    def stats(self, class_: int = 0) -> dict[str, int]: ...
    def __len__(self) -> int: ...
    def _add_leaf(
        self, terms: dict[str, Any], queue: str, limit_packets: int | None, limit_bytes: int | None
    ) -> int: ...
    def _add_inner(self, terms: dict[str, Any], algorithm: str) -> int: ...
    def _add_flows(
        self,
        terms: dict[str, Any],
        algorithm: str,
        most: int,
        queue: tuple[str, int | None, int | None],
    ) -> int: ...

class Lengths:
    """The lengths of a source's packets, each drawn independently."""

    @staticmethod
    def fixed(length: int) -> Lengths: ...
    @staticmethod
    def uniform(least: int, most: int) -> Lengths: ...
    @staticmethod
    def weighted(choices: list[tuple[int, int]]) -> Lengths:
        """Lengths, each with a number to which its probability is proportional."""
    @property
    def longest(self) -> int: ...

class Traffic:
    """The arrival process of a source. Times are in seconds."""

    @staticmethod
    def greedy(packets: int = 2) -> Traffic:
        """Always backlogged: keeps this number of packets in the scheduler."""
    @staticmethod
    def cbr(rate: _Rate) -> Traffic: ...
    @staticmethod
    def poisson(rate: _Rate) -> Traffic: ...
    @staticmethod
    def on_off(peak: _Rate, mean_on: float, mean_off: float, alpha: float = 1.5) -> Traffic:
        """Sends at the peak rate while on; on and off times are Pareto distributed with shape ``alpha``."""
    @staticmethod
    def bursty(packets: int, period: float) -> Traffic: ...
    @staticmethod
    def _trace(times: NDArray[Any], lens: NDArray[Any]) -> Traffic: ...

class Flow:
    """A flow of a simulation: its weight, and its source, active from ``start`` to ``stop`` seconds."""

    def __init__(
        self,
        weight: int,
        traffic: Traffic,
        lengths: Lengths,
        *,
        max_len: int | None = None,
        start: float = 0.0,
        stop: float | None = None,
        limit_packets: int | None = None,
        limit_bytes: int | None = None,
    ) -> None: ...
    @property
    def weight(self) -> int: ...
    @property
    def max_len(self) -> int: ...

class Site:
    def __init__(self, path: str | os.PathLike[str]) -> None: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def links(self) -> list[str]: ...
    def _check(self) -> str: ...

class Client:
    """A client of a daemon: a mailbox in memory that both share. One thread at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None: ...
    def push(self, packet: bytes) -> None:
        """Pushes a packet, or raises at once: it never waits."""
    def close(self) -> None:
        """Detaches. Pushed packets are still sent."""
    @property
    def is_abandoned(self) -> bool: ...
    @property
    def class_name(self) -> str: ...
    @property
    def weight(self) -> int: ...
    @property
    def max_len(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def told(self) -> dict[str, int]:
        """Packets that the daemon took, skipped and dropped, with a lag of a few."""
    def __enter__(self) -> Client: ...
    def __exit__(self, *_: object) -> None: ...

def algorithms() -> list[tuple[str, str]]: ...
def replay(
    link: _Link, flows: _Flows, arrivals: _Arrivals, measured: bool
) -> tuple[_Cells, _Cells | None]: ...
def simulate(
    link: _Link,
    flows: list[Flow],
    time: tuple[float, int],
    queue: tuple[int | None, int | None],
    until_sent: bool,
) -> tuple[_Cells, _Cells]: ...
def fluid(link: _Link, flows: _Flows, arrivals: _Arrivals) -> _Cells: ...
def bounds(link: _Link, flows: _Flows, queued: int) -> _Cells: ...
def packets(traffic: Traffic, lengths: Lengths, seed: int, until: float) -> _Cells: ...
def scenario(
    path: str, link: str | None, seconds: float | None, seed: int | None, drawn: bool
) -> tuple[str, list[tuple[str, list[tuple[float, float]]]] | None]: ...
