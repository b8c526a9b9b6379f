"""Profiles are read strictly, on any machine; their variables matter only where they are launched."""

from pathlib import Path

import pytest

from fixtures import profiles
from fixtures.profiles import ProfileError

MINIMAL = """
name = "x"
marker = "sim"
about = "x"
levels = [1, 4]
[engine]
name = "sglang"
[variants.baseline]
[variants.eagle3.flags]
speculative-algorithm = "EAGLE3"
[workloads.short]
prompt_tokens = 8
output_tokens = 8
[gate]
pairs = [{ workload = "short" }]
"""

LEVELS = [1, 2, 5, 10, 30, 70, 100, 250]
"""Those of the question that the suite answers."""


def load(tmp_path: Path, text: str) -> profiles.Profile:
    """Return the profile that *text* describes."""
    path = tmp_path / "x.toml"
    path.write_text(text)
    return profiles.load(str(path))


@pytest.mark.parametrize("name", profiles.available())
def test_a_profile_that_ships_is_sound(name: str) -> None:
    """Each parses, is called what its file is called, and gates speculation on a workload it has."""
    profile = profiles.load(name)

    assert profile.name == name
    assert profile.gate.pairs
    assert profile.levels[0] <= 2


@pytest.mark.parametrize("name", ["blackwell-tp8", "h200", "h200-tp8", "h200-tp8-pcie"])
def test_a_hardware_profile_asks_the_whole_question(name: str) -> None:
    """Every level of the question is measured, and no arm runs one of them outside its graphs or above its cap."""
    profile = profiles.load(name)

    assert profile.marker == "gpu"
    assert profile.levels == LEVELS
    sizes = profile.engine.flags["cuda-graph-bs-decode"]
    assert isinstance(sizes, list)
    assert set(LEVELS) <= set(sizes)
    assert profile.engine.flags["max-running-requests"] == 256
    assert {workload.stream_interval for workload in profile.workloads.values()} == {16}


@pytest.mark.parametrize(("variant", "steps", "tokens"), [("eagle3", 3, 4), ("eagle3-light", 1, 2)])
def test_arms_of_the_blackwell_node(variant: str, steps: int, tokens: int) -> None:
    """Beside baseline three ways to speculate, each a chain: it verifies one token more than it drafts."""
    flags = profiles.load("blackwell-tp8").variants[variant].flags

    assert flags["speculative-num-steps"] == steps
    assert flags["speculative-eagle-topk"] == 1
    assert flags["speculative-num-draft-tokens"] == tokens


@pytest.mark.parametrize("name", profiles.available())
def test_no_profile_that_ships_trusts_code_of_a_model(name: str) -> None:
    """Running a model's own code is a decision that somebody makes in a profile of their own."""
    profile = profiles.load(name)
    tables = [profile.engine.flags, *(variant.flags for variant in profile.variants.values())]

    assert not any("trust-remote-code" in table for table in tables)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('about = "x"', 'about = "x"\ncolour = "red"', "unknown field `colour`"),
        ('name = "sglang"', 'name = "vllm"', "Invalid enum value 'vllm'"),
        ("levels = [1, 4]", "levels = [4, 1]", "levels: must rise without repeats, not [4, 1]"),
        ("levels = [1, 4]", "levels = [0, 4]", "Expected `int` >= 1"),
        ("[variants.baseline]", "[variants.base]", "there is no 'baseline', the variant without speculation"),
        ('workload = "short"', 'workload = "long"', "gate.pairs: no workload 'long'; allowed: ['short']"),
        ('workload = "short"', 'workload = "short", variant = "x"', "no speculative variant 'x'; allowed: ['eagle3']"),
        ("output_tokens = 8", 'output_tokens = "8"', "Expected `int`, got `str`"),
        ("[gate]", '[grid]\nlike = "eagle9"\nsteps = [1]\n[gate]', "grid.like: no variant 'eagle9'"),
        ("[gate]", "[grid]\nsteps = [1]\ntopk = [4]\n[gate]", "grid.draft_tokens: topk > 1 drafts a tree"),
        ("[gate]", '[gate]\nenvelopes = [{ workload = "short" }]', "gate.envelopes: no variant 'adaptive'"),
        ("[workloads", "[variants.a.steps_by_batch]\n1 = []\n[workloads", "Expected `array` of length >= 1"),
        ("[gate]", "[gate", "Expected ']' at the end of a table declaration"),
    ],
    ids=[
        "key",
        "engine",
        "order",
        "level",
        "no baseline",
        "workload",
        "variant",
        "type",
        "grid of nothing",
        "tree",
        "envelope",
        "no candidates",
        "syntax",
    ],
)
def test_a_wrong_profile_is_one_error(tmp_path: Path, old: str, new: str, problem: str) -> None:
    """It names the file, what is wrong, and what is allowed."""
    with pytest.raises(ProfileError) as raised:
        load(tmp_path, MINIMAL.replace(old, new, 1))

    assert str(tmp_path / "x.toml") in str(raised.value)
    assert problem in str(raised.value)


