from collections.abc import Callable

from fixtures.analysis.verdicts import Gate


def test_crossover(profile: str, variant: str, workload: str, hold: Callable[..., None]) -> None:
    """The crossover concurrency is where it was recorded: tonight's interval and the recorded one overlap."""
    hold(Gate.CROSSOVER)
