"""Identifies the measured build: the commit, and digests of the files of programs and packages."""

from __future__ import annotations

import functools
import hashlib
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import fairlane

from .program import Executable

#: Results that are written into a checkout, and committed there, change no build.
RESULTS = ":(exclude)experiments"

#: Paths from which the Python library is built.
SOURCES = ("crates", "python", "Cargo.toml", "Cargo.lock")


@dataclass(frozen=True)
class Build:
    """What measured."""

    #: The last one that changed anything but results; nothing where that is not known.
    commit: str
    #: Why that may not be what measured, a sentence each.
    doubts: tuple[str, ...]
    #: Of each program and package the beginning of the SHA-256 of what its files hold, by name.
    digests: dict[str, str]

    @property
    def line(self) -> str:
        """In a line."""
        files = ", ".join(f"{name} {digest}" for name, digest in self.digests.items())
        return f"{'commit ' + self.commit[:12] if self.commit else 'no commit'} (SHA-256 of {files})"


def of(programs: Iterable[Executable]) -> Build:
    """The build of these programs, of the package ``fairlane``, and of this laboratory."""
    programs = list(programs)
    here, library = Path(__file__).parent, Path(fairlane.__file__).parent
    digests = {program.name: _digest([program.path]) for program in programs}
    digests |= {"the package fairlane": _digest(_files(library)), "the laboratory": _digest(_files(here))}
    checkout = _checkout()
    commit = "" if checkout is None else _git(checkout, "log", "-1", "--format=%H", "--", ".", RESULTS).strip()
    if checkout is None or not commit:
        return Build("", ("It was measured outside a checkout: of which commit is not known.",), digests)
    doubts = [*_changes(checkout), *_of_laboratory(checkout, digests["the laboratory"]), *_of_library(checkout, library)]
    doubts += [doubt for program in programs for doubt in _of_program(checkout, program)]
    return Build(commit, tuple(doubts), digests)


def _files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"
    )


def _digest(files: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        state = path.stat()
        whole.update(_of_file(path, state.st_mtime_ns, state.st_size))
        whole.update(path.name.encode())
    return whole.hexdigest()[:12]


@functools.cache
def _of_file(path: Path, _changed: int, _size: int) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def _checkout() -> Path | None:
    """The checkout around this package, or around the current folder."""
    for folder in (*Path(__file__).resolve().parents, Path.cwd(), *Path.cwd().parents):
        if (folder / "Cargo.toml").is_file() and (folder / "lab/src/fairlane_lab").is_dir():
            return folder
    return None


def _git(checkout: Path, *arguments: str) -> str:
    try:
        said = subprocess.run(
            ["git", "-C", checkout, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout if said.returncode == 0 else ""


def _changes(checkout: Path) -> list[str]:
    """A remark on uncommitted changes."""
    lines = _git(checkout, "status", "--porcelain", "--untracked-files=all", "--", ".", RESULTS).splitlines()
    if not lines:
        return []
    return [f"The checkout had changes beside its commit, the first of {len(lines)}: {lines[0][3:]}."]


def _of_laboratory(checkout: Path, digest: str) -> list[str]:
    """Whether an installed laboratory is the checkout's."""
    if _digest(_files(checkout / "lab/src/fairlane_lab")) == digest:
        return []
    return ["The laboratory that ran is not the checkout's: install it again."]


def _of_library(checkout: Path, library: Path) -> list[str]:
    """Whether the library was made after its sources."""
    made = max((path.stat().st_mtime for path in library.glob("_fairlane*")), default=0.0)
    listed = _git(checkout, "ls-files", "-z", "--", *SOURCES).split("\0")
    sources = (
        checkout / name
        for name in listed
        if name.endswith((".toml", ".lock")) or (name.endswith(".rs") and "/src/" in name)
    )
    return _older("the package fairlane", made, sources)


def _of_program(checkout: Path, program: Executable) -> list[str]:
    """Whether a program was built from the present checkout: Cargo writes a list of its source files next to
    it."""
    try:
        _, _, listed = program.path.with_suffix(".d").read_text().partition(": ")
    except OSError:
        return [f"Where {program.name} was built is not known."]
    sources = [Path(name.replace("\\ ", " ")) for name in re.split(r"(?<!\\) ", listed.strip())]
    if not any(source.is_relative_to(checkout) for source in sources):
        return [f"{program.name} was built of another checkout."]
    return _older(program.name, program.path.stat().st_mtime, sources)


def _older(what: str, made: float, sources: Iterable[Path]) -> list[str]:
    for source in sources:
        if source.is_file() and source.stat().st_mtime > made:
            return [f"{what[0].upper()}{what[1:]} was built before {source.name} was changed: build it again."]
    return []
