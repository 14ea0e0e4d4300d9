"""The notebooks run from their first cell to their last."""

import ast
import json
import pathlib

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def test_there_are_three():
    assert len(NOTEBOOKS) == 3


def run(source, names):
    """What a kernel does with a cell: runs it, and shows its last expression."""
    cell = ast.parse(source)
    shown = []
    if isinstance(cell.body[-1], ast.Expr):
        shown = [cell.body.pop().value]
    exec(compile(cell, "a cell", "exec"), names)  # noqa: S102
    for last in shown:
        repr(eval(compile(ast.Expression(last), "a cell", "eval"), names))  # noqa: S307


# Not in a kernel: that would listen at ports which were free a moment before.
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(long, path, monkeypatch, tmp_path):
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    matplotlib.use("Agg")
    monkeypatch.chdir(path.parent)
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells), "outputs are not kept"
    names = {"__name__": "__main__"}
    for cell in cells:
        run("".join(cell["source"]), names)
