"""What a pass costs under a law: the numbers of the law, added up by hand."""

from dataclasses import replace

import pytest

from fixtures.simulator import laws
from fixtures.simulator.acceptance import Acceptance, fingerprint
from fixtures.simulator.law import AllReduce, Forward, Law

LAW = Law(
    name="by hand",
    about="round numbers",
    decode=Forward(fixed_s=10.0, per_token_s=1.0, per_kv_token_s=0.01, knee_tokens=100, past_knee_s=2.0),
    prefill=Forward(fixed_s=5.0, per_token_s=0.5),
    draft=Forward(fixed_s=1.0, per_token_s=0.1),
    verify_fixed_s=3.0,
    draft_prefill_per_token_s=0.25,
    all_reduce=AllReduce(layers=2, hidden_size=8, latency_s=0.5, bandwidth_byte_s=28.0),
    acceptance=Acceptance(probability=0.5),
)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(LAW.decode_s(4, 1000, 1), 10 + 4 + 10, id="decode: fixed, tokens, KV"),
        pytest.param(LAW.decode_s(120, 0, 1), 10 + 120 + 2 * 20, id="decode: past the knee a token costs more"),
        pytest.param(LAW.speculative_s(4, 1000, 1, 3), 10 + 16 + 10 + 3 + 3 * 1.4, id="3 drafts: verify 16"),
        pytest.param(LAW.speculative_s(4, 1000, 1, 0), 10 + 4 + 10 + 3, id="0 drafts: a verify pass of width 1"),
        pytest.param(LAW.prefill_s(20, 1, speculative=False), 5 + 10, id="prefill"),
        pytest.param(LAW.prefill_s(20, 1, speculative=True), 5 + 10 + 5, id="prefill with the draft's own"),
        pytest.param(LAW.decode_s(1, 0, 8), 11 + 4 * (0.5 + 28 / 28), id="2 reductions a layer: 28 bytes each"),
    ],
)
def test_a_pass_costs_what_its_parts_cost(seconds: float, expected: float) -> None:
    """A pass takes the sum of its parts, computed here by hand."""
    assert seconds == pytest.approx(expected)


@pytest.mark.parametrize(("batch", "factor"), [(1, 2.0), (4, 2.0), (8, 1.5), (16, 1.0), (99, 1.0)])
def test_a_bend_is_linear_in_log_batch(batch: int, factor: float) -> None:
    """Between two knots the factor is linear in log batch; outside it stays."""
    bent = replace(LAW, bend=((4, 2.0), (16, 1.0)))

    assert bent.speculative_s(batch, 0, 1, 3) == pytest.approx(factor * LAW.speculative_s(batch, 0, 1, 3))


@pytest.mark.parametrize(("die", "right"), [(0.6, 0), (0.5, 1), (0.3, 1), (0.2, 2), (0.12, 3), (0.001, 3)])
def test_drafts_are_right_until_the_first_that_is_not(die: float, right: int) -> None:
    """With probability 1/2 each, i drafts in a row are right for dice up to 2^-i, and no more than were drafted."""
    assert Acceptance(probability=0.5).correct(die, 1, 0, 3) == right


@pytest.mark.parametrize("even", [False, True], ids=["at random", "evenly"])
def test_mean_acceptance_is_the_geometric_sum(*, even: bool) -> None:
    """Over many dice the mean of correct drafts is p + p² + p³, whichever way they are spread."""
    draft = Acceptance(probability=0.7, even=even)
    throws = draft.dice(1, 1)

    mean = sum(draft.correct(next(throws), 1, 0, 3) for _ in range(20_000)) / 20_000

    assert mean == pytest.approx(0.7 + 0.49 + 0.343, rel=0.02)


def test_acceptance_falls_with_load_and_context_to_a_floor() -> None:
    """Each further request and each token of context takes its share, never below the floor."""
    draft = Acceptance(probability=0.8, per_request=0.01, per_context_token=0.001, least=0.1)

    assert draft.at(1, 0) == pytest.approx(0.8)
    assert draft.at(11, 100) == pytest.approx(0.6)
    assert draft.at(999, 0) == pytest.approx(0.1)


def test_even_dice_show_the_mean_in_few_steps() -> None:
    """Over 20 steps of any prompt the mean is within 5 % of p + p² + p³, where luck alone would be twice off."""
    draft = Acceptance(probability=0.7, even=True)

    means = []
    for prompt in range(50):
        throws = draft.dice(prompt, 1)
        means.append(sum(draft.correct(next(throws), 1, 0, 3) for _ in range(20)) / 20)

    assert sum(means) / 50 == pytest.approx(1.533, rel=0.01)
    assert all(mean == pytest.approx(1.533, abs=0.2) for mean in means)


def test_dice_belong_to_the_prompt_and_the_seed() -> None:
    """The same prompt and seed throw the same dice; another prompt or seed throws others."""
    first = fingerprint((5, 6, 7))

    def three(prompt: int, seed: int) -> list[float]:
        throws = Acceptance(probability=0.5).dice(prompt, seed)
        return [next(throws) for _ in range(3)]

    assert three(first, 1) == three(fingerprint([5, 6, 7]), 1)
    assert three(first, 1) != three(fingerprint((5, 6, 8)), 1)
    assert three(first, 1) != three(first, 2)


def test_an_unknown_law_is_refused_with_those_there_are() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(ValueError, match=r"no law 'blackwell'; there are: blackwell-tp8, cuda12\.8"):
        laws.get("blackwell")
