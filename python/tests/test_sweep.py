"""Sweeps: the same rows on every backend, and what is done is not done again."""

import json
import os
import signal
from pathlib import Path

import fairlane
import numpy as np
import pytest
from fairlane.sweeps import BACKENDS

GRID = {"algorithm": ["drr", "qfq"], "flows": [2, 5, 9]}


def measure(algorithm, flows, seed=1):
    """The worst T-WFI of a few greedy flows."""
    lengths = fairlane.Lengths.uniform(64, 1500)
    plans = [fairlane.Flow(n + 1, fairlane.Traffic.poisson("2mbit"), lengths) for n in range(flows)]
    report = fairlane.sim(algorithm, "10mbit", plans, 0.05, seed=seed).flows
    return {"t_wfi_ns": report["t_wfi_ns"].max(), "packets": report["packets"].sum(), "note": None}


def test_rows_stand_in_the_order_of_the_grid():
    rows = fairlane.sweep(measure, GRID, table="rows", seed=7)
    assert [(row["algorithm"], row["flows"]) for row in rows] == [
        (algorithm, flows) for algorithm in GRID["algorithm"] for flows in GRID["flows"]
    ]
    assert len({row["seed"] for row in rows}) == 6
    one = fairlane.sweep(measure, {"flows": [5], "algorithm": ["qfq"]}, table="rows", seed=7)
    assert one[0] == rows[4], "a cell's seed is the cell's own"


def test_a_sweep_goes_on_where_it_was_interrupted(tmp_path):
    calls = []

    def counted(number):
        calls.append(number)
        if number == 2 and len(calls) == 3:
            raise KeyboardInterrupt
        return {"square": number * number}

    grid = {"number": [0, 1, 2, 3]}
    with pytest.raises(KeyboardInterrupt):
        fairlane.sweep(counted, grid, folder=tmp_path, table="rows")
    rows = fairlane.sweep(counted, grid, folder=tmp_path, table="rows")
    assert calls == [0, 1, 2, 2, 3]
    assert rows == fairlane.sweep(counted, grid, folder=tmp_path, table="rows")
    assert [row["square"] for row in rows] == [0, 1, 4, 9] and len(calls) == 5


def test_what_cannot_be_swept_is_refused():
    for argument, more in (("backend", {"backend": "cloud"}), ("table", {"table": "html"})):
        with pytest.raises(fairlane.ArgumentError) as error:
            fairlane.sweep(measure, GRID, **more)
        assert error.value.argument == argument
    with pytest.raises(fairlane.ArgumentError):
        fairlane.sweep(lambda n: 5, {"n": [1]}, table="rows")
    with pytest.raises(fairlane.ArgumentError):
        fairlane.sweep(lambda n: {"n": 5}, {"n": [1]}, table="rows")
    for function, grid, argument in (
        (lambda n, seed: {"m": n}, {"n": [1, {2}]}, "grid"),
        (lambda n, seed: {"m": np.zeros(2)}, {"n": [1]}, "function"),
        (lambda seed: {"m": 1}, {"seed": [1]}, "seed"),
    ):
        with pytest.raises(fairlane.ArgumentError) as error:
            fairlane.sweep(function, grid, table="rows", seed=1)
        assert error.value.argument == argument


def product(n, x, seed):
    return {"m": n * x}


def test_a_grid_may_be_of_numpy_and_files_of_nothing_are_made_anew(tmp_path):
    plain, rows = (
        fairlane.sweep(product, grid, table="rows", seed=5, folder=tmp_path / name)
        for name, grid in (
            ("a", {"n": [1, 2], "x": [0.5]}),
            ("b", {"n": np.array([1, 2]), "x": np.array([0.5])}),
        )
    )
    assert rows == plain and type(rows[0]["n"]) is int
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "b").iterdir()) and len(names) == 2
    (tmp_path / "a" / names[0]).write_text("")
    again = {"n": [1, 2], "x": [0.5]}
    assert fairlane.sweep(product, again, table="rows", seed=5, folder=tmp_path / "a") == plain


def mortal(number, fuse):
    """Kills the worker that it runs in, once."""
    if number == 30 and not os.path.exists(fuse):
        open(fuse, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": number * number}


def test_a_worker_that_is_killed_costs_neither_a_row_nor_a_second_one(long, tmp_path):
    pytest.importorskip("joblib")
    grid = {"number": list(range(100)), "fuse": [str(tmp_path / "fuse")]}
    options = {"table": "rows", "folder": tmp_path / "cells"}
    with pytest.raises(Exception, match="worker"):
        fairlane.sweep(mortal, grid, backend="joblib", jobs=2, **options)
    rows = fairlane.sweep(mortal, grid, backend="joblib", jobs=2, **options)
    assert [row["square"] for row in rows] == [number * number for number in range(100)]
    assert len(list((tmp_path / "cells").glob("*.json"))) == 100


@pytest.fixture
def by_any_worker(monkeypatch):
    """Ray's workers are nobody's children: they find this module by the environment alone."""
    places = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))


def test_ray_gives_what_a_killed_worker_had_to_another(long, by_any_worker, tmp_path):
    ray = pytest.importorskip("ray")
    grid = {"number": list(range(100)), "fuse": [str(tmp_path / "fuse")]}
    rows = fairlane.sweep(mortal, grid, backend="ray", jobs=2, table="rows", folder=tmp_path / "cells")
    assert (tmp_path / "fuse").exists() and not ray.is_initialized()
    assert [row["square"] for row in rows] == [number * number for number in range(100)]
    assert len(list((tmp_path / "cells").glob("*.json"))) == 100


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "serial"])
def test_every_backend_gives_the_same_bytes(long, by_any_worker, backend, tmp_path):
    pytest.importorskip(backend)
    expected = fairlane.sweep(measure, GRID, seed=7)
    found = fairlane.sweep(measure, GRID, seed=7, backend=backend, jobs=2, folder=tmp_path)
    assert found.to_csv() == expected.to_csv()
    assert found.to_json() == expected.to_json() and (found.dtypes == expected.dtypes).all()
    assert len([json.loads(path.read_text()) for path in tmp_path.iterdir()]) == 6


def test_a_sweep_may_be_a_data_set(long):
    cells = fairlane.sweep(measure, GRID, table="xarray")
    assert dict(cells.sizes) == {"algorithm": 2, "flows": 3}
    assert float(cells["packets"].sel(algorithm="drr", flows=5)) > 0
