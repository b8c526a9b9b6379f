"""A record is made from a sound night or not at all; what is refused says what, the evidence, what to do."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fixtures import recorded
from fixtures.analysis.crossover import Shape
from fixtures.analysis.measurements import Night
from fixtures.analysis.record import Record, Refused, comparable, make_record
from tests.unit.handmade import SPEEDUP, changed, night, recording, without


def test_tie_with_baseline_is_recorded_of_a_variant_that_drafts_nothing() -> None:
    """Speculation that is loaded and idle has no crossover; what it costs is its ratio, and that is gated."""
    (workload,) = make_record(recording(dict.fromkeys(SPEEDUP, 1.0), acceptance=1.0), "idle").workloads.values()

    assert workload.variants["eagle3"].crossover.shape is Shape.NOT_RESOLVED
    assert {level["class"] for level in workload.variants["eagle3"].levels.values()} == {"grey"}


def test_record_holds_what_was_measured() -> None:
    """Per workload digest: baseline; per variant each level's class, ratio, error, acceptance; the crossover."""
    record = make_record(recording(), "first")
    workload = record.workloads["digest of chat"]
    level = workload.variants["eagle3"].levels[1]

    assert (record.reason, record.recorded_at) == ("first", "2026-01-01T01:00:00+00:00")
    assert workload.baseline == pytest.approx({c: 100 * c for c in SPEEDUP}, rel=1e-4)
    assert level["log_ratio"] == pytest.approx(0.405465, abs=1e-5)
    assert level["acceptance_length"] == pytest.approx(3.0)
    assert level["launches"] == 4
    assert {c: of["class"] for c, of in workload.variants["eagle3"].levels.items()} == {
        1: "faster",
        4: "faster",
        16: "faster",
        64: "slower",
    }
    assert workload.variants["eagle3"].crossover.point == pytest.approx(24, rel=0.15)


def test_level_within_the_guard_is_grey() -> None:
    """1.01 × is on neither side for good."""
    of = make_record(recording({**SPEEDUP, 16: 1.01}), "first").workloads["digest of chat"].variants["eagle3"]

    assert of.levels[16]["class"] == "grey"


@pytest.mark.parametrize(("ratio", "side"), [(1.3, "faster"), (0.7, "slower")])
def test_curve_that_never_crosses_has_one_class(ratio: float, side: str) -> None:
    """Always faster: the top level is gated too; always slower: the lowest one is."""
    record = make_record(recording(dict.fromkeys(SPEEDUP, ratio)), "first")

    of = record.workloads["digest of chat"].variants["eagle3"]
    assert {level["class"] for level in of.levels.values()} == {side}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"recorded_at": "yesterday"}, "recorded_at is 'yesterday', which is no date"),
        ({"cells": []}, "it tells of baseline on short at C=1, and has no cell of it"),
    ],
    ids=["no date", "no cells"],
)
def test_a_record_that_does_not_hold_together_is_refused(tmp_path: Path, edit: dict[str, object], message: str) -> None:
    """Edited by hand, the file is named with what is wrong, where the judging would have ended in a traceback."""
    document = json.loads(recorded.path_of("h200", None).read_bytes())
    path = tmp_path / "doctored.json"
    path.write_text(json.dumps(document | edit))

    with pytest.raises(recorded.RecordError, match=message):
        recorded.read(path)


def test_record_survives_json() -> None:
    """Written and read it is equal; its keys are those of the contract."""
    record = make_record(recording(), "first")
    data = msgspec.json.encode(record)
    workload = json.loads(data)["workloads"]["digest of chat"]

    assert msgspec.json.decode(data, type=Record) == record
    assert {"baseline", "variants"} <= set(workload)
    assert {"levels", "crossover"} <= set(workload["variants"]["eagle3"])
    assert workload["variants"]["eagle3"]["levels"]["1"]["class"] == "faster"


MULTIPLE = {1: 1.5, 4: 0.8, 16: 1.2, 64: 0.8}


@pytest.mark.parametrize(
    ("it", "words"),
    [
        (night(order="AB"), "launched 1 time"),
        (changed(recording(), level=4, valid=False, invalid_reasons=("capped",)), "capped"),
        (night(order="AABB"), "AABB"),
        (recording(dict.fromkeys(SPEEDUP, 1.0)), "not resolved"),
        (recording(MULTIPLE), "--accept-multiple"),
        (without(recording(), variant="eagle3", level=4, launch=2), "not measured"),
        (replace(recording(), cells=()), "nothing was measured"),
        (recording({1: 1.5}), "two levels"),
    ],
    ids=["one launch", "invalid", "order", "not resolved", "multiple", "missing", "empty", "one level"],
)
def test_unfit_night_is_refused_with_its_reason(it: Night, words: str) -> None:
    """What later nights could not be held against is no record."""
    with pytest.raises(Refused, match=words):
        make_record(it, "first")


def test_multiple_crossings_can_be_accepted_by_a_person() -> None:
    """All levels from the first to the last crossing are grey."""
    record = make_record(recording(MULTIPLE), "so it is", accept_multiple=True)
    of = record.workloads["digest of chat"].variants["eagle3"]

    assert [level["class"] for level in of.levels.values()] == ["faster", "grey", "grey", "slower"]
    assert len(of.crossover.crossings) == 2


@pytest.mark.parametrize("workload", ["chat", "code"])
def test_each_workload_is_recorded_under_its_own_digest(workload: str) -> None:
    """Two workloads in one night are two records in one file."""
    chat, code = recording(), recording({c: r * 0.9 for c, r in SPEEDUP.items()}, workload="code")

    record = make_record(replace(chat, cells=(*chat.cells, *code.cells)), "first")

    assert record.workloads[f"digest of {workload}"].workload == workload


def test_night_of_the_same_identity_is_comparable() -> None:
    """Another driver is a suspect, not another identity."""
    assert comparable(night(environment={"driver": "580"}), make_record(recording(), "first")) == []


def test_mismatches_are_named_with_both_values() -> None:
    """What must match, and does not."""
    here = night()
    other = replace(here, identity=replace(here.identity, gpu_count=8, tensor_parallel=8))

    assert comparable(other, make_record(recording(), "first")) == [
        "gpu_count: recorded 1, tonight 8",
        "tensor_parallel: recorded 1, tonight 8",
    ]
