"""Which windows count, by what the server's prefix cache did."""

from dataclasses import replace

import pytest

from fixtures.analysis.measurements import RequestTrace, Window
from fixtures.analysis.validity import Limits, invalid_reasons
from fixtures.analysis.windows import cached_share


def window(share: float | None) -> Window:
    """Return a window that is sound but for its *share* of cached prompt tokens."""
    return Window(
        seconds=1.0,
        output_tokens=100.0,
        requests_completed=4,
        requests_failed=0,
        ttft_s=None,
        tpot_s=None,
        e2e_s=None,
        acceptance_length=None,
        verify_steps=None,
        step_s=None,
        running_mean=4.0,
        running_max=4.0,
        cached_share=share,
    )


def trace(cached: int | None) -> RequestTrace:
    """Return a request of 100 prompt tokens of which *cached* were cached."""
    return RequestTrace(index=0, expected_tokens=1, sent_s=0.0, prompt_tokens=100, cached_tokens=cached)


@pytest.mark.parametrize("share", [None, 0.0, 0.01], ids=["unknown", "cold", "a common first token"])
def test_a_cold_cache_counts(share: float | None) -> None:
    """Prompts that share next to nothing with earlier ones are no reason."""
    assert invalid_reasons([window(0.0), window(share)], 4, 2) == []


def test_a_warm_cache_does_not_count() -> None:
    """One window whose prompts were known already makes the cell invalid, and the reason says how warm it was."""
    assert invalid_reasons([window(0.0), window(0.97)], 4, 2) == [
        "warm cache: 97% of the prompt tokens were cached already (allowed 1%)"
    ]


@pytest.mark.parametrize(
    ("cached", "share"),
    [([0, 99], 0.495), ([None, 50], 0.5), ([None, None], None)],
    ids=["two", "one does not say", "none says"],
)
def test_the_cached_share_is_over_the_requests_that_say(cached: list[int | None], share: float | None) -> None:
    """Servers that do not say are left out, never counted as cold."""
    assert cached_share([trace(each) for each in cached]) == share


def test_a_client_may_be_later_where_the_profile_says_so() -> None:
    """On a busy machine twice the lateness is allowed, and not more."""
    late = [replace(window(0.0), in_flight_deficit=share) for share in (0.009, 0.011)]

    assert [bool(invalid_reasons([each], 4, 1, Limits().later(2))) for each in late] == [False, True]
