"""How far a reproduction is, and how long the rest takes."""

from __future__ import annotations

import time
from typing import TextIO


def duration(seconds: float) -> str:
    """In words: ``40 s``, ``12 min``."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class Progress:
    """Reports progress on a stream, or not at all. Estimates for later experiments follow the durations of earlier
    ones."""

    def __init__(
        self, expected: dict[str, float], stream: TextIO | None = None, clock=time.monotonic
    ) -> None:
        self._expected = expected
        self._stream = stream
        self._clock = clock
        self._took: dict[str, float] = {}
        self._name = ""
        self._begin = clock()
        self._done = self._steps = 0
        self._said = float("-inf")
        self._live = stream is not None and stream.isatty()

    def start(self, name: str) -> None:
        """The experiment of this name begins."""
        self._name, self._begin = name, self._clock()
        self._done = self._steps = 0
        if not self._live:
            self._line(f"{self._place()} {name}: about {duration(self.left()[0])}")

    def expect(self, steps: int) -> None:
        """Announces further steps."""
        self._steps += steps

    def tick(self, what: str = "") -> None:
        """One more is done."""
        self._done += 1
        if self._live and self._clock() - self._said > 0.1:
            self._said = self._clock()
            own, whole = self.left()
            part = self._done / max(self._steps, self._done)
            text = f"{self._place()} {self._name}: {part:.0%} {what[:30]}, {duration(own)} left"
            more = f", {duration(whole)} for all" if len(self._expected) > 1 else ""
            print(f"\r{text}{more}\x1b[K", end="", file=self._stream, flush=True)

    def finish(self, said: str) -> None:
        """It has ended, with this to say."""
        took = self._clock() - self._begin
        self._took[self._name] = took
        clear = "\r\x1b[K" if self._live else ""
        self._line(f"{clear}{self._place()} {self._name}: {said}, {duration(took)}")

    def left(self) -> tuple[float, float]:
        """Seconds that this experiment and all of them still take, about."""
        expected = sum(self._expected.get(name, 0.0) for name in self._took)
        pace = sum(self._took.values()) / expected if expected else 1.0
        gone = self._clock() - self._begin
        part = self._done / self._steps if self._steps else 0.0
        own = self._expected.get(self._name, 0.0) * pace - gone
        if part > 0.05:
            own = gone / part * (1.0 - part)
        own = max(own, 0.0)
        to_come = (
            seconds
            for name, seconds in self._expected.items()
            if name not in self._took and name != self._name
        )
        return own, own + pace * sum(to_come)

    def _place(self) -> str:
        names = list(self._expected)
        return f"[{names.index(self._name) + 1}/{len(names)}]" if self._name in names else "[-]"

    def _line(self, text: str) -> None:
        if self._stream is not None:
            print(text, file=self._stream, flush=True)
