"""Runs experiments one after the other and stores each as soon as it is done: an interrupted run resumes where it
stopped."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass, field
from typing import Any

from . import build, experiments, report, running
from .model import Experiment, LabError
from .output import PLOT, READ, Destination
from .program import Tools
from .progress import Progress


@dataclass
class Reproduction:
    """Experiments, and where their results go."""

    chosen: list[Experiment]
    quick: bool
    tools: Tools
    destination: Destination
    #: Why experiments are not done, by name; those that fail come to it.
    not_done: dict[str, str] = field(default_factory=dict)
    #: Names of those that were measured, and of those that failed.
    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def refuse(self, again: bool) -> None:
        """Refuses what would be lost: other files, and, if not asked for, the whole of an experiment to its quick
        form."""
        for one in self.chosen:
            self.destination.refuse(one.name)
            found = self.destination.record(one.name)
            if self.quick and not again and found is not None and not found["quick"]:
                raise LabError(
                    f"{self.destination.path} has {one.name} in its whole form, which the quick form replaces with "
                    "--again only: name another folder"
                )

    def keep(self) -> None:
        """Leaves out what this build measured already, in this form, and says so."""
        kept = {one.name: found for one in self.chosen if (found := self._kept(one)) is not None}
        for name, found in kept.items():
            print(
                f"kept {name}: this build measured it already, {found['measured']} (--again measures it anew)",
                file=sys.stderr,
            )
        self.chosen = [one for one in self.chosen if one.name not in kept]

    def _kept(self, one: Experiment) -> dict[str, Any] | None:
        """The record of a result that stands whole, and is what would be measured."""
        found = self.destination.record(one.name)
        if found is None or found["quick"] != self.quick:
            return None
        asked = report.parameters(one.parameters(self.quick, {}))
        now = report.of_build(build.of(running.equip(one, self.tools)))
        same = (found["parameters"], found["build"]) == (asked, now)
        place = self.destination.path / one.name
        files = [*(f"{table}.csv" for table in found["tables"]), PLOT, READ]
        return found if same and all((place / name).is_file() for name in files) else None

    def measure(self, whole: bool) -> None:
        """Measures; with ``whole``, a failure is reported, and the others continue."""
        progress = Progress({one.name: one.expected(self.quick) for one in self.chosen}, sys.stderr)
        for one in self.chosen:
            progress.start(one.name)
            try:
                said = self._measure(one, progress)
            except Exception as error:
                if not whole:
                    raise
                # An unexpected error is reported with its place.
                if not isinstance(error, LabError):
                    traceback.print_exc()
                said = f"failed: {error}"
                self.not_done[one.name] = said
                self.failed.append(one.name)
            progress.finish(said)

    def _measure(self, one: Experiment, progress: Progress) -> str:
        parameters = one.parameters(self.quick, {})
        result = running.measured(one, parameters, self.quick, self.tools, progress)
        with self.destination.replacing(one.name) as folder:
            report.write(result, folder)
        self.done.append(one.name)
        return "; ".join(verdict.word for verdict in result.verdicts)

    def write_page(self) -> None:
        """One page of all that stands in the folder, however it came there."""
        self.destination.write_page(report.page(self.destination, experiments.names(), self.not_done))
