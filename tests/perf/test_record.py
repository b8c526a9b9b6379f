from collections.abc import Callable
from pathlib import Path


def test_night_is_recorded(profile: str, accept_night: Callable[[], Path]) -> None:
    """The night is sound enough to be what later nights are held against, and is written as the record."""
    path = accept_night()

    assert path.is_file()
