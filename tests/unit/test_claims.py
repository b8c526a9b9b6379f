"""What a run judges is what its profile promises of what is measured; a saved night is asked the same."""

from pathlib import Path

import pytest

from fixtures import profiles
from fixtures.analysis.rules import Envelope, Rules
from fixtures.claims import again, claims, promised
from fixtures.histories.judged import Judged
from tests.unit.handmade import night

PROFILE = """
name = "tiny"
marker = "cpu"
about = "an adaptive variant and two workloads"
levels = [1, 4]
[engine]
name = "llama_cpp"
[variants.baseline]
[variants.eagle3]
[variants.adaptive]
steps_by_batch = { 1 = [3], 4 = [0] }
[workloads.short]
prompt_tokens = 8
output_tokens = 8
[workloads.long]
prompt_tokens = 64
output_tokens = 8
[gate]
pairs = [{ workload = "short" }, { workload = "long" }]
envelopes = [{ workload = "short" }]
"""
ENVELOPE = Envelope(variant="adaptive", static=("eagle3",), workload="short", thresholds=(4,))
RULES = Rules(pairs=(("eagle3", "short"), ("eagle3", "long")), envelopes=(ENVELOPE,))


@pytest.fixture
def tiny(tmp_path: Path) -> profiles.Profile:
    """A profile that promises two pairs and an envelope."""
    path = tmp_path / "tiny.toml"
    path.write_text(PROFILE)
    return profiles.load(str(path))


def test_everything_is_promised_when_everything_is_measured(tiny: profiles.Profile) -> None:
    """The pairs and the envelopes of the profile, the latter with their thresholds."""
    assert promised(tiny, {"baseline", "eagle3", "adaptive"}, {"short", "long"}) == RULES


def test_nothing_is_promised_of_what_is_not_measured(tiny: profiles.Profile) -> None:
    """`--variants` and `--workloads` leave out what they do not name."""
    assert promised(tiny, {"baseline", "eagle3"}, {"long"}) == Rules(pairs=(("eagle3", "long"),))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(
            ["profile", "variant", "static", "workload"],
            [{"variant": "adaptive", "static": "baseline, eagle3", "workload": "short"}],
            id="an envelope as a whole",
        ),
        pytest.param(
            ["profile", "variant", "workloads"],
            [{"variant": "eagle3", "workloads": "short and long"}],
            id="two workloads",
        ),
        pytest.param(
            ["profile", "variant", "workload"],
            [{"variant": "eagle3", "workload": "short"}, {"variant": "eagle3", "workload": "long"}],
            id="pairs as a whole",
        ),
        pytest.param(
            ["profile", "variant", "static", "workload", "concurrency"],
            [
                {"variant": "adaptive", "static": "baseline, eagle3", "workload": "short", "concurrency": 1},
                {"variant": "adaptive", "static": "baseline, eagle3", "workload": "short", "concurrency": 4},
            ],
            id="an envelope at each level",
        ),
    ],
)
def test_claims_are_what_a_test_asks_for(names: list[str], expected: list[dict[str, object]]) -> None:
    """A test that names static variants is about envelopes; one that names a level is asked at each."""
    assert list(claims(names, RULES, "tiny", [1, 4])) == [{"profile": "tiny", **each} for each in expected]


def test_a_saved_night_is_asked_at_the_levels_that_it_has() -> None:
    """What was not measured then is not claimed again."""
    rules = Rules(pairs=(("eagle3", "chat"), ("other", "chat")))
    saved = Judged(night=night({1: 1.5, 4: 1.2}), record=None, rules=rules, history=())

    found = list(again(["profile", "variant", "workload", "concurrency"], saved))

    assert [(claim["variant"], claim["concurrency"]) for claim in found] == [("eagle3", 1), ("eagle3", 4)]
