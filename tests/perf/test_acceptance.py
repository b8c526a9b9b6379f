from collections.abc import Callable

from fixtures.analysis.verdicts import Gate


def test_acceptance_length_holds(
    profile: str, variant: str, workload: str, concurrency: int, hold: Callable[..., None]
) -> None:
    """A verify step yields as many tokens as recorded: a collapsed draft leaves the outputs right and nobody warned."""
    hold(Gate.ACCEPTANCE)
