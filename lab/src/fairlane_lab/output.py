"""Where a report goes: made in a temporary folder beside it, and moved into place at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from .model import LabError

#: The page, and what marks it as ours.
PAGE = "report.html"
MARK = '<meta name="generator" content="fairlane-lab">'


class Destination:
    """A folder that is there whole or not at all. Used as a context: what is written into ``folder``
    meanwhile takes the place of ``path`` by :meth:`place`, and is gone without it."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.folder = self.path

    def __enter__(self) -> Destination:
        """Refuses what is no place for a report before anything is measured."""
        self._may_be_replaced()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            made = tempfile.mkdtemp(prefix=f".{self.path.name}-", suffix="-partial", dir=self.path.parent)
        except OSError as error:
            raise LabError(f"{self.path} cannot be written: {error.strerror}") from None
        self.folder = Path(made)
        # As other folders are, not the caller's alone.
        mask = os.umask(0)
        os.umask(mask)
        self.folder.chmod(0o777 & ~mask)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def place(self) -> None:
        """Moves what was written into place, instead of an earlier report."""
        self._may_be_replaced()
        earlier = self.folder.with_name(f"{self.folder.name}-earlier")
        if self.path.exists():
            self.path.rename(earlier)
        try:
            self.folder.rename(self.path)
        except OSError:
            if earlier.exists():
                earlier.rename(self.path)
            raise
        shutil.rmtree(earlier, ignore_errors=True)

    def _may_be_replaced(self) -> None:
        try:
            there = {entry.name for entry in self.path.iterdir()}
            page = self.path / PAGE
            ours = not there or MARK in page.read_text(errors="replace")[:1000]
        except FileNotFoundError:
            ours = not self.path.exists()
        except OSError as error:
            raise LabError(f"{self.path} cannot be written: {error.strerror}") from None
        if not ours:
            raise LabError(
                f"{self.path} holds something other than a report: name a folder that is new, empty or an "
                "earlier report"
            )
