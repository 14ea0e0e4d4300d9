"""The programs, for what must be a process of its own; and instructions, by valgrind."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from .model import LabError

#: Seconds that a program has to end by itself after the request to end, and that it may take at all: no
#: measurement does.
PATIENCE = 20.0
LONGEST = 1800.0

#: Those that run, in whatever thread they were started; and held while one is started, until it is among them.
_RUNNING: set[subprocess.Popen] = set()
_STARTING = threading.Lock()


def end_all() -> None:
    """Asks all running programs to end: a thread that waits for one does not notice an interrupt."""
    with _STARTING:
        running = tuple(_RUNNING)
    for process in running:
        process.terminate()


Found = TypeVar("Found", bound="Executable")


@dataclass(frozen=True)
class Case:
    """The controller of the papers' test environment: ``fairlane bench --help`` explains it."""

    algorithm: str
    flow_sets: str
    qmin: str
    qmax: str
    arrivals: str = "smooth"
    aggregate: int = 8

    def __str__(self) -> str:
        return f"{self.algorithm} on {self.flow_sets}"


@dataclass(frozen=True)
class Executable:
    """A program at a path."""

    path: Path

    #: Its file's name, the variable and the option that name another, and what builds it.
    name: ClassVar[str]
    variable: ClassVar[str]
    option: ClassVar[str]
    built_by: ClassVar[str]

    @classmethod
    def find(cls: type[Found], named: str | None = None) -> Found:
        """The one that was named, or that the variable names, or that a checkout around this package or
        the current folder built, or the one in ``PATH``."""
        for given in (named, os.environ.get(cls.variable)):
            if given:
                return cls._at(Path(given))
        for folder in (*Path(__file__).resolve().parents, Path.cwd()):
            built = folder / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / cls.name
            if (folder / "Cargo.toml").is_file() and built.is_file():
                return cls._at(built)
        in_path = shutil.which(cls.name)
        if in_path is None:
            raise LabError(
                f"there is no program {cls.name}: `{cls.built_by}` makes it, and {cls.option} PROGRAM or "
                f"{cls.variable} names another"
            )
        return cls._at(Path(in_path))

    @classmethod
    def _at(cls: type[Found], path: Path) -> Found:
        program = cls(path.absolute())
        if not program.version.startswith(f"{cls.name} "):
            raise LabError(f"{path} is not the program {cls.name}: it does not answer --version as that does")
        return program

    @functools.cached_property
    def version(self) -> str:
        """The version that it reports; empty if it does not run."""
        try:
            said = subprocess.run(
                [self.path, "--version"], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return said.stdout.strip()

    def asked(self, *arguments: object, under: tuple[str, ...] = ()) -> tuple[dict[str, Any], str]:
        """The object that it prints, and its messages. On an interrupt, it ends the program first, which may have
        to clean up."""
        words = [str(argument) for argument in arguments]
        with _STARTING:
            process = subprocess.Popen(
                [*under, self.path, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            _RUNNING.add(process)
        with process:
            try:
                printed, said = process.communicate(timeout=LONGEST)
            except BaseException as error:
                process.terminate()
                try:
                    process.communicate(timeout=PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise LabError(f"{self.name} {' '.join(words)} did not end in {LONGEST:g} s") from None
                raise
            finally:
                _RUNNING.discard(process)
        if process.returncode != 0:
            last = (said.strip() or "nothing was said").splitlines()[-1]
            raise LabError(f"{self.name} {' '.join(words)} ended with status {process.returncode}: {last}")
        return json.loads(printed), said

    def figures(self, *arguments: object) -> dict[str, Any]:
        """The object that it prints."""
        return self.asked(*arguments)[0]


@dataclass(frozen=True)
class Program(Executable):
    """The program ``fairlane``."""

    name = "fairlane"
    variable = "FAIRLANE_PROGRAM"
    option = "--fairlane"
    built_by = "cargo build --release"

    def bench(self, case: Case, requests: int, under: tuple[str, ...] = ()) -> tuple[dict[str, Any], str]:
        """The report of ``fairlane bench`` for this number of requests, and its messages."""
        flows = ("--flowsets", case.flow_sets, "--qmin", case.qmin, "--qmax", case.qmax)
        how = ("--arrivals", case.arrivals, "--aggregate", case.aggregate, "-n", requests)
        return self.asked("bench", "--json", "--alg", case.algorithm, *flows, *how, under=under)

    def ns_per_pair(self, case: Case, requests: int) -> float:
        """Nanoseconds of an enqueue and a dequeue."""
        return self.bench(case, requests)[0]["ns_per_pair"]

    def instructions_per_pair(self, case: Case, first: int, second: int) -> float:
        """Instructions of an enqueue and a dequeue: the difference between ``second`` and ``first`` requests,
        which excludes work done once."""
        return _per_pair(functools.partial(self.bench, case), first, second, _CALLGRIND)["instructions"]


@dataclass(frozen=True)
class Instruments(Executable):
    """The program ``fairlane-instruments``: each of its subcommands measures one thing, once."""

    name = "fairlane-instruments"
    variable = "FAIRLANE_INSTRUMENTS"
    option = "--instruments"
    built_by = "cargo build --release -p fairlane-instruments"

    def pairs(
        self, case: Case, requests: int, under: tuple[str, ...] = (), *, warm_up: int = 0
    ) -> tuple[dict[str, Any], str]:
        """The report of ``pairs`` for this number of requests with packets in memory, and its messages. It
        supports one backlog, between nothing and 30 packets a flow."""
        flows = ("--alg", case.algorithm, "--flowsets", case.flow_sets, "--arrivals", case.arrivals)
        how = ("--aggregate", case.aggregate, "--warm-up", warm_up, "-n", requests)
        return self.asked("pairs", *flows, *how, under=under)

    def misses_per_pair(self, case: Case, first: int, second: int) -> dict[str, float]:
        """``instructions``, ``d1_misses`` and ``misses`` of an enqueue and a dequeue, as
        :meth:`Program.instructions_per_pair` has it: misses are of data that is not in the first level of
        :data:`CACHES`, and not in the last."""
        return _per_pair(functools.partial(self.pairs, case), first, second, _CACHEGRIND)

    def lacks(self, network: str) -> str:
        """Why this machine, or this user, cannot have namespaces, or ``tcp`` flows between them; nothing where
        it can."""
        found = self.figures("altq", "check")
        return found["namespaces"] or (found["tcp"] if network == "tcp" else "") or ""


@dataclass
class Tools:
    """The programs, each found when it is first asked for: the one that was named, or the nearest."""

    fairlane: str | None = None
    instruments_at: str | None = None

    def find_named(self) -> None:
        """Rejects a named file that is no such program."""
        for kind, named in ((Program, self.fairlane), (Instruments, self.instruments_at)):
            if named:
                kind.find(named)

    @functools.cached_property
    def program(self) -> Program:
        """The program ``fairlane``."""
        return Program.find(self.fairlane)

    @functools.cached_property
    def instruments(self) -> Instruments:
        """The program ``fairlane-instruments``."""
        return Instruments.find(self.instruments_at)


@dataclass(frozen=True)
class Counter:
    """A tool of valgrind: the command, and the format of its count."""

    command: tuple[str, ...]
    says: dict[str, str]


_CALLGRIND = Counter(
    ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"),
    {"instructions": r"Collected : (\d+)"},
)

#: The caches that are simulated, those of the QFQ+ paper's processor: for each its size in bytes, its ways and
#: the bytes of a line.
CACHES = {"I1": (32 << 10, 8, 64), "D1": (32 << 10, 8, 64), "LL": (6 << 20, 12, 64)}

_CACHEGRIND = Counter(
    (
        *("valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"),
        *(f"--{name}={','.join(map(str, cache))}" for name, cache in CACHES.items()),
    ),
    {
        "instructions": r"I\s+refs:\s+([\d,]+)",
        "d1_misses": r"D1\s+misses:\s+([\d,]+)",
        "misses": r"LLd\s+misses:\s+([\d,]+)",
    },
)


def _per_pair(
    run: Callable[[int, tuple[str, ...]], tuple[dict[str, Any], str]],
    first: int,
    second: int,
    counter: Counter,
) -> dict[str, float]:
    """The cost of a pair: the difference between ``second`` and ``first`` requests."""

    def counted(requests: int) -> tuple[dict[str, int], int]:
        report, said = run(requests, counter.command)
        counts = {}
        for name, pattern in counter.says.items():
            found = re.search(pattern, said)
            if found is None:
                raise LabError(f"valgrind did not say how many {name} it counted of {report}")
            counts[name] = int(found[1].replace(",", ""))
        return counts, report["enqueues"]

    (before, pairs_before), (after, pairs_after) = counted(first), counted(second)
    return {name: (after[name] - before[name]) / (pairs_after - pairs_before) for name in after}


def can_count() -> bool:
    """Whether there is valgrind."""
    return shutil.which("valgrind") is not None
