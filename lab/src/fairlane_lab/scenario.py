"""A scenario of `fairlane sim`, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import fairlane

from . import drawing
from .model import LabError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    path: Path,
    plot: Path,
    *,
    link: str | None = None,
    seconds: float | None = None,
    seed: int | None = None,
) -> None:
    """Simulates a scenario's file, and draws each class's throughput over time into ``plot``."""
    kind = plot.suffix.removeprefix(".")
    if kind not in ("svg", "png"):
        raise LabError(f"--plot {plot}: the name ends in .svg or .png")
    if not plot.parent.is_dir():
        raise LabError(f"--plot {plot}: there is no folder of that name")
    try:
        outcome = fairlane.scenario(path, link=link, seconds=seconds, seed=seed, rates=True)
    except fairlane.FairlaneError as error:
        raise LabError(str(error)) from None
    if outcome.rates is None:
        raise LabError(f"{path} is of a network: what classes send over time is drawn of a site's link")
    title = f"{path.name}: what each class sent on {outcome['link']} by {outcome['algorithm']}"
    figure = drawing.titled(title, (9.0, 4.4), lambda figure: _rates(figure, outcome))
    try:
        plot.write_bytes(drawing.rendered(figure, kind))
    except OSError as error:
        raise LabError(f"{plot} cannot be written: {error.strerror}") from None


def _rates(figure: Figure, outcome: fairlane.Scenario) -> None:
    axes = figure.subplots()
    for number, (name, points) in enumerate((outcome.rates or {}).items()):
        # Names may have signs that matplotlib would read.
        label = " " + name.replace("$", r"\$")
        axes.plot(points[:, 0], points[:, 1], label=label, markevery=(5 * number % 20, 20), **drawing.ours(number))
    axes.set_xlabel("time (s)")
    axes.set_ylabel("rate (Mbit/s)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    if axes.lines:
        figure.legend(loc="outside lower center", ncols=6)
