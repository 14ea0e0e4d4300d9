"""Each experiment in a form of a second: its figures are parsed, its verdicts computed, its plot drawn."""

import math
import pathlib
import re
import subprocess

import fairlane_lab as lab
import pandas as pd
import pytest
from fairlane_lab import program as programs
from fairlane_lab import report

BY_ITSELF = ["qfq-ns2", "qfq-wfi", "qfqplus-table2", "qfqplus-fig8", "pspat-twfi"]
BY_THE_PROGRAM = {
    "qfq-table4": {"sets": ("1", "8", "64"), "patterns": ("small", "full")},
    "qfq-fig10": {"flows": (1, 8, 32, 128)},
    "qfqplus-fig2": {"sets": ("1k-wmix",)},
}


BY_THE_INSTRUMENTS = {"qfqplus-fig3-7": {"sets": ("1k-wmix",)}}

#: Each has a file of its own: `test_pspat.py`, `test_altq.py`, `test_path.py`.
ELSEWHERE = [
    *("pspat-table1", "pspat-table2", "pspat-throughput", "pspat-allocation", "pspat-latency", "pspat-scan"),
    *("altq-overhead", "altq-filters", "altq-allocation", "altq-guarantee", "altq-sharing"),
    "path",
]


def judged(result):
    """The verdicts by their first words, after what holds for every experiment."""
    verdicts = result.verdicts
    assert verdicts
    for verdict in verdicts:
        assert verdict.holds in (True, False, None)
        assert verdict.criterion and verdict.found and verdict.word in verdict.line
        assert verdict.holds or verdict.why, f"no reason: {verdict}"
    for name, frame in result.tables.items():
        assert len(frame), name
    figure = result.plot()
    assert figure.axes
    for axes in figure.axes:
        # Each axis with figures has a unit, or its base; axes of one row may share it.
        assert axes.get_xlabel() or axes.get_xticklabels()
        assert axes.lines or axes.containers
        # No curve is cut off.
        of_data = [line for line in axes.lines if line.get_transform() == axes.transData]
        highest = max((float(y) for line in of_data for y in line.get_ydata() if math.isfinite(y)), default=0.0)
        assert highest <= max(axes.get_ylim()), axes.get_title()
    assert any(axes.get_ylabel() for axes in figure.axes)
    assert "<table>" in result._repr_html_()
    return {verdict.claim: verdict for verdict in verdicts}


def test_there_is_a_test_of_each():
    assert sorted(lab.names()) == sorted([*BY_ITSELF, *BY_THE_PROGRAM, *BY_THE_INSTRUMENTS, *ELSEWHERE])


def test_the_repository_keeps_a_page_a_plot_and_a_small_table_of_each():
    root = pathlib.Path(__file__).parents[2]
    command = ["git", "-C", root, "ls-files", "--", "experiments/*/*"]
    try:
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a clone, or there is no git")
    folders = {}
    for path in map(pathlib.Path, listed):
        folders.setdefault(path.parent.name, {})[path.name] = root / path
    assert sorted(folders) == sorted(lab.names())
    for name, files in folders.items():
        tables = [file for file in files.values() if file.suffix == ".csv"]
        assert len(tables) == 1 and tables[0].stat().st_size <= 50_000, name
        assert set(files) == {"result.md", "plot.svg", tables[0].name}
        links = re.findall(r"\]\(([^)]*)\)", files["result.md"].read_text())
        assert "plot.svg" in links and {link for link in links if "/" not in link} <= set(files), name


@pytest.mark.parametrize("name", lab.names())
def test_an_experiment_says_what_it_is(name):
    one = lab.EXPERIMENTS[lab.names().index(name)]
    assert all((one.title, one.source, one.claim, one.method))
    assert len(one.paper) and 0 < one.expected(True) <= one.expected(False)
    assert one.parameters(True, {}) == one.quick
    with pytest.raises(lab.LabError, match="has no parameter 'colour', only"):
        one.parameters(True, {"colour": 1})


