"""The flow sets of the QFQ+ paper's Section 8."""

from __future__ import annotations

#: Flows and their weight, set by set.
FLOW_SETS = {
    "1k-w1": [(1000, 1)],
    "1k-wmix": [(500, 1), (250, 2), (125, 8)],
    "32k-w1": [(32_000, 1)],
    "32k-wmix": [(16_000, 1), (8_000, 2), (4_000, 8)],
}

#: The one of Section 6, of which service guarantees alone are measured.
HIGHW = {"1k-highw": [(1, 333), (999, 1)]}

#: Bytes of a packet, about.
LENGTH = 1700


def count(name: str) -> int:
    """Flows of a set."""
    return sum(flows for flows, _ in FLOW_SETS[name])


def as_sets(name: str) -> str:
    """As ``fairlane bench`` takes them."""
    return ",".join(f"{weight}:{LENGTH}:{flows}" for flows, weight in FLOW_SETS[name])


def weights(name: str) -> list[int]:
    """The weight of each flow."""
    return [weight for flows, weight in (FLOW_SETS | HIGHW)[name] for _ in range(flows)]
