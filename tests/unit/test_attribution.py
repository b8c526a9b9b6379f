"""Each single change lands in its own term."""

from dataclasses import replace
from typing import Any

import pytest

from fixtures.analysis.arms import summarise
from fixtures.analysis.attribution import Attribution, environment_changes
from fixtures.analysis.gate import judge
from fixtures.analysis.measurements import Cell, Night
from fixtures.analysis.record import make_record
from tests.unit.handmade import RULES, night, recording, rewound

RECORD = make_record(recording(), "first")


def at_one(it: Night) -> Attribution:
    """What the change at C = 1 is made of."""
    found = judge(it, RECORD, [], RULES).rows[0].attribution
    assert found is not None
    return found


def eagle3(**factors: float) -> Night:
    """A night in which numbers of the variant's windows are multiplied."""
    return _times(night(day=20), "eagle3", factors)


def _times(it: Night, variant: str, factors: dict[str, float]) -> Night:
    return replace(it, cells=tuple(_cell(c, factors) if c.variant == variant else c for c in it.cells))


def _cell(cell: Cell, factors: dict[str, float]) -> Cell:
    return replace(
        cell,
        rounds=tuple(replace(w, **{name: getattr(w, name) * f for name, f in factors.items()}) for w in cell.rounds),
    )


@pytest.mark.parametrize(
    ("factors", "term"),
    [
        ({"output_tokens": 0.9, "acceptance_length": 0.9}, "acceptance length"),
        ({"output_tokens": 0.9, "step_s": 1 / 0.9}, "step time"),
        ({"output_tokens": 0.9}, "rest (prefill, queueing, client)"),
    ],
    ids=["shorter acceptance", "longer steps", "longer prefill"],
)
def test_single_fault_lands_in_its_own_term(factors: dict[str, float], term: str) -> None:
    """A tenth of the speed-up is lost for one reason: at least 90 % of the loss is in that reason's term."""
    found = at_one(eagle3(**factors))

    assert found.largest == term
    assert found.terms()[term] / found.speedup == pytest.approx(1.0, abs=0.1)
    assert found.slower_arm == "variant"


def test_fewer_admitted_are_named() -> None:
    """A tenth of the requests waits in the server, and a tenth of the speed-up is lost."""
    found = at_one(rewound(eagle3(output_tokens=0.9), variant="eagle3", running_mean=0.9, queued_mean=0.1))

    assert found.largest == "admitted requests"
    assert found.terms()["admitted requests"] / found.speedup == pytest.approx(1.0, abs=0.1)


def served(*, step_s: float = 0.01, acceptance: float = 3.0, rest_s: float = 0.001, prefill_s: float = 0.01) -> Night:
    """A night at C = 4 whose eagle3 takes *step_s* for each step and *rest_s* for each token beside the steps."""
    seconds = step_s / acceptance / 4 + rest_s
    values = {
        "output_tokens": 10 / seconds,
        "acceptance_length": acceptance,
        "step_s": step_s + 0.1 * prefill_s,
        "prefills_a_step": 0.1,
        "turnaround_s": step_s + prefill_s,
    }
    whole = rewound(night({1: 1.5, 4: 1.3}, order="ABBABAAB", day=20), prefills_a_step=0.1, turnaround_s=0.02)
    return rewound(whole, variant="eagle3", level=4, **values)


@pytest.mark.parametrize(
    ("change", "term"),
    [
        ({"acceptance": 2.0}, "acceptance length"),
        ({"step_s": 0.015}, "step time"),
        ({"rest_s": 0.002, "prefill_s": 0.06}, "rest (prefill, queueing, client)"),
    ],
    ids=["shorter acceptance", "longer steps", "longer prefill, before every tenth step"],
)
def test_one_change_is_one_term_however_much_prefill_there_is(change: dict[str, float], term: str) -> None:
    """Steps and acceptance rule half of the time: what they change is all theirs, and prefill is not called a step."""
    against = make_record(served(), "half of the time is prefill")
    found = judge(served(**change), against, [], RULES).rows[1].attribution
    assert found is not None

    assert abs(found.speedup) > 0.2
    assert found.terms()[term] == pytest.approx(found.speedup, rel=0.02)


