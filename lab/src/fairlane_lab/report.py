"""The report: one page that needs no other file, and the tables and plots beside it."""

from __future__ import annotations

import base64
import dataclasses
import math
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from . import drawing
from .model import Result
from .output import MARK, PAGE

#: The most rows of a table on the page; its file has all.
ROWS = 40


def digits(value: Any) -> str:
    """A figure to three significant digits, without an exponent; whole numbers and texts as they are."""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    decimals = min(max(2 - math.floor(math.log10(abs(value))), 0), 6)
    return f"{value:.{decimals}f}"


def _table(frame: pd.DataFrame) -> dict[str, Any]:
    shown = frame.head(ROWS)
    return {
        "columns": [str(column).replace("_", " ") for column in frame.columns],
        "numbers": [pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes],
        "rows": [[digits(value) for value in row] for row in shown.itertuples(index=False)],
        "left_out": len(frame) - len(shown),
        "length": len(frame),
    }


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("fairlane_lab", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _parameters(result: Result) -> dict[str, str]:
    return {
        field.name: str(getattr(result.parameters, field.name))
        for field in dataclasses.fields(result.parameters)
    }


def _shown(result: Result, svg: bytes | None) -> dict[str, Any]:
    plot = None if svg is None else "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
    return {
        "experiment": result.experiment,
        "verdicts": result.verdicts,
        "remarks": result.remarks,
        "parameters": _parameters(result),
        "tables": {name: _table(frame) for name, frame in result.tables.items()},
        "seconds": result.seconds,
        "machine": result.machine,
        "plot": plot,
    }


def fragment(result: Result) -> str:
    """Verdicts and tables of one experiment, for a notebook."""
    return _environment().get_template("fragment.html").render(shown=_shown(result, None))


def write(results: list[Result], skipped: dict[str, str], folder: Path) -> None:
    """Writes the page, and a folder for each experiment: its tables as CSV, its plot as SVG and PNG."""
    shown = []
    for result in results:
        place = folder / result.experiment.name
        place.mkdir()
        for name, frame in result.tables.items():
            frame.to_csv(place / f"{name}.csv", index=False, lineterminator="\n")
        result.experiment.paper.to_csv(place / "paper.csv", index=False, lineterminator="\n")
        figure = result.plot()
        svg = drawing.rendered(figure, "svg")
        (place / "plot.svg").write_bytes(svg)
        (place / "plot.png").write_bytes(drawing.rendered(figure, "png"))
        shown.append(_shown(result, svg))
    page = _environment().get_template("report.html").render(
        mark=Markup(MARK), all_shown=shown, skipped=skipped
    )
    (folder / PAGE).write_text(page, encoding="utf-8")
