"""Saved nights: what is written can be read, what cannot be trusted is named, nothing is lost or overwritten."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures import histories
from fixtures.analysis.measurements import Cell, Identity, Night, Quantiles, ServerFacts, Window
from fixtures.histories import History, NotFiniteError, Unreadable
from fixtures.histories.files import machine_id

SAMPLES = Path(__file__).parent / "samples" / "pytest-benchmark"

WINDOW = Window(
    seconds=5.0,
    output_tokens=1000.0,
    requests_completed=8,
    requests_failed=0,
    ttft_s=Quantiles(p50=0.1, p95=0.2, p99=0.3),
    tpot_s=Quantiles(p50=0.01, p95=0.02, p99=0.03),
    e2e_s=None,
    acceptance_length=None,
    verify_steps=None,
    step_s=0.01,
    running_mean=4.0,
)
CELL = Cell(
    profile="sim",
    variant="baseline",
    block=1,
    launch=1,
    concurrency=4,
    workload="short",
    workload_digest="abc",
    rounds=(WINDOW, WINDOW),
    server=ServerFacts(engine="sglang", version="0.5.17", effective={"page_size": 1}),
    valid=True,
)
NIGHT = Night(
    profile="sim",
    started_at="2026-03-01T02:00:00+00:00",
    identity=Identity(
        gpu="", gpu_count=0, target_model="t", draft_model="d", tensor_parallel=1, variants={"baseline": "1"}
    ),
    environment={"driver": "580.1"},
    cells=(CELL, replace(CELL, launch=2, variant="eagle3")),
    expected=(("short", "baseline", 1, 4), ("short", "eagle3", 2, 4)),
    status="held",
)


def saved(night: Night, **judged: Any) -> dict[str, Any]:
    """Return *night* as pytest-benchmark's document, every cell with rounds a benchmark."""
    benchmarks = [
        {
            "group": f"{cell.profile} {cell.workload} C={cell.concurrency}",
            "name": f"test_throughput[{cell.launch}]",
            "fullname": f"tests/perf/test_throughput.py::test_throughput[{cell.variant}-{cell.launch}]",
            "params": None,
            "param": None,
            "extra_info": msgspec.to_builtins(cell),
            "options": {},
            "stats": {"min": 0.005, "max": 0.005, "mean": 0.005, "stddev": 0.0, "median": 0.005, "rounds": 2,
                      "iterations": 1, "iqr": 0.0, "q1": 0.005, "q3": 0.005, "ops": 200.0, "total": 0.01,
                      "outliers": "0;0", "iqr_outliers": 0, "stddev_outliers": 0, "ld15iqr": 0.005, "hd15iqr": 0.005},
        }
        for cell in night.cells
        if cell.rounds
    ]  # fmt: skip
    document = {"benchmarks": benchmarks, "datetime": "2026-03-01T04:00:00+00:00", "version": "5.3.1",
                "machine_info": {"node": "n", "cpu": {}}, "commit_info": {"id": "f" * 40, "dirty": False}}  # fmt: skip
    return histories.with_gate(document, night, judged)


def put(path: Path, document: Any) -> Path:
    """Write *document* as JSON and return its path."""
    path.write_text(json.dumps(document))
    return path


def history_of(folder: Path) -> History:
    """Return what *folder* says of the profile that these tests use."""
    return histories.read_history(folder, "sim")


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    """A night comes back from its file equal to what was measured, its outcome included."""
    path = histories.save_night(tmp_path, saved(NIGHT))

    assert histories.read_night(path) == NIGHT


def test_cell_without_windows_is_not_lost(tmp_path: Path) -> None:
    """A cell that is no benchmark, since the server died in it, is saved beside the benchmarks, with its reason."""
    died = replace(CELL, launch=3, rounds=(), valid=False, invalid_reasons=("the server died",))
    night = replace(NIGHT, cells=(*NIGHT.cells, died), status="invalid")

    assert histories.read_night(histories.save_night(tmp_path, saved(night))) == night


