"""The order of launches is what cancels drift."""

from pathlib import Path

import pytest

from fixtures import profiles
from fixtures.launches import attached, default_variants, night

TINY = """
name = "tiny"
marker = "cpu"
about = "two levels, nothing to start"
levels = [1, 4]
[engine]
name = "llama_cpp"
[variants.baseline]
[variants.eagle3]
[variants.light]
[workloads.short]
prompt_tokens = 8
output_tokens = 8
[gate]
pairs = [{ workload = "short" }]
"""


@pytest.fixture
def tiny(tmp_path: Path) -> profiles.Profile:
    """A profile of two levels and three variants."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return profiles.load(str(path))


def test_night_is_mirrored_in_its_second_block(tiny: profiles.Profile) -> None:
    """A B B A, then B A A B: linear and quadratic drift cancel."""
    order = [launch.variant[0] for launch in night(tiny, ["baseline", "eagle3"], blocks=2)]

    assert "".join(order) == "beebebbe"


def test_more_variants_stay_a_palindrome(tiny: profiles.Profile) -> None:
    """Each variant's mean place in the block is the block's middle."""
    order = [launch.variant for launch in night(tiny, ["baseline", "eagle3", "light"], blocks=1)]

    assert order == order[::-1]
    assert order[:3] == ["baseline", "eagle3", "light"]


def test_launch_names_are_unique(tiny: profiles.Profile) -> None:
    """Equal parameter values would be merged by pytest, and four launches become two."""
    names = [str(launch) for launch in night(tiny, ["baseline", "eagle3"], blocks=2)]

    assert len(set(names)) == 8
    assert names[:2] == ["tiny-1-baseline", "tiny-2-eagle3"]


def test_default_variants_are_those_that_are_gated(tiny: profiles.Profile) -> None:
    """A variant that nobody gates costs no launch unless it is asked for."""
    assert default_variants(tiny) == ("baseline", "eagle3")


def test_attached_servers_are_one_launch_each(tiny: profiles.Profile) -> None:
    """One launch per URL: an attached server was started once, whoever started it."""
    launches = attached(tiny, {"baseline": ("http://a",), "eagle3": ("http://b", "http://c")})

    assert [(launch.number, launch.variant) for launch in launches] == [(1, "baseline"), (2, "eagle3"), (3, "eagle3")]
