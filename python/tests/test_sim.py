"""Simulated links, seeded sources, scenarios, sites and bounds."""

import json
import pathlib

import fairlane
import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).parent / "../../examples"


def flows():
    lengths = fairlane.Lengths.uniform(64, 1500)
    return [
        fairlane.Flow(4, fairlane.Traffic.poisson("2mbit"), lengths),
        fairlane.Flow(2, fairlane.Traffic.greedy(3), fairlane.Lengths.fixed(1500)),
        fairlane.Flow(1, fairlane.Traffic.on_off("8mbit", 0.02, 0.05), lengths, max_len=1500),
    ]


def test_the_same_seed_gives_the_same_run_and_another_another():
    first, again, other = (
        fairlane.sim("qfq", "10mbit", flows(), 0.5, seed=seed) for seed in (1, 1, 2)
    )
    assert (first.departures == again.departures).all()
    assert first.flows.tobytes() == again.flows.tobytes()
    assert len(first.departures) != len(other.departures) or (
        first.departures != other.departures
    ).any()


def test_a_simulation_measures_both_indexes_and_the_fluid_server():
    run = fairlane.sim("wf2q+", "10mbit", flows(), 1.0)
    report = run.flows
    assert report["packets"].sum() == len(run.departures) and report["dropped"].sum() == 0
    assert (report["bytes"].sum()) == run.departures["len"].sum()
    assert (report["t_wfi_ns"] <= report["t_wfi_bound_ns"]).all()
    assert (report["b_wfi_backlogged_bytes"] <= report["b_wfi_bound_bytes"]).all()
    assert (report["b_wfi_bytes"] <= report["b_wfi_backlogged_bytes"]).all()
    assert (report["lag_ns"] >= 0).all() and (report["delay_mean_ns"] > 0).all()
    queued = fairlane.sim("wf2q+", "10mbit", flows(), 1.0, queue_packets=4).flows
    assert (queued["t_wfi_bound_ns"] > report["t_wfi_bound_ns"]).all()
    assert (queued["t_wfi_ns"] <= queued["t_wfi_bound_ns"]).all()


def test_sources_send_what_a_simulation_takes_in():
    sources = [(fairlane.Traffic.cbr("1mbit"), fairlane.Lengths.fixed(1250))] + [
        (fairlane.Traffic.poisson("3mbit"), fairlane.Lengths.uniform(64, 1500)) for _ in range(2)
    ]
    arrivals = fairlane.arrivals(sources, 0.5, seed=3)
    assert (np.diff(arrivals["time_ns"].astype(np.int64)) >= 0).all()
    steady = arrivals[arrivals["flow"] == 0]
    assert steady["time_ns"].tolist() == [n * 10_000_000 for n in range(50)]
    plans = [fairlane.Flow(1, traffic, lengths) for traffic, lengths in sources]
    run = fairlane.sim("drr", "10mbit", plans, 0.5, seed=3)
    assert run.flows["packets"].tolist() == [
        int((arrivals["flow"] == flow).sum()) for flow in range(3)
    ]
    for flow in range(3):
        came = np.sort(run.departures["arrival_ns"][run.departures["flow"] == flow])
        assert (came == arrivals["time_ns"][arrivals["flow"] == flow]).all()


def test_a_trace_is_sent_as_it_is_and_a_limit_drops():
    trace = fairlane.trace([0, 0, 1_000_000], [1000, 1000, 500])
    flow = fairlane.Flow(1, trace, fairlane.Lengths.fixed(1000), limit_packets=1)
    run = fairlane.sim("fifo", "8mbit", [flow], 1.0)
    assert run.departures["len"].tolist() == [1000, 500]
    assert run.flows["dropped"].tolist() == [1]


def test_a_greedy_source_is_none_without_a_link():
    with pytest.raises(fairlane.ArgumentError):
        fairlane.packets(fairlane.Traffic.greedy(), fairlane.Lengths.fixed(100), 1.0)


