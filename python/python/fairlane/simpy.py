"""Links for SimPy, and a scheduler for ns.py, whose departures are those of :func:`fairlane.replay`.

Time is exact, as there: a packet ends at the start of its busy period plus all bits sent in it over the
rate. An environment counts in whole nanoseconds (``unit=10**9``), or in seconds as floating-point numbers
(``unit=1``); then arrivals are rounded to a nanosecond, and the link acts a quarter
of a nanosecond later, after all arrivals of that nanosecond. That holds up to some 10^6 seconds.

Under ``wf2q`` and ``wfq`` an arrival during a transmission counts from the end of that transmission, as in a tree: the
order may differ from that of a replay, in which such an arrival counts from its own time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import simpy

from . import NotBefore, Scheduler, Tree
from .errors import ArgumentError, LengthError, Rejected, UnknownFlow, WeightError
from .records import DEPARTURES

_PICOS = 10**12

#: After all other events of an instant (SimPy's own priorities are 0 and 1): transmissions end, which may be
#: arrivals at another link; then queues are dequeued.
_END, _ASK = 2, 3


class _Late(simpy.Event):
    """An event after all others of its time."""

    def __init__(
        self, env: simpy.Environment, delay: float, priority: int, callback: Callable[[Any], None]
    ) -> None:
        super().__init__(env)
        self.callbacks.append(callback)
        self._ok = True
        self._value = None
        env.schedule(self, priority=priority, delay=delay)


#: Rejections that a simulation counts as drops. The others are mistakes of the simulation.
_DROPS = ("queue-full", "link-full", "congestion")

#: The largest weight of a scheduler.
_HEAVIEST = 10**6

#: The largest amount by which scaling may change a flow's share of the link.
_SHARE_ERROR = Fraction(1, 10**5)


def _weights(named: dict[Any, Any]) -> dict[Any, int]:
    """Returns integer weights from 1 to 1,000,000 in the proportions of these, within ``_SHARE_ERROR``
    of each share."""
    exact = {}
    for name, weight in named.items():
        try:
            # In decimal, as written: 0.1 is a tenth.
            exact[name] = Fraction(str(weight))
        except ValueError:
            exact[name] = Fraction(0)
        if exact[name] <= 0:
            sentence = f"weights[{name!r}] is {weight!r}: it is a positive number"
            raise WeightError(sentence, "weights") from None
    if all(w.denominator == 1 and w <= _HEAVIEST for w in exact.values()):
        return {name: int(w) for name, w in exact.items()}
    factor = _whole_factor(exact.values())
    if max(exact.values()) * factor > _HEAVIEST:
        factor = _HEAVIEST / max(exact.values())
    scaled = {name: max(1, round(w * factor)) for name, w in exact.items()}
    of, scaled_of = sum(exact.values()), sum(scaled.values())
    for name, weight in exact.items():
        if abs(Fraction(scaled[name], scaled_of) - weight / of) > _SHARE_ERROR:
            sentence = (
                f"weights[{name!r}] is {named[name]!r}: among these weights its share cannot be kept within "
                "10^-5 by whole weights from 1 to 1000000"
            )
            raise WeightError(sentence, "weights")
    return scaled


def _whole_factor(weights: Iterable[Fraction]) -> Fraction:
    """Returns the least factor that makes all of them integers."""
    denominator, numerator = 1, 0
    for weight in weights:
        denominator = math.lcm(denominator, weight.denominator)
        numerator = math.gcd(numerator, weight.numerator)
    return Fraction(denominator, numerator)


class Link:
    """A link of ``rate`` bit/s that sends the packets of ``queue``, a :class:`~fairlane.Scheduler` or a
    :class:`~fairlane.Tree`.

    :meth:`put` enqueues a packet; transmitted packets are passed to ``out.put``, if there is an
    ``out``. ``flow_of`` and ``length_of`` return the flow (or class) and the length of a packet, in bytes.
    With ``record``,
    :meth:`departures` has the transmitted packets.

    ``packets_dropped`` counts packets that found a full queue or that queue management dropped. A packet
    of an unknown flow, or longer than its flow's ``max_len``, is a mistake of the simulation and raises
    :class:`~fairlane.errors.Rejected`.
    """

    def __init__(
        self,
        env: simpy.Environment,
        queue: Scheduler | Tree,
        rate: int,
        *,
        unit: int = 1,
        out: Any = None,
        flow_of: Callable[[Any], int] = lambda packet: packet.flow_id,
        length_of: Callable[[Any], int] = lambda packet: packet.size,
        record: bool = False,
    ) -> None:
        if rate != int(rate) or rate <= 0:
            raise ArgumentError(f"rate is {rate}: it is a whole number of bits a second", "rate")
        if unit not in (1, 10**9):
            raise ArgumentError(
                f"unit is {unit}: an environment counts in seconds (1) or nanoseconds (10**9)", "unit"
            )
        self.env, self.queue, self.rate, self.unit = env, queue, int(rate), unit
        self.out, self.flow_of, self.length_of = out, flow_of, length_of
        self.packets_received = 0
        self.packets_dropped = 0
        self._clocked = isinstance(queue, Tree)
        self._record: list[tuple[int, int, int, int, int]] | None = [] if record else None
        #: The packet in transmission: packet, flow, length, arrival (ns), start (ps).
        self._sending: tuple[Any, int, int, int, int] | None = None
        #: Picoseconds: end of the last packet, start of the busy period; and its bits.
        self._free = self._began = self._bits = 0
        #: Counts requests to poll the queue; only the latest is valid.
        self._asked = 0
        self._waiting = False

    def put(self, packet: Any) -> bool:
        """Enqueues an arriving packet. Returns whether it was accepted, and not dropped."""
        now = self._now()
        flow, length = self.flow_of(packet), self.length_of(packet)
        if length != int(length):
            raise LengthError(f"a packet of {length} bytes: a length is a whole number", "length")
        held = (packet, now)
        self.packets_received += 1
        try:
            if self._clocked:
                self.queue.enqueue(flow, int(length), held, now)
                self._count_discarded()
            else:
                self.queue.enqueue(flow, int(length), held)
        except Rejected as rejected:
            if rejected.reason not in _DROPS:
                self.packets_received -= 1
                sentence = f"a packet of {int(length)} bytes for flow {flow!r}: {rejected}"
                raise Rejected(sentence, rejected.reason) from rejected
            self.packets_dropped += 1
            return False
        if self._sending is None and not self._waiting:
            self._ask(now)
        return True

    @property
    def in_service(self) -> Any:
        """The packet that is being sent, or ``None``."""
        return self._sending and self._sending[0]

    def departures(self) -> np.ndarray:
        """Departures so far (:data:`fairlane.DEPARTURES`)."""
        if self._record is None:
            raise ArgumentError("departures are kept with record=True", "record")
        return np.array(self._record, dtype=DEPARTURES)

    def sent(self, packet: Any) -> None:
        """Called when a packet has left: for subclasses."""
        if self.out is not None:
            self.out.put(packet)

    def discarded(self, packet: Any) -> None:
        """Called when an accepted packet will not be sent: for subclasses."""

    def _count_discarded(self) -> None:
        """Handles the packets that the last call of a tree discarded."""
        for _, _, (packet, _), _ in self.queue.take_discarded():
            self.packets_dropped += 1
            self.discarded(packet)

    def _now(self) -> int:
        """Returns the time in nanoseconds."""
        now = self.env.now
        return round(now * 1e9) if self.unit == 1 else int(now)

    def _at(self, nanos: int, priority: int, callback: Callable[[Any], None]) -> None:
        if self.unit == 1:
            _Late(self.env, max((nanos + 0.25) / 1e9 - self.env.now, 0.0), priority, callback)
        else:
            _Late(self.env, max(nanos - self.env.now, 0), priority, callback)

    def _ask(self, nanos: int) -> None:
        """Polls the queue at a time, after all other events of that time."""
        self._asked += 1
        asked = self._asked
        self._waiting = nanos <= self._now()

        def answer(_: Any) -> None:
            if asked == self._asked and self._sending is None:
                self._waiting = False
                self._start(max(nanos * 1000, self._free))

        self._at(nanos, _ASK, answer)

    def _start(self, picos: int) -> None:
        """Starts the next eligible packet, if any, on a free link."""
        nanos = picos // 1000
        if self._clocked:
            answer = self.queue.dequeue(nanos)
            self._count_discarded()
        else:
            answer = self.queue.dequeue()
        if isinstance(answer, NotBefore):
            self._ask(max(answer.time, nanos + 1))
            return
        if answer is None:
            return
        flow, length, (packet, arrival) = answer
        if picos > self._free or self._bits == 0:
            self._began, self._bits = picos, 0
        self._bits += length * 8
        self._sending = (packet, flow, length, arrival, picos)
        end = self._began + self._bits * _PICOS // self.rate
        self._at(end // 1000, _END, lambda _: self._end(end))

    def _end(self, picos: int) -> None:
        packet, flow, length, arrival, start = self._sending
        self._sending, self._free = None, picos
        self._ask(picos // 1000)
        if self._record is not None:
            self._record.append((start // 1000, picos // 1000, flow, length, arrival))
        self.sent(packet)


class Server(Link):
    """A scheduler for ns.py that replaces its ``WFQServer``, ``DRRServer`` and ``SPServer``.

    ``weights`` are a list, or a dictionary by class; ``flow_classes`` returns the class of a packet, by
    default its flow. Sizes are integers in bytes, at most ``max_len``: a longer packet raises
    :class:`~fairlane.errors.LengthError`, a packet of another class :class:`~fairlane.errors.UnknownFlow`.

    Weights are any positive numbers. Integers up to 1,000,000 are used unchanged. Others are scaled:
    by the least factor that makes all of them integers, or, if the largest would exceed 1,000,000, so that
    it is 1,000,000 and the others are rounded. Each share of the link stays within 10^-5;
    :class:`~fairlane.errors.WeightError` if that is not possible.

    ``zero_buffer`` and ``zero_downstream_buffer`` are as in ns.py: this element, or the one behind it, keeps
    its packets in the buffer of the element before.
    """

    def __init__(
        self,
        env: simpy.Environment,
        rate: int,
        weights: list[float] | dict[Any, float],
        algorithm: str = "qfq",
        *,
        flow_classes: Callable[[Any], Any] = lambda packet: packet.flow_id,
        max_len: int = 1500,
        aggregate: int = 8,
        zero_buffer: bool = False,
        zero_downstream_buffer: bool = False,
        unit: int = 1,
        record: bool = False,
    ) -> None:
        scheduler = Scheduler(algorithm, aggregate=aggregate)
        named = weights if isinstance(weights, dict) else dict(enumerate(weights))
        self.flow_classes, self.max_len = flow_classes, max_len
        self._numbers = {
            name: scheduler.add_flow(weight, max_len) for name, weight in _weights(named).items()
        }
        self._zero_buffer = zero_buffer
        #: Transmitted packets that the next element has not taken, if they stay here.
        self._retained = simpy.Store(env) if zero_downstream_buffer else None
        self._upstream: dict[Any, tuple[Any, Any]] = {}
        super().__init__(
            env,
            scheduler,
            rate,
            unit=unit,
            flow_of=self._flow_of,
            length_of=self._length_of,
            record=record,
        )

    def put(self, packet: Any, upstream_update: Any = None, upstream_store: Any = None) -> bool:
        """Enqueues a packet. If this element has no buffer, the packet stays in that of the element before."""
        if self._zero_buffer and upstream_update is not None and upstream_store is not None:
            self._upstream[packet] = (upstream_update, upstream_store)
        accepted = False
        try:
            accepted = super().put(packet)
        finally:
            if not accepted:
                self._upstream.pop(packet, None)
        return accepted

    def update(self, packet: Any) -> None:
        """Removes a packet that has left this element's buffer from that of the element before, if it is there."""
        update, store = self._upstream.pop(packet, (None, None))
        if update is not None:
            store.get()
            update(packet)

    def sent(self, packet: Any) -> None:
        if self._retained is None:
            self.update(packet)
            super().sent(packet)
        elif self.out is not None:
            self._retained.put(packet)
            self.out.put(packet, upstream_update=self.update, upstream_store=self._retained)

    def _flow_of(self, packet: Any) -> int:
        name = self.flow_classes(packet)
        if name not in self._numbers:
            known = ", ".join(map(repr, self._numbers))
            raise UnknownFlow(f"a packet of class {name!r}: the classes are {known}", "flow_classes")
        return self._numbers[name]

    def _length_of(self, packet: Any) -> int:
        if not 1 <= packet.size <= self.max_len:
            raise LengthError(
                f"a packet of {packet.size} bytes: packets have 1 to {self.max_len} bytes (max_len)", "max_len"
            )
        return packet.size

    def packet_in_service(self) -> Any:
        """For ns.py's monitors."""
        return self.in_service

    def byte_size(self, queue_id: Any) -> int:
        """Bytes of a class, with the packet in service, for ns.py's monitors."""
        return self._held(queue_id, "queued_bytes", lambda length: length)

    def size(self, queue_id: Any) -> int:
        """Packets of a class, likewise."""
        return self._held(queue_id, "queued_packets", lambda _: 1)

    def all_flows(self) -> list:
        """The classes."""
        return list(self._numbers)

    def _held(self, queue_id: Any, key: str, of: Callable[[int], int]) -> int:
        number = self._numbers.get(queue_id)
        if number is None:
            return 0
        sending = self._sending
        more = of(sending[2]) if sending is not None and sending[1] == number else 0
        return self.queue.stats(number)[key] + more
