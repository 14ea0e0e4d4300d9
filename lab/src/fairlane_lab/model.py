"""Experiments and their results."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .build import Build
    from .running import Run

Tables = dict[str, pd.DataFrame]


class LabError(Exception):
    """An error that the caller can correct: a sentence with the problem, the place and the allowed values."""


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds here, by figures."""

    #: The paper's statement.
    claim: str
    #: ``None`` where it cannot be shown on this machine.
    holds: bool | None
    #: The criterion for the figures.
    criterion: str
    #: The figures found.
    found: str
    #: Why not, where it does not hold or cannot be shown.
    why: str = ""

    @property
    def word(self) -> str:
        """In one or two words."""
        if self.holds is None:
            return "cannot be shown"
        return "holds" if self.holds else "does not hold"

    @property
    def line(self) -> str:
        """In one line."""
        why = f" {self.why}" if self.why and not self.holds else ""
        return f"{self.claim}: {self.word}. {self.found} (asked: {self.criterion}).{why}"


@dataclass(frozen=True)
class Experiment:
    """A table, a figure or a theorem of a paper, and how it is measured here."""

    name: str
    #: As a heading.
    title: str
    #: Where the paper has it.
    source: str
    #: The paper's conclusion, in a sentence.
    claim: str
    #: The method here, and its differences from the paper.
    method: str
    #: Parameters, a frozen dataclass: of the whole experiment, and of its form of seconds.
    full: Any
    quick: Any
    #: How long both take on two cores, about.
    seconds: tuple[float, float]
    #: Measures: tidy tables, one row a measurement, units in the names of columns.
    measure: Callable[[Run], Tables]
    #: Judges the tables against the paper's figures.
    judge: Callable[[Tables, pd.DataFrame], list[Verdict]]
    #: Draws them into a figure.
    draw: Callable[[Figure, Tables, pd.DataFrame], None]
    #: The paper's figures and ours: columns that name them, then ``paper`` and ``here``.
    beside: Callable[[Tables, pd.DataFrame], pd.DataFrame] | None = None
    #: Width and height of that, in inches.
    size: tuple[float, float] = (9.0, 4.2)
    #: Whether it needs the program ``fairlane``.
    needs_program: bool = False
    #: Whether it needs the program ``fairlane-instruments``.
    needs_instruments: bool = False
    #: How many cores it needs.
    cores: int = 1
    #: Its need of network namespaces: none, ``namespaces`` alone, or ``tcp`` flows between them too.
    network: str = ""

    @property
    def paper(self) -> pd.DataFrame:
        """The paper's own figures: the file with the experiment's name next to its module."""
        folder = resources.files(f"{__package__}.experiments")
        text = folder / f"{self.name.replace('-', '_')}.csv"
        with text.open("r", encoding="utf-8") as file:
            return pd.read_csv(file, comment="#")

    @property
    def measures_time(self) -> bool:
        """Whether other load on the machine affects its figures."""
        return self.needs_program or self.needs_instruments

    def expected(self, quick: bool) -> float:
        """How long it takes, in seconds, about."""
        return self.seconds[quick]

    def parameters(self, quick: bool, changes: Mapping[str, Any]) -> Any:
        """Its parameters, some of them changed."""
        base = self.quick if quick else self.full
        known = [field.name for field in dataclasses.fields(base)]
        for name in changes:
            if name not in known:
                raise LabError(f"{self.name} has no parameter '{name}', only {', '.join(known)}")
        return dataclasses.replace(base, **changes)


@dataclass
class Result:
    """The results of an experiment."""

    experiment: Experiment
    parameters: Any
    quick: bool
    tables: Tables
    #: Description of the machine, in a line.
    machine: str
    #: The fraction of all cores' time that other programs used, 0 to 1; ``None`` if unknown.
    others: float | None
    seconds: float
    #: What measured.
    build: Build | None = None

    @functools.cached_property
    def verdicts(self) -> list[Verdict]:
        """The paper's claims, judged."""
        return self.experiment.judge(self.tables, self.experiment.paper)

    def plot(self) -> Figure:
        """Our figures, with the paper's points."""
        from . import drawing

        return drawing.drawn(self)

    @property
    def remarks(self) -> list[str]:
        """Remarks that a reader needs to judge the figures."""
        found = []
        if self.quick:
            found.append("The quick form: fewer and shorter measurements than the whole experiment.")
        if self.others is not None and self.others > QUIET and self.experiment.measures_time:
            found.append(
                f"The machine was not quiet: other programs had {self.others:.0%} of all cores' time."
            )
        found += self.build.doubts if self.build else ()
        return found

    def _repr_html_(self) -> str:
        """For notebooks: verdicts and tables."""
        from . import report

        return report.fragment(self)


#: The most that other programs may have of all cores' time without a remark.
QUIET = 0.05