def test_bounds_follow_the_weights():
    weights = fairlane.flows([8, 4, 2, 1], 1500)
    bounds = fairlane.bounds("qfq", "100mbit", weights)
    assert np.allclose(bounds["share"], np.array([8, 4, 2, 1]) / 15)
    assert (np.diff(bounds["delay_ns"]) > 0).all()
    assert bounds["guaranteed_bps"][0] == 100_000_000 * 8 // 15
    behind = fairlane.bounds("qfq", "100mbit", weights, queue_bytes=15_000)
    assert np.allclose(behind["t_wfi_ns"] - bounds["t_wfi_ns"], 15_000 * 80, atol=1)
    assert np.isnan(fairlane.bounds("fifo", "100mbit", weights)["t_wfi_ns"]).all()
    with pytest.raises(fairlane.WeightError):
        fairlane.bounds("qfq", "100mbit", ([1, 0], [1500, 1500]))


def test_priority_bounds_the_highest_level_alone():
    bounds = fairlane.bounds("priority", "8mbit", ([5, 2, 2], [200, 1000, 1000]), queue_bytes=500)
    # The transmit queue and the longest packet of all; its own packet comes on top of that.
    assert bounds["t_wfi_ns"][0] == 1_500_000 and bounds["b_wfi_bytes"][0] == 1500
    assert bounds["delay_ns"][0] == 1_700_000
    assert bounds["share"].tolist() == [1, 0, 0]
    assert bounds["guaranteed_bps"].tolist() == [8_000_000, 0, 0]
    for name in ("t_wfi_ns", "b_wfi_bytes", "delay_ns"):
        assert np.isnan(bounds[name][1:]).all()
    peers = fairlane.bounds("priority", "8mbit", ([5, 5], [200, 1000]))
    assert np.isnan(peers["t_wfi_ns"]).all()


def test_a_site_tells_what_it_guarantees():
    site = fairlane.Site(EXAMPLES / "home-gateway.toml")
    report = site.check()
    assert [link["name"] for link in report["links"]] == site.links
    voice = [c for link in report["links"] for c in link["classes"] if c["bound_us"]]
    assert voice and all(c["guaranteed_bps"] > 0 for c in voice)
    json.dumps(report)


def test_what_is_wrong_with_a_site_has_its_place(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text('[[link]]\nname = "up"\nto = "outside"\nrate = "fast"\n')
    with pytest.raises(fairlane.SiteError) as error:
        fairlane.Site(path)
    assert (str(path), 4) in [(file, line) for file, line, _, _ in error.value.places]
    with pytest.raises(fairlane.SiteError) as error:
        fairlane.Site(tmp_path / "none.toml")
    assert error.value.places == []


def test_a_scenario_is_simulated():
    evening = EXAMPLES / "sim/home-evening.toml"
    outcome = fairlane.scenario(evening, seconds=0.2, rates=True)
    assert outcome["seconds"] == pytest.approx(0.2) and not outcome["interrupted"]
    assert {row["name"] for row in outcome["classes"]} >= set(outcome.rates)
    assert all(points.shape[1] == 2 for points in outcome.rates.values())
    again = fairlane.scenario(evening, seconds=0.2)
    assert again == outcome and again.rates is None
    with pytest.raises(fairlane.ArgumentError):
        fairlane.scenario(evening, seconds=-1.0)


def test_wf2q_bounds_the_delay_and_not_the_service_over_every_interval():
    flows = fairlane.flows([8, 4, 1], 1500)
    wf2q, plus = (fairlane.bounds(name, "100mbit", flows) for name in ("wf2q", "wf2q+"))
    assert np.isnan(wf2q["b_wfi_bytes"]).all() and not np.isnan(plus["b_wfi_bytes"]).any()
    for name in ("t_wfi_ns", "delay_ns"):
        assert (wf2q[name] == plus[name]).all()
