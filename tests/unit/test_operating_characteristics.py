"""The harness that measures the gate's error rates can itself fail, and its noise is what it says."""

from pathlib import Path

import numpy as np
import pytest

from fixtures.analysis.arms import summarise
from fixtures.analysis.estimates import mean
from fixtures.analysis.measurements import BASELINE
from tests.perf.operating_characteristics import bars, controls, envelopes, studies
from tests.perf.operating_characteristics.__main__ import CLOSE, OPEN, insert
from tests.perf.operating_characteristics.faults import CURVES, FAULTS, LEVELS, Fault, X, only
from tests.perf.operating_characteristics.nights import H200, MIDDLE, VARIANT, WORKLOAD, Noise, World
from tests.perf.operating_characteristics.suite import run, start

SILENT = Noise(launch=0, launch_level=0, correlated=0, white=0, outliers=0, common=0, ratio=0, drift=0)


@pytest.mark.parametrize(("value", "cleared"), [(0.4, True), (0.41, False)], ids=["at the bar", "over the bar"])
def test_bar_from_above(value: float, *, cleared: bool) -> None:
    """A rate may reach its bar and not pass it."""
    assert bars.at_most("alarms", value, 0.4, 20, share=False).cleared is cleared


@pytest.mark.parametrize(("value", "cleared"), [(0.95, True), (0.94, False)], ids=["at the bar", "under the bar"])
def test_bar_from_below(value: float, *, cleared: bool) -> None:
    """A detection may fall to its bar and not below."""
    assert bars.at_least("seen", value, 0.95, 100).cleared is cleared


def test_short_run_is_forgiven_its_own_luck_and_no_more() -> None:
    """Twenty runs: three Monte-Carlo sds of 4.9 points each; a gate that sees nothing still fails."""
    assert bars.at_least("seen", 0.85, 0.95, 20, short=True).cleared
    assert not bars.at_least("seen", 0.75, 0.95, 20, short=True).cleared


def test_bar_that_fails_says_so() -> None:
    """In the printed line and in the table."""
    missed = bars.at_least("−10 % seen", 0.5, 0.95, 100)

    assert str(missed) == "FAIL −10 % seen: 50.0 %, bar ≥ 95.0 %"
    assert "**not cleared**" in bars.table([], [], [], [missed])


def test_tables_replace_what_is_between_the_markers() -> None:
    """The rest of the file stays as it is, however often it is written."""
    text = f"# Title\n\n{OPEN}\nold\n{CLOSE}\n\nThe end.\n"

    once = insert(text, "new")

    assert once == f"# Title\n\n{OPEN}\nnew\n{CLOSE}\n\nThe end.\n"
    assert insert(once, "new") == once


@pytest.mark.parametrize("text", ["", "# Title\n"], ids=["no file", "no markers"])
def test_tables_are_appended_where_there_are_no_markers(text: str) -> None:
    """A first run needs no preparation."""
    written = insert(text, "new")

    assert written.startswith(text.strip())
    assert written.count(OPEN) == written.count(CLOSE) == 1
    assert insert(written, "new") == written


@pytest.mark.parametrize(("curve", "truth"), [("S45", 45.0), ("S31", 31.0), ("flat7", 7.0)])
def test_curves_cross_where_they_say(curve: str, truth: float) -> None:
    """Positive before, negative after, and near nothing at the crossing."""
    near = np.interp(np.log(truth), X, CURVES[curve])

    assert abs(near) < 0.02
    assert CURVES[curve][0] > 0 > CURVES[curve][-1]


def test_noise_is_what_it_says() -> None:
    """200 nights like the H200: launch medians scatter by 0.1 % at C = 10, by 2 % with two modes at C = 100."""
    world = World(3, CURVES["S45"], H200)
    logs = np.stack([controls.log_throughputs(world.night(blocks=1), BASELINE) for _ in range(200)])
    medians = np.median(logs, axis=-1)
    sd = np.sqrt(medians.var(axis=1, ddof=1).mean(axis=0))

    assert sd[LEVELS.index(10)] == pytest.approx(0.0011, rel=0.2)
    assert sd[LEVELS.index(100)] == pytest.approx(0.02, rel=0.15)


def test_fault_changes_what_it_says_and_nothing_else() -> None:
    """C = 10 −15 %: the variant's throughput at C = 10, no other level, not baseline."""
    sound, hit = (World(5, CURVES["S45"], MIDDLE).night(FAULTS[name]) for name in ("nothing", "C=10 −15 %"))
    change = {v: controls.log_throughputs(hit, v) - controls.log_throughputs(sound, v) for v in (BASELINE, VARIANT)}
    at_ten = LEVELS.index(10)

    assert change[BASELINE] == pytest.approx(0.0)
    assert change[VARIANT][:, at_ten] == pytest.approx(np.log(0.85))
    assert np.delete(change[VARIANT], at_ten, axis=1) == pytest.approx(0.0)


def test_night_through_a_file_is_judged_as_the_night_itself(tmp_path: Path) -> None:
    """The years are simulated through the entry point of a replay."""
    assert studies.files_judge_alike(tmp_path, seed=11, nights=2)


def test_fault_is_seen_and_no_fault_is_not() -> None:
    """One node, −10 % on speculation: seen on the first night and named right."""
    (found,) = studies.detection("S45", "middle", ["speculation −10 %"], runs=1, seed=17)

    assert (found.first_night, found.named_right) == (1.0, 1.0)


def test_level_with_two_modes_is_named_and_its_neighbours_are_not() -> None:
    """Ten nights on the synthetic H200, whose launches at C = 100 are in one of two modes: the judgement says so."""
    told = run(start(4, CURVES["S45"], H200), 11)[-1].judgement

    assert {text.partition(" runs at ")[0].split()[-1] for text in told.modes} == {"C=100"}


def test_quiet_node_sees_two_per_cent_on_the_first_night() -> None:
    """The finer gate that a quiet node deserves: −2 %, which the same gate at middle noise needs weeks for."""
    (found,) = studies.detection("S45", "h200", ["speculation −2 %"], runs=2, seed=23)

    assert (found.first_night, found.named_right) == (1.0, 1.0)


def test_adaptive_nights_are_what_they_are_said_to_be() -> None:
    """Without noise the adaptive variant is the best arm at every level, and off by its fault at one alone."""
    world = envelopes.ThreeArms(1, CURVES["S45"], SILENT)
    arms = summarise(world.night(Fault(variant=only(30, -0.1)))).arms
    base, static, adaptive = (
        mean(arms[name, WORKLOAD], "log_tok_s", LEVELS) for name in (BASELINE, VARIANT, "adaptive")
    )

    off = adaptive - np.maximum(base, static)
    assert off == pytest.approx(np.where(np.array(LEVELS) == 30, np.log(0.9), 0.0), abs=1e-6)


def test_envelope_study_tells_a_sound_variant_from_a_collapsed_one() -> None:
    """Few nights of quiet noise: none of the sound ones fails, all that miss 15 % at one level do."""
    assert envelopes.envelopes("quiet", 0.0, 10).fails == 0
    assert envelopes.envelopes("quiet", -0.15, 5).fails == 1


def test_envelope_table_needs_its_place() -> None:
    """Between its markers and nowhere else."""
    text = f"a\n{envelopes.OPEN}old\n{envelopes.CLOSE}\nb\n"

    assert envelopes.between(text, "new") == f"a\n{envelopes.OPEN}new\n{envelopes.CLOSE}\nb\n"
    with pytest.raises(ValueError, match="no place"):
        envelopes.between("a\n", "new")
