"""What is written of the package is true of it."""

import ast
import pathlib
import re

import fairlane
from fairlane import _fairlane

HERE = pathlib.Path(__file__).parent


def test_the_stubs_name_what_the_module_has():
    stubs = pathlib.Path(fairlane.__file__).with_name("_fairlane.pyi")
    stated = {}
    for node in ast.parse(stubs.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            stated[node.name] = None
        elif isinstance(node, ast.ClassDef):
            names = (child for child in node.body if isinstance(child, (ast.FunctionDef, ast.AnnAssign)))
            stated[node.name] = {getattr(n, "name", None) or n.target.id for n in names}
    there = {name for name in vars(_fairlane) if not name.startswith("__")}
    assert set(stated) == there
    for name, members in stated.items():
        if members is None:
            continue
        own = {
            member
            for member in vars(getattr(_fairlane, name))
            if not member.startswith("__") or member in members
        }
        assert own - {"__init__"} == members - {"__init__"}, name


def test_all_that_is_exported_is_there():
    assert all(hasattr(fairlane, name) for name in fairlane.__all__)
    errors = vars(fairlane.errors).values()
    kinds = {one for one in errors if isinstance(one, type) and issubclass(one, Exception)}
    assert {kind.__name__ for kind in kinds} <= set(fairlane.__all__)


def test_the_examples_of_the_documents_run(capsys):
    for document in ("../../docs/python.md", "../README.md"):
        blocks = re.findall(r"```python\n(.*?)```", (HERE / document).read_text(), re.DOTALL)
        names = {}
        # Blocks that attach or sweep are incomplete by themselves.
        runs = [block for block in blocks if "attach(" not in block and "measure" not in block]
        assert runs
        for block in runs:
            exec(compile(block, document, "exec"), names)  # noqa: S102
    assert "any" in capsys.readouterr().out
