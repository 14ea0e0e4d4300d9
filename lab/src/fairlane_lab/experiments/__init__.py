"""The experiments: a module for each, with its paper's figures next to it as CSV."""

from __future__ import annotations

import difflib

from ..model import Experiment, LabError
from . import (
    altq_allocation,
    altq_filters,
    altq_guarantee,
    altq_overhead,
    altq_sharing,
    path,
    pspat_allocation,
    pspat_latency,
    pspat_scan,
    pspat_table1,
    pspat_table2,
    pspat_throughput,
    pspat_twfi,
    qfq_fig10,
    qfq_ns2,
    qfq_table4,
    qfq_wfi,
    qfqplus_fig2,
    qfqplus_fig3_7,
    qfqplus_fig8,
    qfqplus_table2,
)

#: The experiments, paper by paper, and those without a paper.
EXPERIMENTS: tuple[Experiment, ...] = tuple(
    module.EXPERIMENT
    for module in (
        qfq_table4,
        qfq_fig10,
        qfq_ns2,
        qfq_wfi,
        qfqplus_table2,
        qfqplus_fig2,
        qfqplus_fig3_7,
        qfqplus_fig8,
        pspat_table1,
        pspat_table2,
        pspat_throughput,
        pspat_allocation,
        pspat_latency,
        pspat_scan,
        pspat_twfi,
        altq_overhead,
        altq_filters,
        altq_allocation,
        altq_guarantee,
        altq_sharing,
        path,
    )
)


def names() -> list[str]:
    """The names of the experiments."""
    return [experiment.name for experiment in EXPERIMENTS]


def named(name: str) -> Experiment:
    """The experiment of this name."""
    for experiment in EXPERIMENTS:
        if experiment.name == name:
            return experiment
    # A part of a name, or else a slip of the finger.
    near = [known for known in names() if name and name in known]
    near = near or difflib.get_close_matches(name, names(), 1, 0.0)
    raise LabError(
        f"no experiment is called '{name}'; the nearest is '{near[0]}', and `fairlane-lab list` has all"
    )
