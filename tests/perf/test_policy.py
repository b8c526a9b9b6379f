from collections.abc import Callable
from pathlib import Path


def test_policy_can_be_served(profile: str, write_policy: Callable[[], Path]) -> None:
    """The sweep says which variant is best at each level, and it is written so that a server can obey it."""
    path = write_policy()

    assert path.is_file()