def test_gate_table_is_kept_whole_and_put_only_once(tmp_path: Path) -> None:
    """Whatever the night was judged against is in the file; pytest-benchmark asks for it twice with two outputs."""
    once = saved(NIGHT, rules=1, verdicts=[{"gate": "sign", "outcome": "held"}])
    twice = histories.with_gate(once, NIGHT, {"rules": 1, "verdicts": [{"gate": "sign", "outcome": "held"}]})

    gate = histories.read_gate(histories.save_night(tmp_path, twice))

    assert gate["verdicts"] == [{"gate": "sign", "outcome": "held"}]
    assert gate["cells"] == []


finite = st.floats(min_value=0, max_value=1e12)
positive = st.floats(min_value=1e-9, max_value=1e9)
maybe = st.none() | finite
words = st.text(max_size=12)
windows = st.builds(
    Window,
    seconds=positive,
    output_tokens=positive,
    requests_completed=st.integers(0, 10**9),
    requests_failed=st.integers(0, 10**6),
    ttft_s=st.none() | st.builds(Quantiles, p50=finite, p95=finite, p99=finite),
    tpot_s=st.none() | st.builds(Quantiles, p50=finite, p95=finite, p99=finite),
    e2e_s=st.none() | st.builds(Quantiles, p50=finite, p95=finite, p99=finite),
    acceptance_length=st.none() | st.floats(min_value=1, max_value=64),
    verify_steps=st.none() | st.integers(0, 10**9),
    step_s=maybe,
    running_mean=maybe,
    running_max=maybe,
    queued_mean=maybe,
    token_usage_max=maybe,
    client_cpu_share=maybe,
    coalesced_share=maybe,
)
values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | finite | words
cells = st.builds(
    Cell,
    profile=st.just("sim"),
    variant=words,
    block=st.integers(1, 2),
    launch=st.integers(1, 8),
    concurrency=st.integers(1, 4096),
    workload=words,
    workload_digest=words,
    rounds=st.lists(windows, min_size=1, max_size=2).map(tuple),
    server=st.builds(ServerFacts, engine=words, version=words, effective=st.dictionaries(words, values, max_size=3)),
    valid=st.booleans(),
    invalid_reasons=st.lists(words, max_size=2).map(tuple),
    gpu=st.dictionaries(words, values, max_size=2),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(measured=st.lists(cells, min_size=1, max_size=3, unique_by=lambda cell: cell.key))
def test_any_night_survives_the_disk(tmp_path: Path, measured: list[Cell]) -> None:
    """Whatever can be measured is read back bit by bit: every float, every name, in any script."""
    night = replace(NIGHT, cells=tuple(measured))
    path = tmp_path / "night.json"

    histories.write_atomically(path, histories.dumps(saved(night)))

    assert histories.read_night(path) == night


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_read_or_named(tmp_path: Path, data: st.DataObject) -> None:
    """However a file is damaged, reading it gives a night or the reason why not, and never breaks the history."""
    whole = bytearray(histories.dumps(saved(NIGHT)))
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 40)) | st.just(len(whole)))
    whole[start:end] = data.draw(st.binary(max_size=8) | st.sampled_from([b"NaN", b"-1", b"true", b"null", b"[]"]))
    (tmp_path / "0001_x.json").write_bytes(whole)

    history = history_of(tmp_path)

    assert len(history.nights) + len(history.set_aside) + len(history.others) == 1
    assert all(reason for _, reason in history.set_aside)