def test_a_profile_that_is_not_there_names_those_that_are() -> None:
    """A misspelt name is answered with the right ones."""
    with pytest.raises(ProfileError, match=r"no such profile; available: blackwell-tp8, cpu, h200, .*, sim"):
        profiles.load("h100")


def test_a_variable_is_filled_in_where_it_is_set() -> None:
    """`${NAME}` becomes the environment's value; a lone `$` or other braces mean nothing."""
    text = '${HOME_OF}/models/$x{y}/{"a": 1}'

    assert profiles.expanded(text, {"HOME_OF": "/opt"}) == '/opt/models/$x{y}/{"a": 1}'
    assert profiles.variables(text) == ["HOME_OF"]


def test_a_variable_that_is_not_set_stays_visible() -> None:
    """A plan made elsewhere shows the name, not an empty path."""
    assert profiles.expanded("${NOWHERE}/models", {}) == "${NOWHERE}/models"


def test_the_environment_does_not_change_what_a_record_belongs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same profile on two machines with other paths is the same node to the record."""
    before = profiles.load("h200").identity()
    monkeypatch.setenv("SGLANG_HOME", "/somewhere/else")

    assert profiles.load("h200").identity() == before


@pytest.mark.parametrize(("concurrency", "expected"), [(1, 3), (2, 3), (10, 2), (64, 1), (100, 2), (250, 1)])
def test_completions_per_window(concurrency: int, expected: int) -> None:
    """A level takes its own k, or that of the nearest one below."""
    assert profiles.load("h200").k(concurrency) == expected


def test_a_grid_is_a_variant_for_each_combination(tmp_path: Path) -> None:
    """A chain verifies one token more than it drafts; of a tree the profile says how many."""
    grid = "[grid]\nsteps = [1, 3]\ntopk = [1, 4]\ndraft_tokens = [8]\n[gate]"

    variants = load(tmp_path, MINIMAL.replace("[gate]", grid)).variants

    of = [name for name in variants if name.startswith("eagle3-")]
    assert of == ["eagle3-s1-k1-d2", "eagle3-s1-k4-d8", "eagle3-s3-k1-d4", "eagle3-s3-k4-d8"]
    assert variants["eagle3-s3-k4-d8"].flags == {
        "speculative-algorithm": "EAGLE3", "speculative-num-steps": 3, "speculative-eagle-topk": 4,
        "speculative-num-draft-tokens": 8,
    }  # fmt: skip


def test_an_envelope_may_hold_what_a_grid_makes(tmp_path: Path) -> None:
    """Its variants exist once the grid is expanded; a name that the grid does not make is an error."""
    grid = '[grid]\nsteps = [1]\n[gate]\nenvelopes = [{ variant = "eagle3", static = ["%s"], workload = "short" }]'

    assert load(tmp_path, MINIMAL.replace("[gate]", grid % "eagle3-s1-k1-d2")).gate.envelopes[0].static
    with pytest.raises(ProfileError, match="no variant 'eagle3-s9-k1-d2'"):
        load(tmp_path, MINIMAL.replace("[gate]", grid % "eagle3-s9-k1-d2"))


def test_two_regimes_differ_in_how_the_gpus_talk_and_in_nothing_else() -> None:
    """NVLink as it comes, and through host memory: all else is the same, with multicast off in both."""
    fast, slow = (profiles.load(name) for name in ("h200-tp8", "h200-tp8-pcie"))
    off = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}

    assert fast.engine.environment == off
    assert slow.engine.environment == {**off, "NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
    assert slow.engine.flags == {**fast.engine.flags, "disable-custom-all-reduce": True}
    assert (fast.identity(), fast.workload_digest("short")) == (slow.identity(), slow.workload_digest("short"))


def test_a_copy_under_the_name_of_its_original_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be measured and recorded as the node that it was copied from; a file named by its path is its own."""
    copied = tmp_path / "mynode.toml"
    copied.write_bytes((profiles.FOLDER / "blackwell-tp8.toml").read_bytes())
    assert profiles.load(str(copied)).name == "blackwell-tp8"

    monkeypatch.setattr(profiles, "FOLDER", tmp_path)
    with pytest.raises(profiles.ProfileError, match='it says name = "blackwell-tp8": write name = "mynode"'):
        profiles.load("mynode")
