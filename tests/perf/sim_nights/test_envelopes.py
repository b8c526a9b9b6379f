"""Adaptive speculation under laws whose best choices are known, the tax of idle speculation, and two workloads."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import profiles
from fixtures.load.prompts import Shape
from fixtures.simulator import laws, truth
from tests.perf.sim_nights.nights import NODE, ROOT, Ended, Plan, run

HELD, FAILS = 0, 1
BESIDE = (10, 12)
"""Levels on both sides of the thresholds."""
LONG_TOKENS = 256
RECORD = Path(__file__).with_name("idle.json")
"""The record of the idle variant: `python -m tests.perf.sim_nights.test_envelopes FOLDER` leaves it as `night.json`."""


class Adaptive(Plan):
    """A night with a variant whose steps go by the batch; every batch has a graph, so that nothing is padded."""

    variant, slots = "adaptive", "{ 1 = [3], 11 = [0] }"
    gate = 'pairs = []\nenvelopes = [{ workload = "short" }]'

    def toml(self, folder: Path) -> str:
        """Return the profile."""
        text = super().toml(folder)
        variant = f"[variants.{self.variant}]\nsteps_by_batch = {self.slots}\n[variants.{self.variant}.flags]\n{DRAFT}"
        changes = {
            f"cuda-graph-bs-decode = {list(self.levels)}": f"cuda-graph-bs-decode = {list(range(1, 13))}",
            'pairs = [{ variant = "eagle3", workload = "short" }]': self.gate,
            "[workloads.short]": f"{variant}[workloads.short]",
        }
        for old, new in changes.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        return text


DRAFT = 'speculative-algorithm = "EAGLE3"\nspeculative-draft-model-path = "{draft_model}"\n'


class AtTheLevel(Adaptive):
    """The same, and it switches where a level is: a batch of twelve switches back and forth."""

    slots = "{ 1 = [3], 12 = [0] }"


class Idle(Adaptive):
    """A night of speculation that is loaded and never drafts."""

    variant, slots = "eagle3-idle", "{ 1 = [0], 4096 = [3] }"
    gate = 'pairs = [{ variant = "eagle3-idle", workload = "short" }]'


class Contexts(Plan):
    """A night of short prompts and of long ones."""

    def toml(self, folder: Path) -> str:
        """Return the profile."""
        pair = '{ variant = "eagle3", workload = "short" }'
        long = f"[workloads.long]\nprompt_tokens = {LONG_TOKENS}\noutput_tokens = {self.output_tokens}\n"
        text = super().toml(folder).replace("[gate]", f"{long}[gate]")
        return text.replace(pair, f"{pair}, {pair.replace('short', 'long')}")


ADAPTIVE = {
    "by-load": Adaptive(law="by-load", levels=BESIDE),
    "switching": AtTheLevel(law="switching", levels=BESIDE, rounds=3),
    "stuck": Adaptive(law="by-load", levels=BESIDE[1:], faults=("adaptive-stuck",)),
}
IDLE = {name: Idle(law=name, levels=(4, 10), rounds=3, k=2) for name in ("by-load", "taxed")}
CONTEXTS = Contexts(law="by-context", levels=(8, 16), output_tokens=40)


def judged_by_its_own_record(folder: Path) -> Ended:
    """Record the night of both contexts, and judge its saved file against that record."""
    ended = run(CONTEXTS, folder, "--record", "--reason", "the truth is known")
    assert ended.status == HELD, ended
    (night,) = (folder / "history").glob("*/*.json")
    argv = [sys.executable, "-m", "pytest", "tests/perf", "--replay", str(night)]
    argv += ["--against", str(folder / "night.json"), "-p", "no:cacheprovider", "-rA"]
    again = subprocess.run(argv, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    return Ended(folder=folder, status=again.returncode, messages=(), output=again.stdout)


NIGHTS: dict[str, Callable[..., Ended]] = {
    **{f"adaptive, {name}": lambda folder, plan=plan: run(plan, folder) for name, plan in ADAPTIVE.items()},
    **{f"idle, {name}": lambda folder, plan=plan: run(plan, folder, record=RECORD) for name, plan in IDLE.items()},
    "two contexts": judged_by_its_own_record,
}


def shape_of(plan: Plan, folder: Path, workload: str = "short") -> Shape:
    """Return what *plan* asks of a request."""
    path = folder / "night.toml"
    path.write_text(plan.toml(folder))
    return profiles.load(str(path)).shape(workload)


@pytest.mark.parametrize(
    ("law", "threshold", "level", "low", "high"),
    [
        pytest.param("by-load", 11, 10, 0.995, 1.005, id="keeps up below the threshold"),
        pytest.param("by-load", 11, 12, 0.99, 1.01, id="keeps up above the threshold"),
        pytest.param("switching", 12, 10, 0.995, 1.005, id="keeps up where it does not switch"),
        pytest.param("switching", 12, 12, 0.6, 0.75, id="worse than both arms where it switches"),
    ],
)
def test_what_the_laws_are_said_to_do(
    tmp_path: Path, law: str, threshold: int, level: int, low: float, high: float
) -> None:
    """Computed without a server: the adaptive variant against the better of its two static arms."""
    shape = shape_of(ADAPTIVE[law], tmp_path)
    adaptive, eagle3, baseline = (
        truth.throughput(laws.get(law), arm, level, shape)
        for arm in (truth.Arm(steps=3, thresholds={1: 3, threshold: 0}), truth.Arm(steps=3), truth.Arm())
    )

    assert low <= adaptive / max(eagle3, baseline) <= high


@pytest.mark.sim
@pytest.mark.parametrize("night", ["adaptive, by-load"])
def test_adaptive_that_follows_the_best_arm_holds(night: str, nights: Callable[[str], Ended]) -> None:
    """Both sides of the threshold are measured, and on neither is it worse than baseline or eagle3."""
    ended = nights(night)

    assert ended.status == HELD, ended
    assert "adaptive beside the best static arm: C=10 " in ended.output


@pytest.mark.sim
@pytest.mark.parametrize("night", ["adaptive, switching"])
def test_adaptive_that_collapses_at_its_threshold_regressed(night: str, nights: Callable[[str], Ended]) -> None:
    """At the level beside the threshold it is worse than both arms, and that level alone fails."""
    ended = nights(night)

    assert ended.status == FAILS, ended
    assert ended.said(r"regressed: adaptive on short C=12: adaptive is at 0\.[67]\d\dx of baseline \("), ended
    assert ended.said("beside the threshold 12"), ended
    assert len(ended.messages) == 1, ended


@pytest.mark.sim
@pytest.mark.parametrize("night", ["adaptive, stuck"])
def test_adaptive_that_never_acts_is_invalid(night: str, nights: Callable[[str], Ended]) -> None:
    """It says that it is adaptive, and drafts on where its configuration has it stop: no number is made of it."""
    ended = nights(night)

    assert ended.status == FAILS, ended
    assert ended.said(r"invalid: adaptive: 3 steps in force at C=12, where its configuration says 0"), ended


@pytest.mark.sim
@pytest.mark.parametrize(
    ("night", "status"), [("idle, by-load", HELD), ("idle, taxed", FAILS)], ids=["as recorded", "grown"]
)
def test_tax_of_idle_speculation_stays_as_recorded(night: str, status: int, nights: Callable[[str], Ended]) -> None:
    """Speculation that is loaded and drafts nothing costs what it was recorded to cost; a tenth more fails."""
    ended = nights(night)

    assert ended.status == status, ended
    assert (status == HELD) or ended.said("regressed: eagle3-idle on short C=10: eagle3-idle slower"), ended


@pytest.mark.sim
@pytest.mark.parametrize("night", ["two contexts"])
def test_contexts_with_different_crossovers_are_said_to_differ(
    night: str, nights: Callable[[str], Ended], tmp_path: Path
) -> None:
    """By the law eagle3 pays to a higher concurrency on long prompts, and that is what the night says and records."""
    ended = nights(night)
    known = {
        name: truth.crossovers(laws.get(CONTEXTS.law), truth.Arm(steps=3), CONTEXTS.levels, shape, rounds=4)
        for name in ("short", "long")
        for shape in [shape_of(CONTEXTS, tmp_path, name)]
    }

    assert known["long"][0] > 1.15 * known["short"][0]
    assert ended.status == HELD, ended
    assert "eagle3's crossover is larger on long: long / short = 1." in ended.output
    assert "PASSED tests/perf/test_workloads.py::test_workloads_differ_as_recorded[night-eagle3-short and long]" in (
        ended.output
    )


if __name__ == "__main__":
    recorded = Idle(law="by-load", levels=(4, 10), rounds=3, k=2, faults=NODE)
    print(run(recorded, Path(sys.argv[1]), "--record", "--reason", "idle speculation of the tests' law"))
