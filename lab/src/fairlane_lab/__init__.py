"""The measurements of the papers behind Fairlane, repeated.

>>> import fairlane_lab as lab
>>> lab.names()                                         # what there is
>>> found = lab.run("qfq-fig10", quick=True)            # tables, verdicts
>>> found.plot()                                        # a figure of matplotlib
"""

from __future__ import annotations

from .experiments import EXPERIMENTS, names
from .model import Experiment, LabError, Result, Verdict
from .running import run

__all__ = ["EXPERIMENTS", "Experiment", "LabError", "Result", "Verdict", "names", "run"]
