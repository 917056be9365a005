"""Choices and regrets on made-up groups whose answers are known; not results."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from planning_tables import stored
from planning_tables.alternatives import (
    alternatives,
    but_precision,
    groups_by,
    training,
    training_anywhere,
)
from planning_tables.choices import (
    accuracy_by_distance,
    choice,
    pairs_of,
    summarized,
    under_caps,
)
from planning_tables.choosers import (
    BIGGEST_BATCH,
    BLIND,
    BLIND_PEAK,
    OURS,
    PEAK,
    scores,
)
from planning_tables.deadlines import in_time
from planning_tables.differences import precision_groups
from planning_tables.exhaustive import Alone, is_least
from planning_tables.greenest import measured_power_w
from planning_tables.promises import section as promises
from planning_tables.regrets import interval_over_sources, regrets_in
from planning_tables.search import (
    SEARCH,
    search,
    searched_groups,
    section,
    with_cost,
)
from precision_time.corpus.measurement import Measurement
from precision_time.errors import ConfigError

VALUES = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=12)


def run(
    source="made up",
    model="resnet50",
    device="A100-SXM4-80GB",
    precision="fp32",
    devices=1,
    batch=32.0,
) -> Measurement:
    return Measurement(
        source=source,
        source_ref="made up for this test",
        model=model,
        device=device,
        num_devices=devices,
        num_nodes=1,
        precision=precision,
        global_batch_size=batch,
        configuration_key=f"{source} {model} {device} {precision} {devices} {batch}",
    )


def made(rows, measured_s, **predicted_s):
    predicted = {name.replace("_", "-"): np.array(values) for name, values in predicted_s.items()}
    return alternatives(rows, np.array(measured_s), predicted)


@given(VALUES)
def test_the_oracle_has_no_regret_and_no_choice_has_less(values):
    measured = np.array(values)
    oracle = choice(measured, measured)
    assert oracle.best == oracle.within == pytest.approx(1.0)
    assert oracle.regret <= 1e-6  # alternatives that scores cannot tell apart are equal to a millionth
    for scored in (np.ones(len(values)), -measured, measured[::-1]):
        found = choice(measured, scored)
        assert found.regret >= 0.0 and 0.0 <= found.best <= found.within <= 1.0 + 1e-12


def test_a_choice_pays_what_was_measured():
    measured = np.array([1.0, 1.04, 2.0])
    assert choice(measured, np.array([3.0, 1.0, 2.0])).regret == pytest.approx(0.04)
    assert choice(measured, np.array([3.0, 1.0, 2.0])).best == 0.0
    assert choice(measured, np.array([3.0, 1.0, 2.0])).within == 1.0
    assert choice(measured, np.array([3.0, 2.0, 1.0])).regret == pytest.approx(1.0)


def test_equal_scores_are_chance():
    found = choice(np.array([1.0, 3.0, 9.0]), np.array([1.0, 1.0, 2.0]))
    assert (found.best, found.within, found.regret) == (0.5, 0.5, pytest.approx(1.0))


def test_a_cap_hides_what_is_above_it():
    measured, devices = np.array([8.0, 5.0, 4.0]), np.array([1.0, 2.0, 2.0])
    # Under a cap of one there is nothing to choose; under two the scores take the first.
    found = under_caps(measured, np.array([1.0, 3.0, 2.0]), devices)
    assert found is not None and found.regret == pytest.approx(1.0)
    assert under_caps(measured[1:], measured[1:], np.array([1.0, 2.0])).regret == 0.0
    assert under_caps(measured[:1], measured[:1], devices[:1]) is None


def test_a_group_counts_once_and_so_does_a_source():
    found = [choice(np.array([1.0, 1.0 + regret]), np.array([1.0, 0.0])) for regret in (0.2, 0.4, 1.2)]
    item = summarized(found, ["a", "a", "b"])
    assert (item.groups, item.best, item.within) == (3, 0.0, 0.0)
    assert (item.mean, item.median) == (pytest.approx(0.6), pytest.approx(0.4))
    assert item.over_sources == pytest.approx(0.75)


def test_the_interval_over_sources_is_as_wide_as_they_differ():
    assert interval_over_sources(np.array([1.0, 1.0, 1.0]), ["a", "b", "c"]) == (1.0, 1.0)
    low, high = interval_over_sources(np.array([0.0] * 9 + [1.0]), ["a"] * 9 + ["b"])
    assert (low, high) == (0.0, 1.0)


@given(VALUES, st.randoms(use_true_random=False))
def test_pairs_without_spread_are_kendalls_tau(values, random):
    measured = np.unique(np.array(values).round(3))
    scored = np.array(random.sample(range(len(measured)), len(measured)), dtype=float) + 1.0
    tau = pairs_of(measured, scored, np.zeros(len(measured))).tau
    if tau is None:
        assert len(measured) < 2
    else:
        assert tau == pytest.approx(kendalltau(measured, scored).statistic)


def test_pairs_closer_than_their_repeats_are_ties():
    measured, spread = np.array([1.0, 1.04, 2.0]), np.array([0.0, 0.05, 0.0])
    pairs = pairs_of(measured, np.array([2.0, 1.0, 3.0]), spread)
    assert pairs.ratio.tolist() == [2.0, pytest.approx(2.0 / 1.04)]
    assert pairs.tau == 1.0
    assert pairs_of(measured, np.ones(3), spread).tau == 0.0
    shares, counts = accuracy_by_distance([pairs, pairs_of(measured, -measured, spread)], (1.0, 1.95))
    assert shares == [0.5, 0.5] and counts == [2, 2]


def test_groups_of_one_are_left_out_and_repeats_are_one():
    rows = [run(), run(), run(precision="bf16-mixed"), run(model="bert-base"), run(source="other")]
    found = made(rows, [1.0, 1.2, 0.5, 9.0, 2.0])
    assert len(found) == 4
    assert found.measured_s.tolist() == [1.1, 0.5, 9.0, 2.0]
    # The only repeats differ by 0.2 of 1.1; what has none is given the same.
    assert found.spread.tolist() == pytest.approx([0.2 / 1.1] * 4)
    assert [item.places.tolist() for item in groups_by(found, training)] == [[0, 1]]
    anywhere = groups_by(found, training_anywhere, several_sources=True)
    assert [(item.places.tolist(), item.source) for item in anywhere] == [([0, 1, 3], "made up + other")]


def test_fp64_is_no_alternative_and_blind_cannot_tell_precisions_apart():
    rows = [run(precision=name) for name in ("fp32", "bf16-mixed", "fp64")]
    found = made(rows, [2.0, 1.0, 40.0], ours_model=[2.1, 1.2, 50.0], blind_model=[2.0, 2.0, 2.0])
    groups = precision_groups(found)
    assert [item.places.tolist() for item in groups] == [[0, 1]]
    assert len(groups_by(found, but_precision)[0].places) == 3
    chosen = regrets_in(found, groups).chosen
    assert chosen[OURS][0].regret == 0.0
    assert (chosen[BLIND][0].best, chosen[BLIND][0].regret) == (0.5, pytest.approx(0.5))
    assert chosen[BLIND_PEAK][0].regret == 0.0


def test_rules_read_the_data_sheet_and_the_batch():
    v100 = run(batch=32.0, device="V100-SXM2-16GB", precision="fp16-mixed")
    rows = [run(batch=64.0), run(batch=128.0, devices=4), v100]
    found = made(rows, [1.0, 1.0, 1.0], ours_model=[1.0] * 3, blind_model=[1.0] * 3)
    scored = scores(found, money=False)
    # 64, 32 and 32 a device: of the equal ones the fewest devices.
    assert np.argsort(scored[BIGGEST_BATCH]).tolist() == [0, 2, 1]
    # 19.5 TFLOP/s, four times that, and 125.
    assert np.argsort(scored[PEAK]).tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("predicted", "meets", "best", "regret"),
    [
        ([8.0, 5.0, 4.5], True, True, 0.0),  # the truth: two devices, of cost 10
        ([4.0, 5.0, 4.5], False, False, None),  # one device is thought in time, and is not
        ([8.0, 6.5, 4.5], True, False, 0.8),  # only four are thought in time
        ([9.0, 8.0, 7.0], True, False, 0.8),  # none: the fastest
    ],
)
def test_the_cheapest_that_is_expected_in_time(predicted, meets, best, regret):
    time, devices = np.array([8.0, 5.0, 4.5]), np.array([1.0, 2.0, 4.0])
    found = in_time(time, time * devices, np.array(predicted), devices, 6.0)
    assert (found.meets, found.best) == (meets, best)
    assert found.late == pytest.approx(0.0 if meets else 8.0 / 6.0 - 1.0)
    if regret is not None:
        assert found.regret == pytest.approx(regret)


def test_a_choice_that_is_not_the_least_of_the_loop_is_seen():
    def chosen(usd):
        return SimpleNamespace(
            choice=lambda aim: SimpleNamespace(candidate=SimpleNamespace(usd=usd, time_s=1.0))
        )

    alone = [Alone(time_s=2.0, usd=10.0, feasible=True), Alone(time_s=1.0, usd=5.0, feasible=False)]
    assert is_least(chosen(10.0), alone, "cheapest")
    assert not is_least(chosen(10.1), alone, "cheapest")
    # The faster one breaks a limit, so that `plan` must not choose it.
    assert not is_least(chosen(10.0), alone, "fastest")
    nothing = SimpleNamespace(choice=lambda aim: None)
    assert not is_least(nothing, alone, "cheapest") and is_least(nothing, alone[1:], "cheapest")


def test_runs_under_a_power_limit_are_no_alternatives():
    notes = (
        "power_limit_W=250 (default limit 250), average_power_W=108.4",
        "power_limit_W=125 (default limit 250)",
    )
    rows = [replace(run(batch=batch), notes=note) for note in notes for batch in (32.0, 64.0)]
    found = made(rows, [1.0, 1.5, 9.0, 9.0])
    assert found.measured_s.tolist() == [1.0, 1.5]
    assert [measured_power_w(item) for item in found.runs] == [108.4, 108.4]


def test_cherrypick_chooses_among_what_it_ran_and_counts_it():
    rows = [run(devices=count, batch=32.0 * count * size) for count in (1, 2, 4, 8) for size in (1, 2, 4)]
    measured = [row.global_batch_size / row.num_devices / 32.0 + 0.5 for row in rows]
    found = made(rows, measured, ours_model=measured, blind_model=measured, formulas=measured)
    costed = with_cost(found, searched_groups(found))
    done = search(costed, searched_groups(found))
    assert 6 <= done.runs[0] <= len(rows)
    assert done.chosen[0].regret >= 0.0
    table = section(found).tables[0]
    by_name = {row[0]: row for row in table.rows}
    assert by_name[SEARCH][1] == done.runs[0] and by_name[OURS][1] == 0


def test_kept_predictions_are_read_back_and_refused_for_another_corpus(tmp_path):
    path = tmp_path / "kept.npz"
    with pytest.raises(ConfigError, match="--fit"):
        stored.read(path)
    stored.write(path, "0" * 16, [1, 2], {"ours-model": np.array([0.1, 20.0])})
    with pytest.raises(ConfigError, match="is of corpus 0000"):
        stored.read(path)
    with np.load(path) as file:
        assert np.exp(file["ours-model"] / 1e4) == pytest.approx([0.1, 20.0], rel=1e-4)


def test_promises_are_counted_for_the_chosen_and_its_near_ties_say_more() -> None:
    rng = np.random.default_rng(3)
    rows = [run(model=f"resnet{n}", batch=32.0 + k) for n in range(60) for k in range(12)]
    batches = np.array([item.global_batch_size for item in rows])
    measured = batches * np.exp(rng.uniform(0.0, 0.3, len(rows)))
    said = measured * np.exp(rng.normal(0.0, 0.11, len(rows)))
    found = alternatives(rows, measured, {"ours-model": said, "blind-model": said, "formulas": said})
    (table,) = promises(found).tables
    fastest = next(row for row in table.rows if row[:2] == ("fastest", 10))
    assert fastest[2] == 60
    assert 5.0 < fastest[4] < 1.2 * fastest[3]
    before, after = (float(share) for share in str(fastest[7]).split(" -> "))
    assert before + 5.0 < after <= 95.0
