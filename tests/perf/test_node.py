import pytest


def test_node_is_what_the_profile_says(node: list[str]) -> None:
    """The node is the one that the profile names, it is idle, and everything that a launch needs is there."""
    if node:
        pytest.fail("\n".join(node), pytrace=False)
