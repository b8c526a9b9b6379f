"""The order of launches is what cancels drift."""

from pathlib import Path

import pytest

from fixtures import profiles
from fixtures.launches import attached, default_variants, default_workloads, night, thresholds

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


ADAPTIVE = """
[variants.adaptive]
steps_by_batch = { 1 = [3], 8 = [1], 20 = [0], 4096 = [3] }
[workloads.long]
prompt_tokens = 64
output_tokens = 8
"""


def test_envelope_brings_its_arms_and_its_workload(tmp_path: Path) -> None:
    """What an adaptive variant is held against is measured with it."""
    gate = 'envelopes = [{ static = ["light"], workload = "long" }]'
    path = tmp_path / "tiny.toml"
    path.write_text(TINY.replace("[gate]", f"{ADAPTIVE}[gate]\n{gate}"))
    profile = profiles.load(str(path))

    assert default_variants(profile) == ("baseline", "eagle3", "light", "adaptive")
    assert default_workloads(profile) == ("short", "long")


@pytest.mark.parametrize(
    ("graphs", "expected"),
    [("", (8, 20)), ("[engine.flags]\ncuda-graph-bs-decode = [1, 4, 8, 16, 32]", (5, 17))],
    ids=["no padding", "padded to captured graphs"],
)
def test_thresholds_are_where_another_slot_holds(tmp_path: Path, graphs: str, expected: tuple[int, ...]) -> None:
    """A batch of 17 is padded to 32, whose slot is that of 20; a slot beyond the top level is none."""
    path = tmp_path / "tiny.toml"
    text = TINY.replace("levels = [1, 4]", "levels = [1, 4, 32]").replace(
        "[variants.baseline]", f"{graphs}\n[variants.baseline]"
    )
    path.write_text(text.replace("[gate]", f"{ADAPTIVE}[gate]"))

    assert thresholds(profiles.load(str(path)), "adaptive") == expected


def test_attached_servers_are_one_launch_each(tiny: profiles.Profile) -> None:
    """One launch per URL: an attached server was started once, whoever started it."""
    launches = attached(tiny, {"baseline": ("http://a",), "eagle3": ("http://b", "http://c")})

    assert [(launch.number, launch.variant) for launch in launches] == [(1, "baseline"), (2, "eagle3"), (3, "eagle3")]
