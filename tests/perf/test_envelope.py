from collections.abc import Callable

from fixtures.analysis.verdicts import Gate


def test_adaptive_keeps_up_with_the_best(
    profile: str, variant: str, static: str, workload: str, concurrency: int, hold: Callable[..., None]
) -> None:
    """At no level is the adaptive server worse than the best of baseline and the static variants."""
    hold(Gate.ENVELOPE)


def test_switching_is_looked_at(
    profile: str, variant: str, static: str, workload: str, hold: Callable[..., None]
) -> None:
    """Levels on both sides of each threshold are measured: that is where switching collapses."""
    hold(Gate.ENVELOPE)
