from collections.abc import Callable

from fixtures.analysis.verdicts import Gate


def test_workloads_differ_as_recorded(profile: str, variant: str, workloads: str, hold: Callable[..., None]) -> None:
    """The crossover is not larger on one workload where it was recorded larger on the other."""
    hold(Gate.WORKLOADS)