def test_a_night_that_does_not_tell_prefill_from_steps_is_compared_as_seen() -> None:
    """Against a record from before the suite could, a step is what it was then: with the prefill between."""
    against = make_record(rewound(served(), prefills_a_step=None), "an older suite's")
    found = judge(served(), against, [], RULES).rows[1].attribution
    assert found is not None

    assert found.step == pytest.approx(0.0, abs=1e-9)


def test_terms_add_up_to_the_speedup() -> None:
    """Nothing is left over: the remainder is a term of its own."""
    found = at_one(eagle3(output_tokens=0.8, acceptance_length=0.9, step_s=1.05, running_mean=0.99))

    assert sum(found.terms().values()) == pytest.approx(found.speedup)


def test_baseline_that_moved_is_named() -> None:
    """The ratio rose since baseline's steps became longer."""
    found = at_one(_times(night(day=20), "baseline", {"output_tokens": 0.9, "step_s": 1 / 0.9}))

    assert found.slower_arm == "baseline"
    assert found.largest == "step time"
    assert found.variant == pytest.approx(0.0, abs=1e-9)


def test_term_that_no_server_reports_is_unknown_and_not_nothing() -> None:
    """Without step times the split is not known; the arms' own changes still are."""
    found = at_one(rewound(night(day=20), step_s=None))

    assert found.step is None
    assert found.remainder is None
    assert found.baseline == pytest.approx(0.0, abs=1e-9)


def test_sentence_names_terms_and_arms() -> None:
    """A failure reads as a cause."""
    text = at_one(eagle3(output_tokens=0.9, acceptance_length=0.9)).sentence("eagle3")

    assert text.startswith("speed-up -10.")
    assert "= acceptance length -10.0 %, " in text
    assert "baseline +0.0 %, eagle3 -10.0 % by itself" in text


def test_advice_follows_the_largest_term() -> None:
    """Shorter acceptance sends you to the draft, longer steps to the step."""
    assert "draft model" in at_one(eagle3(output_tokens=0.9, acceptance_length=0.9)).advice
    assert "step costs" in at_one(eagle3(output_tokens=0.9, step_s=1 / 0.9)).advice
    assert "do not report" in at_one(rewound(night(day=20), step_s=None, acceptance_length=None)).advice


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        ({"driver": "570"}, {"driver": "580"}, ["driver: recorded 570, tonight 580"]),
        ({"driver": "570"}, {"driver": "570"}, []),
        ({}, {"SGLANG_SPEC_V2": "1"}, ["SGLANG_SPEC_V2: recorded nothing, tonight 1"]),
        ({"SGLANG_SPEC_V2": "1"}, {}, ["SGLANG_SPEC_V2: recorded 1, tonight nothing"]),
        (
            {"packages": {"torch": "2.8", "numpy": "2.4"}},
            {"packages": {"torch": "2.9", "numpy": "2.4"}},
            ["packages.torch: recorded 2.8, tonight 2.9"],
        ),
    ],
    ids=["changed", "equal", "new", "gone", "within a table"],
)
def test_changes_since_the_record_are_suspects_with_both_values(
    then: dict[str, Any], now: dict[str, Any], expected: list[str]
) -> None:
    """What appeared and what vanished count too."""
    assert environment_changes(summarise(night(environment=now)), then, {}) == expected


def test_changed_server_values_are_suspects_of_their_variant() -> None:
    """Another version of the engine, or another effective value, names the variant that it was seen on."""
    recorded = {"eagle3": {"engine": "sglang", "version": "0.5.16"}}

    found = environment_changes(summarise(night(environment={})), {}, recorded)

    assert found == ["eagle3: version: recorded 0.5.16, tonight 0.5.17"]
