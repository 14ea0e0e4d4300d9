"""The class tree."""

from __future__ import annotations

from . import _fairlane

#: The root class.
ROOT = 0


class Tree(_fairlane.Tree):
    """Classes of packets, which are any objects, in the order of ``algorithm`` among the topmost ones.

    ``aggregate`` is M of the algorithms whose name ends in +. All classes together queue at most
    ``limit_packets`` packets and ``limit_bytes`` bytes, by default as many as there is memory for. Times are
    integers in nanoseconds of any clock, needed only with ceilings or CoDel. A class is an integer.
    """

    def leaf(
        self,
        weight: int = 1,
        max_len: int = 1500,
        *,
        parent: int = ROOT,
        level: int = 0,
        ceil: str | int | None = None,
        burst: int | None = None,
        queue: str = "tail",
        limit_packets: int | None = None,
        limit_bytes: int | None = None,
    ) -> int:
        """Adds a class with a queue: ``weight`` (or ``level``, where strict priority is above) among its
        siblings, packets up to ``max_len``. ``ceil`` is a rate that it never exceeds, ``burst`` the bytes
        that it may send at once then. ``queue`` is ``tail`` or ``codel``."""
        terms = _terms(weight, max_len, parent, level, ceil, burst)
        return self._add_leaf(terms, queue, limit_packets, limit_bytes)

    def inner(
        self,
        algorithm: str,
        weight: int = 1,
        max_len: int = 1500,
        *,
        parent: int = ROOT,
        level: int = 0,
        ceil: str | int | None = None,
        burst: int | None = None,
    ) -> int:
        """Adds a class whose children ``algorithm`` orders."""
        return self._add_inner(_terms(weight, max_len, parent, level, ceil, burst), algorithm)

    def flows(
        self,
        algorithm: str = "drr",
        weight: int = 1,
        max_len: int = 1500,
        *,
        most: int = 1 << 16,
        parent: int = ROOT,
        level: int = 0,
        ceil: str | int | None = None,
        burst: int | None = None,
        queue: str = "tail",
        limit_packets: int | None = None,
        limit_bytes: int | None = None,
    ) -> int:
        """Adds a class that creates a queue for each ``flow`` of its packets, at most ``most`` of them
        at a time."""
        terms = _terms(weight, max_len, parent, level, ceil, burst)
        return self._add_flows(terms, algorithm, most, (queue, limit_packets, limit_bytes))


def _terms(weight, max_len, parent, level, ceil, burst) -> dict:
    return {
        "parent": parent,
        "weight": weight,
        "level": level,
        "max_len": max_len,
        "ceil": ceil,
        "burst": burst,
    }
