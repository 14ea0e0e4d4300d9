"""Writes results: for each experiment its tables, plots and record, and one self-contained page."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from . import drawing
from .build import Build
from .model import Result, Tables
from .output import MADE_BY, MARK, PLOT, READ, RECORD, Destination

#: The most rows of a table on the page; its file has all.
ROWS = 40

#: The table of the paper's figures and ours.
BESIDE = "beside"


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


def _environment(autoescape: bool = True) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fairlane_lab", "templates"),
        autoescape=autoescape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Characters that would end a table cell in Markdown.
    environment.filters["cell"] = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    return environment


def parameters(asked: Any) -> dict[str, str]:
    """An experiment's parameters in words, by name."""
    return {field.name: str(getattr(asked, field.name)) for field in dataclasses.fields(asked)}


def of_build(measured_by: Build) -> dict[str, Any]:
    """A build, as it comes back from a record."""
    doubts = list(measured_by.doubts)
    return {"commit": measured_by.commit, "doubts": doubts, "digests": measured_by.digests, "line": measured_by.line}


def record(result: Result) -> dict[str, Any]:
    """Remarks on the tables for a reader, and for resuming an interrupted run."""
    experiment = result.experiment
    return {
        "made_by": MADE_BY,
        "experiment": {
            name: getattr(experiment, name) for name in ("name", "title", "source", "claim", "method")
        },
        "verdicts": [{**dataclasses.asdict(one), "word": one.word, "line": one.line} for one in result.verdicts],
        "remarks": result.remarks,
        "parameters": parameters(result.parameters),
        "quick": result.quick,
        "machine": result.machine,
        "build": None if result.build is None else of_build(result.build),
        "others": result.others,
        "seconds": result.seconds,
        "measured": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "tables": list(_tables(result)),
    }


def _tables(result: Result) -> Tables:
    """Its tables, the comparison with the paper's figures first."""
    experiment = result.experiment
    if experiment.beside is None:
        return result.tables
    both = experiment.beside(result.tables, experiment.paper)
    # Of nothing there is no part.
    off = (both["here"] / both["paper"].where(both["paper"] != 0) - 1) * 100
    return {BESIDE: both.assign(deviation_percent=off), **result.tables}


def _shown(found: dict[str, Any], tables: Tables, svg: bytes | None) -> dict[str, Any]:
    plot = None if svg is None else "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
    return {**found, "tables": {name: _table(frame) for name, frame in tables.items()}, "plot": plot}


def fragment(result: Result) -> str:
    """Verdicts and tables of one experiment, for a notebook."""
    shown = _shown(record(result), _tables(result), None)
    return _environment().get_template("fragment.html").render(shown=shown)


def write(result: Result, folder: Path) -> None:
    """Writes into an experiment's folder: its tables as CSV, its plot, its record, and the page for readers."""
    tables, found = _tables(result), record(result)
    for name, frame in tables.items():
        frame.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n", float_format="%.9g")
    result.experiment.paper.to_csv(folder / "paper.csv", index=False, lineterminator="\n")
    (folder / PLOT).write_bytes(drawing.rendered(result.plot(), "svg"))
    # A verdict may be numpy's truth.
    text = json.dumps(found, indent=2, ensure_ascii=False, default=lambda value: value.item())
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")
    page = _environment(autoescape=False).get_template("result.md").render(shown=_shown(found, tables, None))
    (folder / READ).write_text(page, encoding="utf-8")


def page(destination: Destination, names: Iterable[str], not_done: dict[str, str]) -> str:
    """One page of all results that stand in a folder, of these names and in their order; and why the others are
    not there."""
    shown = []
    for name in names:
        found = destination.record(name)
        if found is None:
            continue
        place = destination.path / name
        tables = {table: pd.read_csv(place / f"{table}.csv", keep_default_na=False, na_values=[""]) for table in found["tables"]}
        shown.append(_shown(found, tables, (place / PLOT).read_bytes()))
    standing = {one["experiment"]["name"] for one in shown}
    return (
        _environment()
        .get_template("report.html")
        .render(
            mark=Markup(MARK),
            all_shown=shown,
            skipped={name: reason for name, reason in not_done.items() if name not in standing},
        )
    )