BROKEN: dict[str, tuple[bytes, str]] = {
    "zero bytes": (b"", "holds nothing (0 bytes)"),
    "zeros after a power cut": (b"\0" * 4096, "holds nothing (4096 bytes)"),
    "cut off": (histories.dumps(saved(NIGHT))[:700], "is cut off"),
    "NaN": (histories.dumps(saved(NIGHT)).replace(b"5.0", b"NaN", 1), "holds NaN"),
    "infinity": (histories.dumps(saved(NIGHT)).replace(b"5.0", b"-Infinity", 1), "holds -Infinity"),
    "too large for a float": (histories.dumps(saved(NIGHT)).replace(b"5.0", b"1e999", 1), "out of range"),
    "not JSON": (b"<html>504</html>", "is no JSON"),
    "another JSON": (b'{"results": [1, 2]}', "is no file of pytest-benchmark"),
    "a list": (b"[]", "Expected `object`, got `array`"),
    "two documents": (histories.dumps(saved(NIGHT)) * 2, "trailing characters"),
}


@pytest.mark.parametrize(("content", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_file_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    """A file that holds no night is named with the reason, and the nights around it are still read."""
    histories.save_night(tmp_path, saved(NIGHT))
    (tmp_path / "0002_broken.json").write_bytes(content)

    history = history_of(tmp_path)

    assert history.nights == (NIGHT,)
    [(path, why)] = history.set_aside
    assert path.name == "0002_broken.json"
    assert reason in why
    assert history.damaged == (path,)


WRONG: dict[str, tuple[str, Any, str]] = {
    "boolean number": ("seconds", True, "Expected `float`, got `bool`"),
    "number as text": ("output_tokens", "12", "Expected `float`, got `str`"),
    "negative": ("output_tokens", -5, "impossible below 0"),
    "fraction of a request": ("requests_completed", 1.5, "Expected `int`, got `float`"),
    "null": ("seconds", None, "Expected `float`, got `null`"),
    "acceptance below one": ("acceptance_length", 0.3, "impossible below 1"),
    "negative quantile": ("ttft_s", {"p50": 0.1, "p95": -0.2, "p99": 0.3}, "rounds[0].ttft_s is -0.2"),
    "nothing in no time": ("seconds", 0.0, "called valid"),
}


@pytest.mark.parametrize(("key", "value", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_number_is_named(tmp_path: Path, key: str, value: Any, reason: str) -> None:
    """A number of the wrong type, or one that cannot have been measured, sets the night aside and says which."""
    document = saved(NIGHT)
    document["benchmarks"][1]["extra_info"]["rounds"][0][key] = value
    path = put(tmp_path / "0001_x.json", document)

    with pytest.raises(Unreadable) as caught:
        histories.read_night(path)

    assert reason in caught.value.reason
    assert caught.value.path == path


def test_a_night_of_a_later_format_is_not_guessed_at(tmp_path: Path) -> None:
    """What a later suite means by its keys is not known here."""
    document = saved(NIGHT)
    document["gate"]["format"] = 99
    path = put(tmp_path / "0001_x.json", document)

    with pytest.raises(Unreadable, match="is of format 99, and this suite reads 1: update the suite"):
        histories.read_night(path)


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.json")), ids=lambda path: path.name[:9])
def test_other_peoples_benchmarks_are_set_aside(tmp_path: Path, sample: Path) -> None:
    """Real files of pytest-benchmark 2.5 to 5.2 without our cells are said to be that, not an error and not a night."""
    shutil.copy(sample, tmp_path)

    history = history_of(tmp_path)

    [(_, reason)] = history.set_aside
    assert history.damaged == ()
    assert "has no cells of this suite: " in reason
    assert "saved by pytest-benchmark" in reason


@pytest.mark.parametrize("gone", ["commit_info", "machine_info", "datetime", "version"])
def test_missing_trimmings_do_not_matter(tmp_path: Path, gone: str) -> None:
    """A file without commit, machine or version is read: what is compared is in the cells and the gate table."""
    document = saved(NIGHT)
    del document[gone]

    assert histories.read_night(put(tmp_path / "0001_x.json", document)) == NIGHT


def test_later_versions_are_read(tmp_path: Path) -> None:
    """Keys that a later version of the suite adds do not make its nights unreadable here."""
    document = saved(NIGHT)
    document["gate"]["new"] = {"x": 1}
    document["benchmarks"][0]["extra_info"]["new"] = 1
    document["benchmarks"][0]["extra_info"]["rounds"][0]["new"] = None

    assert histories.read_night(put(tmp_path / "0001_x.json", document)) == NIGHT


def test_cells_without_gate_table_are_named(tmp_path: Path) -> None:
    """Cells whose identity nobody wrote down cannot be compared with anything."""
    document = saved(NIGHT)
    del document["gate"]

    with pytest.raises(Unreadable, match="no `gate` table"):
        histories.read_night(put(tmp_path / "0001_x.json", document))


def test_cell_that_is_there_twice_is_named(tmp_path: Path) -> None:
    """Of two cells with one key nobody knows which counts."""
    document = saved(NIGHT)
    document["benchmarks"].append(document["benchmarks"][0])

    with pytest.raises(Unreadable, match=r"launch 1 \(baseline\) at C=4 on short twice"):
        histories.read_night(put(tmp_path / "0001_x.json", document))


def test_order_is_the_time_in_the_file(tmp_path: Path) -> None:
    """After number 9999 the names sort wrongly, and copied files may have any name: the time inside decides."""
    early = replace(NIGHT, started_at="2026-03-01T02:00:00+01:00")
    late = replace(NIGHT, started_at="2026-03-01T01:30:00+00:00")
    put(tmp_path / "9999_x.json", saved(late))
    put(tmp_path / "10000_x.json", saved(early))

    assert history_of(tmp_path).nights == (early, late)


def test_copy_of_a_night_counts_once(tmp_path: Path) -> None:
    """A night that is there twice is used once, at its most complete, and the other file is named."""
    half = replace(NIGHT, cells=NIGHT.cells[:1], status="inconclusive")
    put(tmp_path / "0001_interrupted.json", saved(half))
    put(tmp_path / "0002_resumed.json", saved(NIGHT))

    history = history_of(tmp_path)

    assert history.nights == (NIGHT,)
    [(path, reason)] = history.set_aside
    assert (path.name, reason) == ("0001_interrupted.json", "is the same night as 0002_resumed.json, which has 2 cells")


def test_two_runs_in_one_second_are_two_nights(tmp_path: Path) -> None:
    """Runs that began in the same second and measured different things are both kept."""
    other = replace(NIGHT, cells=(replace(CELL, rounds=(replace(WINDOW, seconds=6.0),)),))
    histories.save_night(tmp_path, saved(NIGHT))
    histories.save_night(tmp_path, saved(other))

    assert len(history_of(tmp_path).nights) == 2


def test_other_profiles_are_told_apart(tmp_path: Path) -> None:
    """One folder may serve several profiles: nights of another one are neither used nor called broken."""
    put(tmp_path / "0001_x.json", saved(NIGHT))

    history = histories.read_history(tmp_path, "h200")

    assert (history.nights, history.set_aside) == ((), ())
    assert [profile for _, profile in history.others] == ["sim"]


def test_missing_folder_is_an_empty_history(tmp_path: Path) -> None:
    """Before the first night there is no folder."""
    assert history_of(tmp_path / "none").nights == ()


def test_numbers_rise_and_nothing_is_overwritten(tmp_path: Path) -> None:
    """Each night takes the next free number, also past 9999, where pytest-benchmark stops saving."""
    names = [histories.save_night(tmp_path, saved(NIGHT)).name[:5]]
    folder = tmp_path / machine_id()
    (folder / "9999_someone.json").write_text("{}")
    names += [histories.save_night(tmp_path, saved(NIGHT)).name[:6] for _ in range(2)]

    assert names == ["0001_", "10000_", "10001_"]
    assert (folder / "9999_someone.json").read_text() == "{}"


def test_many_runs_may_finish_at_once(tmp_path: Path) -> None:
    """Processes that save in the same moment get different files, all whole."""
    (tmp_path / "night.json").write_bytes(histories.dumps(saved(NIGHT)))
    code = (
        "import json, sys; from pathlib import Path; from fixtures import histories; "
        f"[histories.save_night(Path({str(tmp_path / 'h')!r}), json.load(open(sys.argv[1]))) for _ in range(5)]"
    )
    root = Path(__file__).parents[2]
    runs = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "night.json")], cwd=root) for _ in range(2)]

    assert [run.wait(60) for run in runs] == [0, 0]
    files = list((tmp_path / "h" / machine_id()).iterdir())
    assert sorted(path.name[:4] for path in files) == [f"{n:04}" for n in range(1, 11)]


