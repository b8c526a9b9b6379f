"""Nights of real SGLang 0.5.17 on one H200, as the suite saved them: what they said must stay what they say."""

from dataclasses import replace
from pathlib import Path

import pytest

from fixtures import recorded
from fixtures.analysis.calibration import calibrate
from fixtures.analysis.crossover import Shape
from fixtures.analysis.gate import Judgement, Rules, judge
from fixtures.analysis.measurements import Night
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


@pytest.mark.parametrize("name", ["h200-gated", "h200-acceptance"])
def test_servers_own_counters_tell_the_clients_story(name: str) -> None:
    """Each cell's tokens were counted by the server as well: generated is at least what completed at the client."""
    for cell in read_night(FOLDER / f"{name}.json").cells:
        received = sum(window.output_tokens for window in cell.rounds)
        assert cell.counters["generated_tokens"] > received
