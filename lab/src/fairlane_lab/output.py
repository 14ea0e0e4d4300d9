"""Where results go: a folder for each experiment, whole or not at all, and a page of all that stand there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .model import LabError

#: The page, and what marks it as ours.
PAGE = "report.html"
MARK = '<meta name="generator" content="fairlane-lab">'

#: Files in an experiment's folder: its record with the mark of this laboratory, its page for readers, its plot.
RECORD = "result.json"
MADE_BY = "fairlane-lab"
READ = "result.md"
PLOT = "plot.svg"


def _has_results(place: Path) -> bool:
    """Whether an experiment's folder has its record, or its page alone, as in a clone of the repository."""
    if (place / RECORD).is_file():
        return True
    try:
        with (place / READ).open(encoding="utf-8", errors="replace") as page:
            return page.readline().startswith(f"# {place.name}: ")
    except OSError:
        return False


class Destination:
    """A folder of results. Used as a context: one that had to be made is gone if nothing came into it."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._made = False

    def __enter__(self) -> Destination:
        """Rejects a path that cannot hold results, before anything is measured."""
        self._may_be_written()
        try:
            self._made = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            os.rmdir(self._partial("probe"))
        except OSError as error:
            raise LabError(f"{self.path} cannot be written: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._made:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def record(self, name: str) -> dict[str, Any] | None:
        """The results of the experiment of this name; ``None`` if the folder has no result of this laboratory."""
        try:
            found = json.loads((self.path / name / RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("made_by") == MADE_BY else None

    def refuse(self, name: str) -> None:
        """Refuses to replace a folder without an experiment's results."""
        place = self.path / name
        try:
            ours = _has_results(place) or not place.exists() or not any(place.iterdir())
        except OSError:
            ours = False
        if not ours:
            raise LabError(f"{place} holds something other than an experiment's results: move it away")

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """A folder that takes the place of the experiment's at the end, and is gone if that is not reached."""
        place = self.path / name
        folder = Path(self._partial(name))
        earlier = folder.with_name(f"{folder.name}-earlier")
        try:
            yield folder
            self.refuse(name)
            if place.exists():
                place.rename(earlier)
            try:
                folder.rename(place)
            except OSError:
                if earlier.exists():
                    earlier.rename(place)
                raise
        finally:
            for rest in (folder, earlier):
                shutil.rmtree(rest, ignore_errors=True)

    def write_page(self, text: str) -> None:
        """Writes the page, and replaces an earlier one."""
        self._may_be_written()
        partial = self.path / f".{PAGE}-partial"
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(self.path / PAGE)
        finally:
            partial.unlink(missing_ok=True)

    def _partial(self, name: str) -> str:
        made = tempfile.mkdtemp(prefix=f".{name}-", suffix="-partial", dir=self.path)
        # As other folders are, not the caller's alone.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(made, 0o777 & ~mask)
        return made

    def _may_be_written(self) -> None:
        """A folder that is new, empty, or has results: a page of ours, or an experiment's folder."""
        page = self.path / PAGE
        try:
            if page.exists() and MARK not in page.read_text(errors="replace")[:1000]:
                raise LabError(f"{page} is not a report of fairlane-lab: name another folder")
            if not self.path.exists() or page.exists():
                return
            entries = list(self.path.iterdir())
        except OSError as error:
            raise LabError(f"{self.path} cannot be written: {error.strerror}") from None
        if entries and not any(_has_results(entry) for entry in entries):
            raise LabError(
                f"{self.path} holds something other than a report: name a folder that is new, empty or an "
                "earlier report"
            )

