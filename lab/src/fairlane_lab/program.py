"""The program `fairlane`, for what must be a process of its own; and instructions, by valgrind."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .model import LabError

#: The variable that names the program.
VARIABLE = "FAIRLANE_PROGRAM"


@dataclass(frozen=True)
class Case:
    """What a controller of the papers' test environment does: ``fairlane bench --help`` explains it."""

    algorithm: str
    flow_sets: str
    qmin: str
    qmax: str
    arrivals: str = "smooth"
    aggregate: int = 8

    def __str__(self) -> str:
        return f"{self.algorithm} on {self.flow_sets}"


@dataclass(frozen=True)
class Program:
    """The program at a path."""

    path: Path

    @classmethod
    def find(cls, named: str | None = None) -> Program:
        """The one that was named, or that ``FAIRLANE_PROGRAM`` names, or that a checkout around this
        package or the current folder built, or the one in ``PATH``."""
        for given in (named, os.environ.get(VARIABLE)):
            if given:
                return cls._at(Path(given))
        for folder in (*Path(__file__).resolve().parents, Path.cwd()):
            built = folder / "target/release/fairlane"
            if (folder / "Cargo.toml").is_file() and built.is_file():
                return cls._at(built)
        in_path = shutil.which("fairlane")
        if in_path is None:
            raise LabError(
                "there is no program fairlane: `cargo build --release` makes it, and --fairlane PROGRAM or "
                f"{VARIABLE} names another"
            )
        return cls._at(Path(in_path))

    @classmethod
    def _at(cls, path: Path) -> Program:
        program = cls(path.absolute())
        if not program.version.startswith("fairlane "):
            raise LabError(f"{path} is not the program fairlane: it does not answer --version as that does")
        return program

    @functools.cached_property
    def version(self) -> str:
        """As it tells; nothing where it does not run."""
        try:
            said = subprocess.run(
                [self.path, "--version"], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return said.stdout.strip()

    def bench(self, case: Case, requests: int, under: tuple[str, ...] = ()) -> tuple[dict[str, Any], str]:
        """What ``fairlane bench`` reports of so many requests, and what was said beside it."""
        said = subprocess.run(
            [*under, self.path, "bench", "--json", "--alg", case.algorithm]
            + ["--flowsets", case.flow_sets, "--qmin", case.qmin, "--qmax", case.qmax]
            + ["--arrivals", case.arrivals, "--aggregate", str(case.aggregate), "-n", str(requests)],
            capture_output=True,
            text=True,
            check=False,
        )
        if said.returncode != 0:
            last = (said.stderr.strip() or "nothing was said").splitlines()[-1]
            raise LabError(f"fairlane bench of {case} ended with status {said.returncode}: {last}")
        return json.loads(said.stdout), said.stderr

    def ns_per_pair(self, case: Case, requests: int) -> float:
        """Nanoseconds of an enqueue and a dequeue."""
        return self.bench(case, requests)[0]["ns_per_pair"]

    def instructions_per_pair(self, case: Case, first: int, second: int) -> float:
        """Instructions of an enqueue and a dequeue: those that ``second`` requests take beyond the
        ``first``, where what is done once is done."""
        counted = []
        for requests in (first, second):
            report, said = self.bench(case, requests, _CALLGRIND)
            collected = re.search(r"Collected : (\d+)", said)
            if collected is None:
                raise LabError(f"valgrind did not say what it counted of fairlane bench of {case}")
            counted.append((int(collected[1]), report["enqueues"]))
        (before, pairs_before), (after, pairs_after) = counted
        return (after - before) / (pairs_after - pairs_before)


_CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")


def can_count() -> bool:
    """Whether there is valgrind."""
    return shutil.which("valgrind") is not None
