from collections.abc import Callable

from fixtures.analysis.verdicts import Gate


def test_speculation_keeps_its_side(
    profile: str, variant: str, workload: str, concurrency: int, hold: Callable[..., None]
) -> None:
    """Speculation beats baseline at each level recorded faster, and does not at each level recorded slower."""
    hold(Gate.SIGN)


def test_speedup_holds(profile: str, variant: str, workload: str, concurrency: int, hold: Callable[..., None]) -> None:
    """The ratio of throughputs is still the recorded one."""
    hold(Gate.RATIO)
