"""`fairlane-lab`: its list, its output and its errors."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

import fairlane
import pytest
from fairlane_lab import build, drawing, experiments, machine, report, running
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


def test_an_interrupt_ends_the_programs_of_all_threads(tmp_path):
    script = tmp_path / "instruments"
    script.write_text(
        f"#!/bin/sh\ntrap 'touch {tmp_path}/ended-$2; exit 1' TERM\ntouch {tmp_path}/begun-$2\n"
        "while :; do sleep 0.05; done\n"
    )
    script.chmod(0o755)
    run = running.Run(None)

    def work(number):
        if number == 2:
            while len(list(tmp_path.glob("begun-*"))) < 2:
                time.sleep(0.01)
            raise KeyboardInterrupt
        Instruments(script).figures("spinlock", number)

    with pytest.raises(KeyboardInterrupt):
        run.each(range(3), work, jobs=3)
    # The pool has waited for its threads.
    assert len(list(tmp_path.glob("ended-*"))) == 2


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
    assert names == {"beside.csv", "bounds.csv", "paper.csv", "plot.svg", "result.json", "result.md"}
    assert (out / "qfqplus-table2/bounds.csv").read_text().count("\n") == 19
    # An earlier report is replaced.
    again = out / "qfqplus-table2/earlier"
    again.touch()
    assert main(["reproduce", "qfqplus-table2", "--quick", "--again", "--out", str(out)]) == 0
    assert not again.exists() and [path.name for path in tmp_path.iterdir()] == ["report"]
    assert {path.name for path in out.iterdir()} == {"qfqplus-table2", "report.html"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_what_was_there(capsys, monkeypatch, tmp_path, number):
    out = tmp_path / "report"
    out.mkdir()

    def interrupted(*_):
        os.kill(os.getpid(), number)
        signal.pause()

    monkeypatch.setattr(running, "measured", interrupted)
    # The parent of these tests may have it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["reproduce", "qfqplus-table2", "--out", str(out)]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.endswith("fairlane-lab: interrupted, nothing was written\n")
    assert list(tmp_path.iterdir()) == [out] and list(out.iterdir()) == []


def test_a_result_is_there_whole_or_not_at_all(tmp_path):
    out = tmp_path / "deep/results"
    with pytest.raises(RuntimeError), Destination(out) as destination:
        with destination.replacing("one") as folder:
            (folder / "result.json").write_text("half")
            raise RuntimeError
    assert not out.exists() and list(out.parent.iterdir()) == []
    with Destination(out) as destination:
        for text in ("whole", "again"):
            with destination.replacing("one") as folder:
                (folder / "result.json").write_text(text)
    assert [path.name for path in out.iterdir()] == ["one"]
    assert (out / "one/result.json").read_text() == "again"
    with pytest.raises(LabError), Destination(pathlib.Path("/proc/version")):
        pass


#: Two that take no time.
TWO = ("qfqplus-table2", "pspat-twfi")


@pytest.fixture
def measured(monkeypatch):
    """Names of those that were measured, where there are two, and one build whatever happens around it."""
    this = build.of([])
    monkeypatch.setattr(build, "of", lambda _: this)
    # Plots take time.
    monkeypatch.setattr(drawing, "rendered", lambda _, kind: kind.encode())
    both = tuple(experiments.named(name) for name in TWO)
    names, measure = [], running.measured

    def counted(one, parameters, *more):
        names.append(one.name)
        changes = {"packets": 4000} if one.name == "pspat-twfi" else {}
        result = measure(one, dataclasses.replace(parameters, **changes), *more)
        result.parameters = parameters
        return result

    monkeypatch.setattr(experiments, "EXPERIMENTS", both)
    monkeypatch.setattr(running, "measured", counted)
    return names


def test_what_this_build_measured_is_not_measured_again(capsys, monkeypatch, tmp_path, measured):
    def reproduce(*arguments):
        measured.clear()
        assert main(["reproduce", *arguments, "--out", str(tmp_path)]) == 0
        return list(measured)

    assert reproduce(TWO[0], "--quick") == [TWO[0]]
    assert reproduce("all", "--quick") == [TWO[1]]
    said = capsys.readouterr()
    assert f"kept {TWO[0]}: this build measured it already" in said.err and "--again" in said.err
    # Verdicts and the page are of all.
    assert all(f"\n{name}: " in f"\n{said.out}" for name in TWO)
    page = (tmp_path / "report.html").read_text()
    assert all(f'id="{name}"' in page for name in TWO)
    assert reproduce("all", "--quick") == []
    assert reproduce("all", "--quick", "--again") == list(TWO)
    # A clone of the repository has no record.
    for name in ("result.json", "paper.csv"):
        (tmp_path / TWO[1] / name).unlink()
    assert reproduce("all", "--quick") == [TWO[1]]
    # Results that were not requested, are incomplete, or are of another build.
    (tmp_path / TWO[1] / "t_wfi.csv").unlink()
    assert reproduce("all", "--quick") == [TWO[1]]
    assert reproduce(TWO[0]) == [TWO[0]]
    capsys.readouterr()
    assert "--again" in refused(capsys, "reproduce", TWO[0], "--quick", "--out", str(tmp_path))
    other = dataclasses.replace(build.of(()), commit="0" * 40)
    monkeypatch.setattr(build, "of", lambda _: other)
    assert reproduce("all") == list(TWO)
    assert "commit 000000000000" in (tmp_path / TWO[0] / "result.md").read_text()


def test_what_was_interrupted_goes_on(capsys, monkeypatch, tmp_path, measured):
    counted = running.measured

    def interrupted(one, *more):
        if one.name == TWO[1]:
            raise KeyboardInterrupt
        return counted(one, *more)

    monkeypatch.setattr(running, "measured", interrupted)
    arguments = ["reproduce", "all", "--quick", "--out", str(tmp_path)]
    assert main(arguments) == 130
    assert f"interrupted; {TWO[0]} stand in {tmp_path}" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {TWO[0], "report.html"}
    monkeypatch.setattr(running, "measured", counted)
    measured.clear()
    assert main(arguments) == 0 and measured == [TWO[1]]


def test_where_one_fails_the_others_go_on(capsys, monkeypatch, tmp_path, measured):
    arguments = ["--quick", "--again", "--out", str(tmp_path)]
    assert main(["reproduce", TWO[0], *arguments]) == 0
    capsys.readouterr()
    before = (tmp_path / TWO[0] / "result.json").read_text()
    write = report.write

    def fails(result, folder):
        write(result, folder)
        if result.experiment.name == TWO[0]:
            raise ZeroDivisionError("of nothing")

    monkeypatch.setattr(report, "write", fails)
    assert main(["reproduce", "all", *arguments]) == 1 and measured[-2:] == list(TWO)
    said = capsys.readouterr()
    assert f"[1/2] {TWO[0]}: failed: of nothing" in said.err and "ZeroDivisionError" in said.err
    assert f"{TWO[1]}: " in said.out and f"{TWO[0]}: " not in said.out
    # An earlier result stays.
    assert (tmp_path / TWO[0] / "result.json").read_text() == before
    assert {path.name for path in tmp_path.iterdir()} == {*TWO, "report.html"}
    with pytest.raises(ZeroDivisionError):
        main(["reproduce", TWO[0], *arguments])


def test_other_files_stay(capsys, tmp_path, measured):
    (tmp_path / TWO[0]).mkdir()
    (tmp_path / TWO[0] / "mine.txt").write_text("mine")
    (tmp_path / TWO[1]).mkdir()
    # As an earlier laboratory left it.
    (tmp_path / TWO[1] / "result.json").write_text("{}")
    (tmp_path / "README.md").write_text("mine")
    sentence = refused(capsys, "reproduce", "all", "--again", "--out", str(tmp_path))
    assert TWO[0] in sentence and measured == []
    assert main(["reproduce", TWO[1], "--quick", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert (tmp_path / "README.md").read_text() == (tmp_path / TWO[0] / "mine.txt").read_text() == "mine"
    (tmp_path / "report.html").write_text("mine")
    assert "report.html" in refused(capsys, "reproduce", TWO[1], "--quick", "--out", str(tmp_path))


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_results_in_a_checkout_are_no_change_of_it(monkeypatch, tmp_path):
    def git(*words):
        who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
        done = subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit():
        git("add", ".")
        git("commit", "--quiet", "--message", "One")
        return git("rev-parse", "HEAD")

    git("init", "--quiet")
    shutil.copytree(pathlib.Path(build.__file__).parent, tmp_path / "lab/src/fairlane_lab")
    source = write("crates/cli/src/main.rs", "fn main() {}")
    for name in ("Cargo.toml", "experiments/README.md"):
        write(name, "")
    write(".gitignore", "/target\n__pycache__\n")
    first = commit()
    program = write("target/release/fairlane", "#!/bin/sh\necho fairlane 0\n")
    program.chmod(0o755)
    write("target/release/fairlane.d", f"{program}: {source}\n")
    os.utime(source, (0, 0))
    os.utime(tmp_path / "Cargo.toml", (0, 0))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(build, "_checkout", lambda: tmp_path)
    before = build.of([Program(program)])
    assert (before.commit, before.doubts) == (first, ())
    # Neither written nor committed results are another build.
    write("experiments/qfq-wfi/result.json", "{}")
    assert build.of([Program(program)]) == before
    commit()
    assert build.of([Program(program)]) == before
    # Each of these is.
    write("docs.md", "x")
    changed = build.of([Program(program)])
    assert len(changed.doubts) == 1 and "docs.md" in changed.doubts[0]
    second = commit()
    assert (build.of([Program(program)]).commit, second != first) == (second, True)
    os.utime(source)
    os.utime(program, (1, 1))
    stale = [doubt for doubt in build.of([Program(program)]).doubts if doubt.startswith("Fairlane was built before")]
    assert len(stale) == 1 and "main.rs" in stale[0]
    write("lab/src/fairlane_lab/build.py", "")
    commit()
    assert any("install it again" in doubt for doubt in build.of([]).doubts)
    program.write_text("#!/bin/sh\necho fairlane 1\n")
    assert build.of([Program(program)]).digests != before.digests


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
