from collections.abc import Callable

from fixtures.analysis.verdicts import Gate


def test_no_drift(profile: str, variant: str, workload: str, hold: Callable[..., None]) -> None:
    """No small change has piled up over the nights since the record."""
    hold(Gate.DRIFT)
