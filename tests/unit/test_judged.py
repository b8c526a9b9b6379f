"""A verdict can be repeated from the night's own file, to the last digit, without the folder of nights."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fixtures import histories
from fixtures.analysis.arms import Summary, summarise
from fixtures.analysis.gate import Judgement, Rules, judge
from fixtures.analysis.measurements import Night
from fixtures.analysis.record import Record, make_record
from fixtures.analysis.verdicts import Gate
from fixtures.histories import Unreadable, read_judged
from tests.perf.operating_characteristics.faults import CURVES, FAULTS, LEVELS, Fault
from tests.perf.operating_characteristics.nights import MIDDLE, VARIANT, WORKLOAD, World
from tests.unit.test_histories import saved

RULES = Rules(pairs=((VARIANT, WORKLOAD),))
NIGHTS = 90
"""More than build the reference and the spread: some are kept in short."""


def measured(world: World, status: str = "", fault: Fault | None = None, blocks: int = 1) -> Night:
    """Return a night of the world with its outcome."""
    night = world.night(fault, blocks=blocks)
    return replace(night, status=status, environment={"host": "a", "driver": "580"})


@pytest.fixture(scope="module")
def past() -> tuple[World, Record, list[Summary]]:
    """A world after its record and ninety nights, one of them failed, the last one inconclusive."""
    world = World(2, CURVES["S45"], MIDDLE)
    record = make_record(measured(world, blocks=2), "first")
    slow = Fault(variant=np.full(len(LEVELS), -0.01))
    statuses = ["regressed" if i == 30 else "inconclusive" if i == NIGHTS - 1 else "held" for i in range(NIGHTS)]
    nights = [measured(world, s, slow if i > 50 else None, blocks=2 if i == 5 else 1) for i, s in enumerate(statuses)]
    return world, record, [summarise(night) for night in nights]


def judged_file(folder: Path, night: Night, record: Record | None, history: list[Summary]) -> tuple[Path, Judgement]:
    """Save *night* as judged and return its file and the judgement."""
    judgement = judge(night, record, history, RULES)
    files = [Path(f"{i:04}_x.json") for i in range(len(history))]
    table = histories.judged(judgement, record, RULES, history, files)
    night = replace(night, status=str(judgement.outcome))
    return histories.save_night(folder, saved(night, **table)), judgement


@pytest.mark.parametrize("fault", ["nothing", "acceptance length −10 %", "baseline −10 %"])
def test_verdict_is_repeated_to_the_last_digit(
    tmp_path: Path, past: tuple[World, Record, list[Summary]], fault: str
) -> None:
    """The judgement from the file alone equals the one of the night: verdicts, intervals, drift and all."""
    world, record, history = past
    path, judgement = judged_file(tmp_path, measured(world, fault=FAULTS[fault], blocks=2), record, history)

    again = read_judged(path)

    assert judge(again.night, again.record, again.history, again.rules) == judgement
    assert again.record == record


def test_unrecorded_night_is_repeated(tmp_path: Path, past: tuple[World, Record, list[Summary]]) -> None:
    """Without a record the file says so, and the verdict is unrecorded again."""
    path, judgement = judged_file(tmp_path, measured(past[0]), None, [])

    again = read_judged(path)

    assert again.record is None
    assert judge(again.night, again.record, again.history, again.rules) == judgement


def test_file_says_what_the_verdict_rests_on(tmp_path: Path, past: tuple[World, Record, list[Summary]]) -> None:
    """Per level reference, spread and degrees of freedom, and which nights were used, can be read with any tool."""
    world, record, history = past
    path, _ = judged_file(tmp_path, measured(world), record, history)

    gate: dict[str, Any] = json.loads(path.read_bytes())["gate"]

    assert [level["concurrency"] for level in gate["levels"]] == list(LEVELS)
    assert all(level[key] > 0 for level in gate["levels"] for key in ("reference", "launch_sd", "df", "allowed"))
    assert gate["previous"] == {"started_at": history[-1].started_at, "status": "inconclusive"}
    assert len(gate["record"]["digest"]) == 12
    names = [night["file"] for night in gate["history"]]
    assert "0030_x.json" not in names  # the night that failed
    assert names[-1] == f"{NIGHTS - 1:04}_x.json"
    assert gate["drift"]


@pytest.mark.parametrize("metric", ["log_ttft", "log_bare_step"])
def test_night_of_an_earlier_version_is_judged_again(
    tmp_path: Path, past: tuple[World, Record, list[Summary]], metric: str
) -> None:
    """Trailing nights that lack a metric of today say nothing of it; everything else is judged as it was."""
    world, record, history = past
    path, judgement = judged_file(tmp_path, measured(world), record, history)
    text = json.loads(path.read_bytes())
    for arm in (arm for night in text["gate"]["history"] for arm in night["arms"]):
        arm["values"].pop(metric, None)
    path.write_text(json.dumps(text))

    again = read_judged(path)
    later = judge(again.night, again.record, again.history, again.rules)

    assert [v for v in later.verdicts if v.gate is Gate.RATIO] == [
        v for v in judgement.verdicts if v.gate is Gate.RATIO
    ]


def test_file_stays_small(tmp_path: Path, past: tuple[World, Record, list[Summary]]) -> None:
    """Ninety trailing nights are not ninety nights' cells."""
    world, record, history = past
    alone, _ = judged_file(tmp_path / "a", measured(world), record, [])
    path, _ = judged_file(tmp_path / "b", measured(world), record, history)

    assert path.stat().st_size - alone.stat().st_size < 600_000


def test_file_without_a_judgement_is_named(tmp_path: Path, past: tuple[World, Record, list[Summary]]) -> None:
    """A night that was saved but never judged cannot be repeated, and the reason says what is missing."""
    path = histories.save_night(tmp_path, saved(measured(past[0])))

    with pytest.raises(Unreadable, match="does not say what it was judged against"):
        read_judged(path)