def test_pytest_benchmark_reads_what_we_save(tmp_path: Path) -> None:
    """`pytest-benchmark list` and `compare` work on our files."""
    histories.save_night(tmp_path, saved(NIGHT))
    histories.save_night(tmp_path, saved(replace(NIGHT, started_at="2026-03-02T02:00:00+00:00")))
    command = [sys.executable, "-m", "pytest_benchmark", "--storage", f"file://{tmp_path}"]

    compared = subprocess.run(
        [*command, "compare", "--columns=median,ops"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert compared.returncode == 0, compared.stderr
    assert "(0001_ffffff" in compared.stdout
    assert "(0002_ffffff" in compared.stdout


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "$.gate.reference[1]"),
        (math.inf, "$.gate.reference[1]"),
        (np.float64("-inf"), "$.gate.reference[1]"),
    ],
    ids=["nan", "inf", "numpy"],
)
def test_nothing_infinite_is_written(tmp_path: Path, value: float, path: str) -> None:
    """A number that is none is refused with its place in the document, and no file is left."""
    document = saved(NIGHT, reference=[1.0, value])

    with pytest.raises(NotFiniteError) as caught:
        histories.save_night(tmp_path, document)

    assert str(caught.value).startswith(f"{path} is ")
    assert list(tmp_path.rglob("*.json")) == []