def test_the_theorems_of_qfq_hold_on_random_sets_and_not_for_every_schedule(found):
    result = found("qfq-wfi")
    verdicts = judged(result)
    assert [verdict.holds for verdict in verdicts.values()] == [True, True, False, False, True]
    made = result.tables["counterexamples"].set_index(["theorem", "backlogged_until"])
    # The report's limits, and the results of its equations.
    assert made.loc[("Theorem 1", "dequeued"), "theorem_allows"] == pytest.approx(3199, abs=0.5)
    assert made.loc[("Theorem 1", "dequeued"), "measured"] == pytest.approx(4061.5, abs=1)
    assert made.loc[("Theorem 2", "dequeued"), "theorem_allows"] == pytest.approx(3_275_728, abs=1)
    assert made.loc[("Theorem 2", "dequeued"), "measured"] == pytest.approx(4_157_956, abs=1)
    flows = result.tables["flows"]
    assert (flows["t_wfi_ns"] > 0).any() and flows["set"].nunique() == 6


def test_over_two_bottlenecks_drr_is_several_times_worse(found):
    result = found("qfq-ns2")
    verdicts = judged(result)
    # Whatever the report leaves open: not where the link is full of reserved rates.
    assert [verdict.holds for verdict in verdicts.values()] == [True, True, True, False]
    delays = result.tables["delays"].set_index(["flow", "algorithm"])
    assert (delays["lost"] == 0).all() and (delays["packets"] > 15).all()
    # No packet is faster than one that never waits.
    assert (result.tables["runs"]["mean_ms"] >= 22.352).all()
    assert (delays["mean_ms"] <= delays["p99_ms"]).all() and (delays["p99_ms"] <= delays["max_ms"]).all()
    assumed = result.tables["assumptions"]
    assert set(assumed["others_send"]) == {"as one", "in turns"} and len(assumed) == 20


def test_table_2_of_qfq_plus_has_two_figures_without_a_formula(found):
    verdicts = judged(found("qfqplus-table2"))
    wrong = [verdict for verdict in verdicts.values() if not verdict.holds]
    assert len(wrong) == 1 and "10.75" in wrong[0].found and "257.25" in wrong[0].found
    bounds = found("qfqplus-table2").tables["bounds"].set_index(["algorithm", "queue_packets"])
    assert bounds.loc[("drr", 1), "formula_service_times"] == pytest.approx(584.58, abs=0.01)
    assert bounds.loc[("qfq", 3000), "formula_service_times"] == pytest.approx(757.25)


def test_drr_waits_for_a_round_and_qfq_does_not(found):
    verdicts = judged(found("qfqplus-fig8"))
    assert all(verdict.holds for verdict in verdicts.values()), verdicts
    measured = found("qfqplus-fig8").tables["t_wfi"].set_index(["set", "algorithm"])["t_wfi_service_times"]
    # A round of 1000 packets less the flow's own, as in the paper.
    assert measured["1k-highw", "drr"] == pytest.approx(249.0, abs=0.5)
    assert measured["1k-highw", "qfq"] < 10


def test_the_examples_of_pspat_are_computed_and_measured(found):
    verdicts = judged(found("pspat-twfi"))
    assert all(verdict.holds for verdict in verdicts.values()), verdicts
    table = found("pspat-twfi").tables["t_wfi"].set_index(["algorithm", "clients"])
    assert table.loc[("qfq", 100), "formula_us"] == pytest.approx(14.4)
    assert table.loc[("drr", 100), "formula_us"] == pytest.approx(361.2)


@pytest.mark.parametrize("name", [*BY_THE_PROGRAM, *BY_THE_INSTRUMENTS])
def test_costs_are_measured_by_the_programs(name, program, instruments, monkeypatch):
    # A debugging build takes seconds to load under valgrind.
    monkeypatch.setattr(programs, "can_count", lambda: False)
    changes = {**(BY_THE_PROGRAM | BY_THE_INSTRUMENTS)[name], "requests": 3000, "rounds": 1}
    result = lab.run(name, quick=True, program=program, instruments=instruments, **changes)
    costs = result.tables["costs"]
    assert (costs["ns"] > 0).all() and costs["instructions"].isna().all()
    assert (costs["ns_least"] <= costs["ns"]).all() and (costs["ns"] <= costs["ns_most"]).all()
    # Times on a busy machine are arbitrary: the test checks that there is a verdict.
    assert result.verdicts and all(verdict.found for verdict in result.verdicts)
    assert result.plot().axes


