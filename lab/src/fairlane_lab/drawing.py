"""How plots look: legible in black and white, axes with units, the paper's points hollow and dashed, ours
solid."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from .model import Result

#: A marker and a grey for each curve: they differ without colour, and markers suffice to distinguish them.
_STYLES = [
    ("o", "#000000"),
    ("s", "#555555"),
    ("^", "#0b5394"),
    ("D", "#a64d00"),
    ("v", "#38761d"),
    ("P", "#741b47"),
    ("X", "#777777"),
]

_RC = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 5,
    # The same names in every file of the same plot.
    "svg.hashsalt": "fairlane-lab",
    "svg.fonttype": "path",
}


def drawn(result: Result) -> Figure:
    """The experiment's plot."""
    experiment = result.experiment
    title = f"{experiment.name}: {experiment.title}"
    return titled(
        title, experiment.size, lambda figure: experiment.draw(figure, result.tables, experiment.paper)
    )


def titled(title: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> Figure:
    """A figure with a title, of width and height in inches, into which something is drawn."""
    with mpl.rc_context(_RC):
        figure = Figure(figsize=size)
        # The title may have signs that matplotlib would read.
        figure.suptitle(title.replace("$", r"\$"), fontsize=10)
        draw(figure)
    return figure


def rendered(figure: Figure, kind: str) -> bytes:
    """A figure as a file of ``svg`` or ``png``; without a date."""
    file = io.BytesIO()
    with mpl.rc_context(_RC):
        figure.savefig(file, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def style(number: int) -> dict[str, str]:
    """Marker and colour of the curve of this number."""
    marker, color = _STYLES[number % len(_STYLES)]
    return {"marker": marker, "color": color}


def ours(number: int) -> dict:
    """How a curve of ours is drawn: solid."""
    return {**style(number), "linestyle": "-"}


def papers(number: int) -> dict:
    """How the same curve of the paper is drawn: hollow and dashed."""
    return {**style(number), "linestyle": (0, (4, 3)), "markerfacecolor": "white", "linewidth": 0.9}


def legend_outside(figure: Figure, names: Iterable[str], columns: int = 8) -> None:
    """A legend below all axes, in which each curve stands once, and what solid and hollow mean."""
    handles = [Line2D([], [], label=name, **ours(number)) for number, name in enumerate(names)]
    plain = {"color": "#333333", "marker": "o"}
    handles.append(Line2D([], [], linestyle="-", label="here (solid)", **plain))
    dashed = {"linestyle": (0, (4, 3)), "markerfacecolor": "white"}
    handles.append(Line2D([], [], label="the paper (dashed)", **dashed, **plain))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def ones_twos_fives(axis: Axis) -> None:
    """Ticks at 1, 2, 5, 10, 20 and so on of a logarithmic axis, as people write them."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def plain_numbers(axes: Axes, *, x: bool = False, y: bool = False) -> None:
    """Numbers as people write them on logarithmic axes."""
    written = FuncFormatter(lambda value, _: f"{value:,.10g}")
    for axis in ([axes.xaxis] if x else []) + ([axes.yaxis] if y else []):
        axis.set_major_formatter(written)
        axis.set_minor_formatter(NullFormatter())
