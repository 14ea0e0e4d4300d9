"""`fairlane-lab`: what it lists, writes and refuses."""

import json
import os
import pathlib
import re
import signal
import threading
import time

import fairlane
import pytest
from fairlane_lab import experiments, machine, running
from fairlane_lab.cli import main
from fairlane_lab.model import LabError
from fairlane_lab.output import Destination
from fairlane_lab.program import Instruments, Program
from fairlane_lab.progress import Progress


def refused(capsys, *arguments):
    """The one sentence with which it refuses."""
    try:
        status = main(list(arguments))
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    assert said.err.startswith("fairlane-lab") and said.err.count("\n") == 1, said.err
    return said.err


def test_it_lists_names_claims_and_times(capsys):
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    for one in json.loads(capsys.readouterr().out)["experiments"]:
        assert one["name"] in listed and one["claim"] in listed and one["takes_seconds"] > 0


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["reproduce", "qfq-tabel4"], ["'qfq-tabel4'", "'qfq-table4'", "fairlane-lab list"]),
        (["reproduce", "table2"], ["'qfqplus-table2'"]),
        (["reproduce", ""], ["''"]),
        (["repeat"], ["repeat"]),
        (["reproduce", "pspat-twfi", "--fast"], ["--fast"]),
        (["reproduce", "pspat-twfi", "--out", "/dev/null/below"], ["/dev/null/below"]),
        (["reproduce", "qfq-table4", "--fairlane", "/none/fairlane"], ["/none/fairlane"]),
        (["reproduce", "all", "--fairlane", "/bin/true"], ["/bin/true", "--version"]),
        (["reproduce", "all", "--instruments", "/bin/true"], ["/bin/true", "fairlane-instruments"]),
        (["sim", "none.toml", "--plot", "rates.txt"], [".svg or .png"]),
        (["sim", "none.toml", "--plot", "/none/rates.svg"], ["/none/rates.svg"]),
        (["sim", "/none/none.toml", "--plot", "rates.svg"], ["none.toml"]),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_measured(capsys, monkeypatch, arguments, words):
    monkeypatch.setattr(running, "measured", None)
    sentence = refused(capsys, *arguments)
    assert all(word in sentence for word in words), sentence


def test_a_missing_program_is_named(capsys, monkeypatch):
    monkeypatch.setenv(Program.variable, "/none/fairlane")
    assert "/none/fairlane" in refused(capsys, "reproduce", "qfq-fig10")
    monkeypatch.setenv(Instruments.variable, "/none/instruments")
    monkeypatch.setattr(machine, "cores", lambda: 2)
    assert "/none/instruments" in refused(capsys, "reproduce", "pspat-table1")


def test_what_a_machine_lacks_is_said(capsys, monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 1)
    assert "2 cores are needed" in refused(capsys, "reproduce", "pspat-table1")


def test_without_a_name_it_lists(capsys):
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert main(["reproduce"]) == 0
    assert capsys.readouterr().out == listed


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_scenario_is_drawn(capsys, tmp_path, kind):
    scenario, plot = tmp_path / "evening.toml", tmp_path / f"rates.{kind}"
    scenario.write_text(SCENARIO)
    assert main(["sim", str(scenario), "--plot", str(plot), "--seconds", "0.2"]) == 0
    assert str(plot) in capsys.readouterr().out
    assert plot.read_bytes().startswith(b"<?xml" if kind == "svg" else b"\x89PNG")
    # Each class that sent has its line, whatever it is called.
    rates = fairlane.scenario(scenario, rates=True).rates
    assert list(rates) == ["_a$b$"]


SCENARIO = """
seconds = 1
[[site.link]]
name = "up"
rate = "10mbit"
algorithm = "qfq"
[[site.link.class]]
name = "_a$b$"
rate = "1mbit"
[[site.link.class]]
name = "silent"
rate = "1mbit"
[[source]]
class = "_a$b$"
traffic = "backlogged"
"""


def test_an_interrupt_ends_the_program_that_measures(tmp_path):
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    script = tmp_path / "instruments"
    script.write_text(
        f"#!/bin/sh\ntrap 'touch {ended}; exit 1' TERM\ntouch {begun}\nwhile :; do sleep 0.05; done\n"
    )
    script.chmod(0o755)

    def interrupt():
        while not begun.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            Instruments(script).figures("spinlock")
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert ended.exists()


def test_a_folder_with_other_files_is_not_replaced(capsys, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    sentence = refused(capsys, "reproduce", "qfqplus-table2", "--out", str(tmp_path))
    assert str(tmp_path) in sentence and (tmp_path / "mine.txt").read_text() == "mine"


def test_all_skips_what_it_cannot_do_and_says_why(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv(Program.variable, "/none/fairlane")
    small = [experiments.named(name) for name in ("qfq-fig10", "qfqplus-table2")]
    monkeypatch.setattr(experiments, "EXPERIMENTS", tuple(small))
    out = tmp_path / "report"
    assert main(["reproduce", "all", "--quick", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "skipped qfq-fig10: /none/fairlane" in said.err and "[1/1] qfqplus-table2" in said.err
    page = (out / "report.html").read_text()
    assert "qfq-fig10: /none/fairlane" in page and "does not hold" in page
    # It needs no other file.
    links = re.findall(r"""(?:src|href)=["']?([^"' >]+)""", page)
    assert all(link.startswith(("data:", "#")) for link in links) and links[-1].startswith("data:image/svg")
    names = {path.name for path in (out / "qfqplus-table2").iterdir()}
    assert names == {"bounds.csv", "paper.csv", "plot.png", "plot.svg"}
    assert (out / "qfqplus-table2/bounds.csv").read_text().count("\n") == 19
    # An earlier report is replaced.
    again = out / "qfqplus-table2/earlier"
    again.touch()
    assert main(["reproduce", "qfqplus-table2", "--quick", "--out", str(out)]) == 0
    assert not again.exists() and [path.name for path in tmp_path.iterdir()] == ["report"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_what_was_there(capsys, monkeypatch, tmp_path, number):
    out = tmp_path / "report"
    out.mkdir()

    def interrupted(*_):
        assert len(list(tmp_path.iterdir())) == 2
        os.kill(os.getpid(), number)
        signal.pause()

    monkeypatch.setattr(running, "measured", interrupted)
    # Who started these tests may have it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["reproduce", "qfqplus-table2", "--out", str(out)]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.endswith("fairlane-lab: interrupted, nothing was written\n")
    assert list(tmp_path.iterdir()) == [out] and list(out.iterdir()) == []


def test_a_report_is_there_whole_or_not_at_all(tmp_path):
    out = tmp_path / "deep/report"
    with pytest.raises(RuntimeError), Destination(out) as destination:
        (destination.folder / "report.html").write_text("half")
        raise RuntimeError
    assert not out.exists() and list(out.parent.iterdir()) == []
    with Destination(out) as destination:
        (destination.folder / "report.html").write_text("whole")
        destination.place()
    assert (out / "report.html").read_text() == "whole"
    with pytest.raises(LabError), Destination(pathlib.Path("/proc/version")):
        pass


def test_what_is_left_is_told_by_what_was_done():
    now = [0.0]
    progress = Progress({"a": 10.0, "b": 20.0}, None, lambda: now[0])
    progress.start("a")
    assert progress.left() == (10.0, 30.0)
    progress.expect(4)
    now[0] = 5.0
    progress.tick()
    assert progress.left() == (15.0, 35.0)
    now[0] = 20.0
    progress.finish("done")
    progress.start("b")
    # All takes twice as long as was expected.
    assert progress.left() == (40.0, 40.0)
