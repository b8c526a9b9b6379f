from collections.abc import Callable

from fixtures.analysis.verdicts import Gate


def test_ttft_holds(profile: str, variant: str, workload: str, concurrency: int, hold: Callable[..., None]) -> None:
    """The time to the first token did not grow beyond the recorded one."""
    hold(Gate.TTFT)


def test_tpot_holds(profile: str, variant: str, workload: str, concurrency: int, hold: Callable[..., None]) -> None:
    """The time per output token did not grow beyond the recorded one."""
    hold(Gate.TPOT)
