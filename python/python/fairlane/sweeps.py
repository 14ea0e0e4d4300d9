"""Sweeps: one function over a grid of parameters, with the same bytes on every backend."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import ArgumentError

Cell = dict[str, Any]

BACKENDS = ("serial", "joblib", "dask", "ray")


def sweep(
    function: Callable[..., Mapping[str, Any]],
    grid: Mapping[str, Iterable[Any]],
    *,
    backend: str = "serial",
    jobs: int | None = None,
    seed: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    table: str = "pandas",
) -> Any:
    """Calls ``function(**cell)`` for each cell of the ``grid``: one row per cell, in the order of the grid.

    ``function`` returns measures by name: numbers, texts or ``None``. Parameters have the same types.
    With ``seed``, each cell has its own ``seed``, derived only from it and the cell's parameters,
    so that a cell is the same in every grid.

    ``backend`` runs cells one after another (``serial``), or ``jobs`` at a time: ``joblib`` in processes,
    ``dask`` on the cluster that is connected, or on processes, ``ray`` likewise. The table is the same on
    each of them, to the byte. With a ``folder`` each cell is written there when it is done, and is not
    run again with the same folder: a sweep that was interrupted, or lost a worker, resumes. The
    function's name is part of a cell's name, its code is not: use another folder after a change of the code.

    ``table`` is ``pandas`` (a frame of parameters and measures), ``xarray`` (a data set, of which the
    parameters are the dimensions) or ``rows`` (a list of dictionaries).
    """
    if backend not in BACKENDS:
        raise ArgumentError(f"backend is {backend!r}: it is one of {', '.join(BACKENDS)}", "backend")
    if table not in ("pandas", "xarray", "rows"):
        raise ArgumentError(f"table is {table!r}: it is pandas, xarray or rows", "table")
    names = list(grid)
    if seed is not None and "seed" in names:
        raise ArgumentError("seed is given, and the grid has one for each cell: one of both", "seed")
    values = [
        [_plain("grid", name, value, index) for index, value in enumerate(grid[name])] for name in names
    ]
    cells = [dict(zip(names, chosen)) for chosen in itertools.product(*values)]
    if seed is not None:
        seed = _plain("seed", "seed", seed)
        cells = [{**cell, "seed": _seed(seed, cell)} for cell in cells]
    places = [_place(folder, function, cell) for cell in cells]
    done = [_done(place) for place in places]
    missing = [number for number, row in enumerate(done) if row is None]
    work = [(function, cells[number], places[number]) for number in missing]
    for number, row in zip(missing, _run(backend, work, jobs)):
        done[number] = row
    rows = [{**cell, **row} for cell, row in zip(cells, done)]
    return _table(table, rows, names)


def _seed(seed: int, cell: Cell) -> int:
    text = json.dumps([seed, cell], sort_keys=True)
    # Of 63 bits, which every table holds.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _place(folder: Any, function: Callable, cell: Cell) -> Path | None:
    if folder is None:
        return None
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    text = json.dumps([name, cell], sort_keys=True)
    return place / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _done(place: Path | None) -> Cell | None:
    """Returns the stored measures of a cell, if there are any and they are complete: a machine that loses
    power may leave empty files."""
    if place is None or not place.is_file():
        return None
    try:
        row = json.loads(place.read_text())
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _cell(function: Callable[..., Mapping[str, Any]], cell: Cell, place: Path | None) -> Cell:
    """Runs one cell. Its results pass through JSON on every backend, so that all see the same."""
    measured = function(**cell)
    if not isinstance(measured, Mapping):
        raise ArgumentError(
            f"function returned {type(measured).__name__}: it returns measures by name", "function"
        )
    twice = sorted(set(measured) & set(cell))
    if twice:
        raise ArgumentError(f"function measures {twice[0]!r}, which is a parameter too", "function")
    text = json.dumps({name: _plain("function", name, value) for name, value in measured.items()})
    if place is not None:
        # A unique name, also among threads and among processes with the same number on other machines.
        beside = place.with_suffix(f".{uuid.uuid4().hex}.tmp")
        beside.write_text(text)
        beside.replace(place)
    return json.loads(text)


def _plain(argument: str, name: str, value: Any, index: int | None = None) -> Any:
    """Returns a parameter or a measure as JSON; numpy numbers as Python numbers."""
    if getattr(value, "shape", None) == ():
        value = value.item()
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{argument}: {name} is {type(value).__name__}: parameters and measures are numbers, texts or None",
            argument,
            index,
        ) from None
    return value


def _run(backend: str, work: list, jobs: int | None) -> Iterable[Cell]:
    if not work:
        return []
    if backend == "joblib":
        import joblib

        return joblib.Parallel(n_jobs=-1 if jobs is None else jobs)(
            joblib.delayed(_cell)(*one) for one in work
        )
    if backend == "dask":
        import dask

        tasks = [dask.delayed(_cell, pure=False)(*one) for one in work]
        try:
            from distributed import get_client

            get_client()
        except (ImportError, ValueError):
            return dask.compute(*tasks, scheduler="processes", num_workers=jobs)
        return dask.compute(*tasks)
    if backend == "ray":
        import ray

        begun = not ray.is_initialized()
        if begun:
            ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False)
        try:
            remote = ray.remote(_cell)
            return ray.get([remote.remote(*one) for one in work])
        finally:
            if begun:
                ray.shutdown()
    return (_cell(*one) for one in work)


def _table(table: str, rows: list[Cell], names: list[str]) -> Any:
    if table == "rows":
        return rows
    import pandas

    frame = pandas.DataFrame(rows)
    if table == "pandas":
        return frame
    # A seed belongs to its cell: it is not a dimension.
    return frame.set_index(names).to_xarray()