def test_numpy_numbers_are_written_as_numbers() -> None:
    """An array's scalar is a number in the file, not a text that a reader chokes on."""
    assert json.loads(histories.dumps({"a": np.float64(0.5), "b": np.int64(3), "c": np.bool_(True)})) == {
        "a": 0.5,
        "b": 3,
        "c": True,
    }


def test_objects_are_refused() -> None:
    """What is no value is refused with its place, instead of being written as its repr."""
    with pytest.raises(TypeError, match=r"\$\.a\[0\] is a object"):
        histories.dumps({"a": [object()]})


def test_writing_replaces_the_whole_file(tmp_path: Path) -> None:
    """A file is replaced in one step and nothing else is left beside it."""
    path = tmp_path / "record.json"
    path.write_text("old" * 1000)

    histories.write_atomically(path, b"new")

    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_document_comes_from_pytest_benchmarks_hooks(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a run with pytest-benchmark our document holds what its hooks add, and only this profile's benchmarks."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # in a worker pytest-benchmark measures nothing
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest(
        """
        def pytest_benchmark_update_machine_info(config, machine_info):
            machine_info["gpus"] = ["one"]
        """
    )
    pytester.makepyfile(
        """
        def test_cell(benchmark):
            benchmark.extra_info.update(profile="sim", workload="short")
            benchmark.pedantic(lambda: None, rounds=2)

        def test_other(benchmark):
            benchmark.pedantic(lambda: None, rounds=2)
        """
    )
    keeper = SimpleNamespace(document={})

    def finish(session: pytest.Session) -> None:
        plugin = session.config.pluginmanager.getplugin("pytest-benchmark")
        keeper.document = histories.document(plugin, NIGHT, {"rules": 1})

    keeper.pytest_sessionfinish = finish
    pytester.inline_run("-q", plugins=[keeper])

    assert [b["name"] for b in keeper.document["benchmarks"]] == ["test_cell"]
    assert keeper.document["machine_info"]["gpus"] == ["one"]
    assert len(keeper.document["benchmarks"][0]["stats"]["data"]) == 2
    assert keeper.document["gate"]["rules"] == 1
    assert histories.dumps(keeper.document)
