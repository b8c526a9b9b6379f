"""Nights of real SGLang 0.5.17 on one H200, as the suite saved them: what they said must stay what they say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures import recorded
from fixtures.analysis.calibration import calibrate
from fixtures.analysis.crossover import Shape
from fixtures.analysis.gate import Judgement, Rules, judge
from fixtures.analysis.measurements import BASELINE, Night
from fixtures.analysis.policy import policy_of
from fixtures.analysis.policy_serving import slots_of
from fixtures.analysis.record import Refused, make_record
from fixtures.analysis.verdicts import Gate, Outcome
from fixtures.histories import read_judged, read_night

FOLDER = Path(__file__).parent / "samples" / "nights"
RULES = Rules(pairs=(("eagle3", "short"),))


@pytest.fixture(scope="module")
def night() -> Night:
    """An A B B A night at C = 1, 10, 100, 250: baseline and EAGLE-3 with simulated acceptance 2.8."""
    return read_night(FOLDER / "h200-night.json")


@pytest.fixture(scope="module")
def same() -> Night:
    """Four launches of baseline, of which the middle two are called eagle3: A/A in the order of a night."""
    four = read_night(FOLDER / "h200-aa.json")
    cells = tuple(replace(c, block=1, variant="eagle3" if c.launch in (2, 3) else "baseline") for c in four.cells)
    expected = tuple(cell.key for cell in cells)
    return replace(four, cells=cells, expected=expected)


def test_healthy_node_has_no_invalid_cell(night: Night) -> None:
    """No rule of validity fires on a node that does nothing wrong."""
    assert [cell.invalid_reasons for cell in night.cells if not cell.valid] == []
    assert len(night.cells) == 16
    assert {cell.clock for cell in night.cells} == {"kernel"}


def test_loop_was_full_and_the_client_was_not_the_limit(night: Night) -> None:
    """At every level the deficit is under a thousandth, a tenth of a core carries the client, no read is late."""
    windows = [window for cell in night.cells for window in cell.rounds]

    assert max(window.in_flight_deficit for window in windows) < 0.001
    assert max(window.client_cpu_share or 0 for window in windows) < 0.1
    assert max(window.coalesced_share or 0 for window in windows) < 0.01


def test_simulated_acceptance_is_read_as_it_was_set(night: Night) -> None:
    """SGLang was told 2.8 tokens a step; 1 + correct drafts / verify steps finds it at every level."""
    found = [w.acceptance_length for c in night.cells if c.variant == "eagle3" for w in c.rounds]

    assert found
    assert all(length == pytest.approx(2.8, abs=0.1) for length in found)


def test_speculation_wins_everywhere_on_this_node(night: Night) -> None:
    """With equal caps there is no crossover up to C = 250; the default cap of 48 would fake one at 98."""
    record = make_record(night, "test")
    crossing = next(iter(record.workloads.values())).variants["eagle3"].crossover

    assert crossing.shape is Shape.ALWAYS_FASTER


def test_night_without_a_record_is_unrecorded(night: Night) -> None:
    """Numbers alone pass nothing."""
    assert judge(night, None, (), RULES).outcome is Outcome.UNRECORDED


def test_a_against_a_is_not_recorded_as_anything(same: Night) -> None:
    """Four launches of one server are told apart by nobody: there is no crossover to record, and the suite says so."""
    with pytest.raises(Refused, match="not resolved"):
        make_record(same, "test")


def test_a_against_a_has_no_speedup_beyond_its_interval(same: Night) -> None:
    """The interval of A/A's speed-up holds 1 at every level."""
    rows = judge(same, None, (), RULES).rows

    assert [row.concurrency for row in rows] == [1, 10, 100, 250]
    assert all(row.low and row.high and row.low <= 1 <= row.high for row in rows)


def test_noise_differs_by_level() -> None:
    """Thousandths between launches at C = 1 and 10, per cents at C = 100 and 250: one spread for all would lie."""
    found = calibrate(read_night(FOLDER / "h200-aa.json"), Rules(pairs=()), window_s=4)
    sds = {level.concurrency: level.launch_sd for level in found}

    assert sds[1] < 0.005
    assert sds[10] < 0.005
    assert 0.01 < sds[100] < 0.06
    assert 0.01 < sds[250] < 0.06


def judged(name: str) -> Judgement:
    """Return the verdicts of the saved night *name* on the record that it was judged against."""
    it = read_judged(FOLDER / f"{name}.json")
    return judge(it.night, it.record, it.history, it.rules)


def test_ordinary_night_held() -> None:
    """The night after the record, with fresh servers: every gate of every level, and the crossover, passed."""
    it = judged("h200-gated")

    assert it.outcome is Outcome.HELD
    assert {v.concurrency for v in it.verdicts if v.gate is Gate.RATIO} == {1, 2, 5, 10, 30, 70, 100, 250}


def test_ordinary_night_holds_against_the_record_that_ships() -> None:
    """The record in the repository is the one that the night was held against, whatever it became since."""
    it = read_judged(FOLDER / "h200-gated.json")
    shipped = recorded.read(recorded.path_of("h200", None))

    assert shipped
    assert judge(it.night, shipped, it.history, it.rules).outcome is Outcome.HELD