def pairs_of(times, misses):
    """A table of Figs. 3 to 7 where all sets are alike: what FIFO, DRR, QFQ+ and QFQ take."""
    from fairlane_lab.experiments import _flowsets, qfqplus_fig3_7

    rows = [
        {
            "set": name,
            "arrivals": arrivals,
            "algorithm": algorithm,
            "ns": time * (2 if name.startswith("32k") else 1) * (worse if arrivals == "bursty" else 1),
            "instructions": 50.0 + time,
            "misses": missed if name.startswith("32k") else 0.0,
        }
        for name in _flowsets.FLOW_SETS
        for arrivals in ("smooth", "bursty")
        for algorithm, (time, worse), missed in zip(qfqplus_fig3_7.ALGORITHMS, times, misses)
    ]
    return {"costs": pd.DataFrame(rows)}


def test_a_packet_that_costs_as_the_paper_says_is_told_from_one_that_does_not():
    from fairlane_lab.experiments import qfqplus_fig3_7

    def holds(tables):
        return [verdict.holds for verdict in qfqplus_fig3_7.judge(tables, None)]

    as_there = pairs_of([(50, 0.9), (105, 1.1), (100, 1.3), (150, 1.2)], [1, 4, 3, 5])
    assert holds(as_there) == [True] * 8
    # As dear as QFQ, and DRR never the cheaper one.
    other = pairs_of([(50, 1.1), (60, 1.1), (145, 1.1), (150, 1.1)], [1, 4, 5, 5])
    assert holds(other) == [False, False, True, False, True, False, False, False]
    assert len(drawn(qfqplus_fig3_7.EXPERIMENT, as_there).axes) == 5


def drawn(experiment, tables):
    """A plot of these tables."""
    from fairlane_lab import drawing

    return drawing.titled("", experiment.size, lambda figure: experiment.draw(figure, tables, experiment.paper))


@pytest.mark.parametrize(
    "said",
    [
        "==7== I   refs:      {0:,}\n==7== D1  misses:    {1:,}  ( 9 rd + 1 wr)\n==7== LLd misses:    {2:,}  (1 rd)\n",
        "==7== I refs:        {0:,}\n==7== D1 misses:     {1:,}  (9 rd)\n==7== LLd misses:    {2:,}  (1 rd)\n",
    ],
)
def test_what_cachegrind_says_is_read_as_the_difference_of_two_runs(monkeypatch, tmp_path, said):
    def pairs(_, __, requests, under):
        assert "--LL=6291456,12,64" in under
        text = said.format(5_000_000 + 150 * requests, 70_000 + requests, 1_000 + requests // 2)
        return {"enqueues": requests // 2}, text

    monkeypatch.setattr(programs.Instruments, "pairs", pairs)
    case = programs.Case("qfq", "1:1700:1000", "0n", "30n")
    counts = programs.Instruments(tmp_path).misses_per_pair(case, 20_000, 40_000)
    assert counts == {"instructions": 300.0, "d1_misses": 2.0, "misses": 1.0}


def costs_of(instructions):
    """A table of costs by formulas of the number of flows."""
    rows = [
        {"flows": flows, "algorithm": name, "ns": float(of(flows)), "instructions": float(of(flows))}
        for flows in (1, 8, 64, 512)
        for name, of in instructions.items()
    ]
    return pd.DataFrame(rows)


def test_what_grows_and_what_is_flat_is_told_apart():
    from fairlane_lab.experiments import _cost

    base = {"none": lambda _: 100, "fifo": lambda _: 120, "drr": lambda _: 150}
    growing = {"qfq": lambda _: 175, "wf2q+": lambda flows: 200 + 20 * math.log2(flows)}
    good = _cost.beyond(costs_of({**base, **growing}), "instructions")
    assert _cost.flat(good, "instructions").holds and _cost.grows(good, "instructions").holds
    turned = {"qfq": growing["wf2q+"], "wf2q+": growing["qfq"]}
    bad = _cost.beyond(costs_of({**base, **turned}), "instructions")
    assert not _cost.flat(bad, "instructions").holds and not _cost.grows(bad, "instructions").holds


def test_figures_have_three_digits():
    shown = {12345.6: "12346", 9.87654: "9.88", 0.0123456: "0.0123", 0.0: "0", math.nan: "", 7: "7"}
    assert [report.digits(value) for value in shown] == list(shown.values())
