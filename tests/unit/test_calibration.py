"""What a node's noise lets the gate see, from launches of one server against themselves."""

from dataclasses import replace

import pytest

from fixtures.analysis.calibration import calibrate
from fixtures.analysis.gate import judge
from fixtures.analysis.measurements import Night
from fixtures.analysis.record import make_record
from fixtures.analysis.verdicts import Gate, Outcome
from tests.unit.handmade import RULES, SPEEDUP, night, recording

ONE = dict.fromkeys(SPEEDUP, 1.0)


def same_arm(spread: float) -> Night:
    """Four launches of baseline, *spread* apart in turn."""
    return night(ONE, order="AAAA", factors=(1 + spread, 1 - spread, 1 + spread, 1 - spread))


def test_quiet_node_gets_the_finer_gate() -> None:
    """Launches 0.05 % apart resolve 2.1 %; launches 2 % apart resolve far less."""
    quiet, loud = (calibrate(same_arm(s), RULES, window_s=10) for s in (0.0005, 0.02))

    assert quiet[0].resolvable == pytest.approx(0.021, abs=0.001)
    assert loud[0].resolvable > 0.08
    assert quiet[0].sentence() == "2.1 % at C=1"


def test_launch_noise_is_what_was_put_in() -> None:
    """±1 % in turn is an sd of 1.15 % over four launches."""
    assert calibrate(same_arm(0.01), RULES, window_s=10)[0].launch_sd == pytest.approx(0.01155, rel=0.02)


def test_window_twice_as_long_needs_twice_the_completions() -> None:
    """Windows of 10 s took k = 2; 20 s take 4, and 5 s no less than 1."""
    assert [level.k for level in calibrate(same_arm(0.01), RULES, window_s=10)] == [2] * 4
    assert calibrate(same_arm(0.01), RULES, window_s=20)[0].recommended_k == 4
    assert calibrate(same_arm(0.01), RULES, window_s=1)[0].recommended_k == 1


def test_finer_wish_takes_more_launches_or_is_refused() -> None:
    """5 % on a node of 1 % noise takes more than two launches an arm; 0.5 % no number of launches gives."""
    found = calibrate(same_arm(0.01), RULES, window_s=10, wanted=0.05)[0].launches_wanted

    assert found is not None
    assert found > 2
    assert calibrate(same_arm(0.01), RULES, window_s=10, wanted=0.005)[0].launches_wanted is None


def test_change_called_resolvable_is_seen_and_half_the_least_margin_is_not() -> None:
    """The promise of the sentence, held against the gate itself on a quiet node."""
    resolvable = calibrate(night(order="AAAA", factors=CALM), RULES, window_s=10)[0].resolvable
    record = make_record(recording(factors=CALM), "first")
    for change, outcome in ((resolvable, Outcome.REGRESSED), (0.005, Outcome.HELD)):
        worse = night({c: r * (1 - change) for c, r in SPEEDUP.items()}, order="ABBABAAB", factors=CALM, day=20)
        ratios = [v.outcome for v in judge(worse, record, [], RULES).verdicts if v.gate is Gate.RATIO]
        assert set(ratios) == {outcome}


CALM = (1.0005, 0.9995, 1.0005, 0.9995, 1.0005, 1.0005, 0.9995, 0.9995)


def test_each_row_of_a_night_says_what_the_gate_sees_there() -> None:
    """A quiet night resolves about 2 % at each level; the table can print it."""
    record = make_record(recording(factors=CALM), "first")

    rows = judge(night(factors=CALM, day=20), record, [], RULES).rows

    assert [row.resolvable for row in rows] == pytest.approx([0.021] * 4, abs=0.003)


def test_one_launch_shows_no_noise() -> None:
    """It says so instead of reporting none."""
    with pytest.raises(ValueError, match="launched twice"):
        calibrate(night(order="AB"), RULES, window_s=10)


def test_invalid_cells_do_not_calibrate() -> None:
    """What does not count says nothing of the noise either."""
    it = same_arm(0.01)
    cells = [replace(c, valid=c.launch != 4) for c in it.cells]

    assert calibrate(replace(it, cells=tuple(cells)), RULES, window_s=10)[0].launches == 3