def test_lower_acceptance_is_regressed_and_named() -> None:
    """2.52 accepted tokens instead of 2.8: every level's acceptance fails, and the slower speed-up is laid to it."""
    verdicts = judged("h200-acceptance").verdicts
    lengths = [v for v in verdicts if v.gate is Gate.ACCEPTANCE]
    (slower,) = [v for v in verdicts if v.gate is Gate.RATIO and v.outcome is Outcome.REGRESSED]

    assert {v.outcome for v in lengths} == {Outcome.REGRESSED}
    assert len(lengths) == 3
    assert "acceptance length -9" in slower.reason
    assert slower.next_step.startswith("Look at the draft model")


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("h200-cap", "it runs at most 48 requests at once"),
        ("h200-graphs", "it has no decode graph for the batch sizes"),
    ],
    ids=["cap", "graphs"],
)
def test_arm_that_is_not_as_meant_is_invalid(name: str, cause: str) -> None:
    """SGLang's own cap of 48, or graphs for half of the sizes, on one arm alone: no number is made of it."""
    it = judged(name)

    assert it.outcome is Outcome.INVALID
    assert all(cause in v.reason for v in it.verdicts if v.outcome is Outcome.INVALID)


def test_launches_that_contradict_a_short_record_are_no_regression() -> None:
    """Another machine, a shaky one: two launches of one server made 8,700 and 12,600 tok/s, and the record has two.

    What both launches agree on is judged all the same: at C = 10 that machine's speculation is slower.
    """
    it = judged("h200-sweep")
    found = {(v.gate, v.concurrency): v.outcome for v in it.verdicts}

    assert {found[Gate.RATIO, level] for level in (30, 70, 100, 250)} == {Outcome.HELD}
    assert found[Gate.TPOT, 10] is Outcome.REGRESSED
    assert any(changed.startswith("gpus: ") for changed in it.changed)


def test_launches_apart_at_every_level_are_noise_beside_a_short_record_too() -> None:
    """The first launch of each arm at half its rate: that tonight's launches count in the spread excuses nothing."""
    it = read_judged(FOLDER / "h200-gated.json")
    halved = tuple(
        replace(c, rounds=tuple(replace(w, output_tokens=w.output_tokens / 2) for w in c.rounds))
        if c.launch in (1, 2)
        else c
        for c in it.night.cells
    )
    found = judge(replace(it.night, cells=halved), it.record, it.history, it.rules)

    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.noise
    assert found.noise[0].startswith("launches disagree: ")


def test_sweep_of_a_real_server_gives_a_policy() -> None:
    """One, three and five steps at six levels: deep drafts lead where few run, and nowhere is off better."""
    it = read_judged(FOLDER / "h200-sweep.json")
    policy = policy_of(it.night, "short", it.rules)
    slots = slots_of(policy)

    assert (policy.choices[0].chosen, policy.choices[0].unresolved) == ("eagle3-deep", ())
    assert all(choice.chosen != BASELINE for choice in policy.served)
    assert slots
    assert slots.by_batch()["20"] == {"candidate_steps": [3]}
    assert policy.gain(policy.always_on) > 0


def test_adaptive_server_took_the_steps_of_its_file() -> None:
    """SGLang 0.5.17 started with 5, 3 and 1 steps and switched where the padded batch says, on both sides each time."""
    cells = [c for c in read_night(FOLDER / "h200-adaptive.json").cells if c.variant == "adaptive"]
    accepted = {5: 3.4, 3: 2.8, 1: 1.7}

    assert {(c.concurrency, c.steps_in_force) for c in cells} == {(16, 5), (17, 3), (20, 3), (70, 3), (80, 1)}
    assert all(c.valid for c in cells)
    for cell in cells:
        if cell.concurrency != 17:  # 16 or 17 are running there, so that it goes back and forth
            lengths = [window.acceptance_length for window in cell.rounds]
            assert lengths == pytest.approx([accepted[int(cell.steps_in_force or 0)]] * len(lengths), abs=0.15)


def test_night_that_was_cut_short_passes_nothing() -> None:
    """Six of ten launches: every gate says what is missing."""
    it = judged("h200-adaptive")

    assert it.outcome is Outcome.INCONCLUSIVE
    assert {v.outcome for v in it.verdicts if v.gate in (Gate.RATIO, Gate.SIGN)} == {Outcome.INCONCLUSIVE}


def test_sglangs_own_benchmark_agrees_with_the_client() -> None:
    """In turn on one server: the same tokens to the last one, as the server counts them, at the same rate."""
    rows = json.loads((FOLDER.parent / "h200-cross-check.json").read_text())["rows"]

    assert {row["client"] for row in rows} == {"ours", "sglang.benchmark.serving"}
    assert all(row["server"]["output_tokens"] == row["requests"] * 256 for row in rows)
    for level in (10, 100):
        ours, theirs, again = [row for row in rows if row["concurrency"] == level]
        either = sorted([ours["output_tok_s"], again["output_tok_s"]])
        assert 0.97 * either[0] < theirs["output_tok_s"] < 1.03 * either[1]
        assert theirs["tpot_ms_p50"] == pytest.approx(ours["tpot_ms_p50"], rel=0.04)
        assert all(row["e2e_ms_mean"] > row["server"]["e2e_ms_mean"] for row in rows)  # its clock starts later


@pytest.mark.parametrize("name", ["h200-gated", "h200-acceptance"])
def test_servers_own_counters_tell_the_clients_story(name: str) -> None:
    """Each cell's tokens were counted by the server as well: generated is at least what completed at the client."""
    for cell in read_night(FOLDER / f"{name}.json").cells:
        received = sum(window.output_tokens for window in cell.rounds)
        assert cell.counters["generated_tokens"] > received
