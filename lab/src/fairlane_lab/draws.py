"""Numbers that are drawn, the same on every machine and in every release: whole ones only."""

from __future__ import annotations

_MASK = (1 << 64) - 1


class SplitMix64:
    """SplitMix64 (Steele, Lea, Flood: *Fast splittable pseudorandom number generators*, 2014)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        """64 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def below(self, end: int) -> int:
        """From 0 to ``end - 1``; evenly to one part in ``2^64 / end``."""
        return (self.next() * end) >> 64

    def between(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return low + self.below(high - low + 1)

    def octaves(self, low: int, high: int) -> int:
        """The same, but each doubling as likely as the next."""
        octave = self.between(low.bit_length(), high.bit_length())
        return self.between(max(low, 1 << (octave - 1)), min(high, (1 << octave) - 1))

    def shuffled(self, items: list) -> list:
        """In another order (Fisher and Yates)."""
        items = list(items)
        for end in range(len(items) - 1, 0, -1):
            other = self.below(end + 1)
            items[end], items[other] = items[other], items[end]
        return items
