"""The way onto a GPU machine without a network: what is packed, what is unpacked, what comes back."""

import json
import os
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from fixtures.offline import fatbin, run_there
from fixtures.offline.pack import HERE, archive
from fixtures.offline.unpack import PackageError, install, interpreter, suite_environment
from fixtures.offline.wheels import requirements

ROOT = HERE.parents[1]
HERE_ALREADY = {"numpy", "scipy", "matplotlib"}
CPU_ONLY = {"xllamacpp"}


def _entry(architecture: int, payload: bytes) -> bytes:
    header = struct.pack("<HHIQ", 2, 0x101, 64, len(payload)) + bytes(12) + struct.pack("<I", architecture)
    return header.ljust(64, b"\0") + payload


def _fat_binary(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def _library(section: bytes, code: bytes) -> bytes:
    """Return an ELF file with two sections after its header: *section* holding *code*, and the names."""
    names = b"\0" + section + b"\0.shstrtab\0"
    code_at, names_at = 64, 64 + len(code)
    table_at = names_at + len(names)
    row = "<IIQQQQIIQQ"
    rows = [
        struct.pack(row, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack(row, 1, 1, 0, 0, code_at, len(code), 0, 0, 8, 0),
        struct.pack(row, 2 + len(section), 3, 0, 0, names_at, len(names), 0, 0, 1, 0),
    ]
    header = bytearray(64)
    struct.pack_into("<Q", header, 0x28, table_at)
    struct.pack_into("<HHH", header, 0x3A, struct.calcsize(row), len(rows), 2)
    return bytes(header) + code + names + b"".join(rows)


TWO = _fat_binary(_entry(90, b"A" * 32), _entry(80, b"B" * 24)) + _fat_binary(
    _entry(90, b"C" * 40), _entry(80, b"D" * 8)
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library with two fat binaries, each for two architectures."""
    path = tmp_path / "kernels.so"
    path.write_bytes(_library(b".nv_fatbin", TWO))
    return path


def test_only_the_wanted_code_is_left(library: Path, tmp_path: Path) -> None:
    """Other architectures and other fat binaries become zeros; every header and every position stays."""
    left = fatbin.thin(library, tmp_path / "thin.so", architecture=90, fat_binaries=frozenset({1}))
    expected = (
        library.read_bytes().replace(b"A" * 32, bytes(32)).replace(b"B" * 24, bytes(24)).replace(b"D" * 8, bytes(8))
    )
    assert (tmp_path / "thin.so").read_bytes() == expected
    assert left == 40


def test_thinning_to_nothing_is_refused(library: Path, tmp_path: Path) -> None:
    """A library whose wanted code is not where it was in the version that was looked at is not packed."""
    with pytest.raises(ValueError, match="no code for sm_100"):
        fatbin.thin(library, tmp_path / "thin.so", architecture=100, fat_binaries=frozenset({0, 1}))


def test_a_library_without_gpu_code_is_refused(tmp_path: Path) -> None:
    """A file without the section is named as such, not silently copied."""
    path = tmp_path / "plain.so"
    path.write_bytes(_library(b".text", b"x" * 16))
    with pytest.raises(ValueError, match=r"no section \.nv_fatbin"):
        fatbin.thin(path, tmp_path / "thin.so", architecture=90, fat_binaries=frozenset({0}))


PINNED = requirements(ROOT / "requirements.txt")
CARRIED = requirements(HERE / "suite.txt")


@pytest.mark.parametrize("name", sorted(set(PINNED) - HERE_ALREADY - CPU_ONLY))
def test_the_suite_is_carried_as_it_is_pinned(name: str) -> None:
    """What runs on the GPU machine is the version that runs everywhere else."""
    assert CARRIED[name] == PINNED[name]


@pytest.mark.parametrize("part", ["sglang", "suite"])
def test_the_lists_pin_everything(part: str) -> None:
    """Each line of a list is one package at one version, so two packings are the same."""
    pins = requirements(HERE / f"{part}.txt")
    assert all(version and version[0].isdigit() for version in pins.values())


@pytest.mark.parametrize("size", ["8b", "70b"])
def test_the_head_fits_the_target(size: str) -> None:
    """The EAGLE-3 head takes the target's hidden states: one layer of the same widths."""
    target, head = (
        json.loads((HERE / "models" / name / "config.json").read_text()) for name in (f"llama-{size}", f"eagle3-{size}")
    )
    same = ("hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "torch_dtype")
    assert {key: head[key] for key in same} == {key: target[key] for key in same}
    assert head["num_hidden_layers"] == 1
    assert head["architectures"] == ["LlamaForCausalLMEagle3"]


def packed(place: Path) -> Path:
    """Return a package in *place* whose SGLang says where it was imported from."""
    folder = place / "package"
    folder.mkdir()
    for part in ("sglang", "suite"):
        site = place / part
        site.mkdir()
        (site / "marker.py").write_text(f"PART = {part!r}\n")
        archive(site, folder / f"{part}.tar.xz")
    return folder


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return such a package."""
    return packed(tmp_path)


def test_equal_contents_make_equal_archives(package: Path, tmp_path: Path) -> None:
    """Packing twice gives the same bytes, so an unpacked archive can be recognised."""
    again = archive(tmp_path / "suite", tmp_path / "again.tar.xz")
    assert again.read_bytes() == (package / "suite.tar.xz").read_bytes()


def test_sglangs_interpreter_has_its_packages_and_not_the_suites(package: Path, tmp_path: Path) -> None:
    """Started from the suite's environment, SGLang's interpreter still imports from its own folder first."""
    home = tmp_path / "home"
    install(package, home)
    code = (
        "import marker, os; print(marker.PART, os.environ['SGLANG_IS_FLASHINFER_AVAILABLE'], os.environ['SGLANG_HOME'])"
    )
    environment = suite_environment(home)
    ours = subprocess.run([interpreter(home), "-c", code], env=environment, capture_output=True, text=True, check=True)
    suites = subprocess.run(
        [sys.executable, "-c", code.partition(",")[0] + "; print(marker.PART)"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ours.stdout.split() == ["sglang", "false", str(home)]
    assert suites.stdout.split() == ["suite"]


def test_the_same_package_is_unpacked_once(package: Path, tmp_path: Path) -> None:
    """A second call on a machine that is still there keeps what is unpacked, and the kernels compiled since."""
    home = tmp_path / "home"
    install(package, home)
    (home / "sglang" / "written-since").touch()
    (home / "kernels" / "new.so").touch()
    install(package, home)
    assert (home / "sglang" / "written-since").exists()
    assert (home / "kernels" / "new.so").exists()


def test_another_package_replaces_the_old_one(package: Path, tmp_path: Path) -> None:
    """A changed archive leaves nothing of the one before it."""
    home = tmp_path / "home"
    install(package, home)
    (tmp_path / "suite" / "marker.py").rename(tmp_path / "suite" / "renamed.py")
    archive(tmp_path / "suite", package / "suite.tar.xz")
    install(package, home)
    assert [path.name for path in (home / "suite").iterdir()] == ["renamed.py"]


def test_a_missing_archive_says_how_to_make_it(package: Path, tmp_path: Path) -> None:
    """Without its archive nothing is half unpacked in silence: the file and the remedy are named."""
    (package / "sglang.tar.xz").unlink()
    with pytest.raises(PackageError, match=r"sglang\.tar\.xz is not there.*fixtures\.offline\.pack"):
        install(package, tmp_path / "home")


@pytest.mark.parametrize(
    ("there", "option"),
    [([], "--run"), (["run.json"], "--resume"), (["h200/run.json"], "--resume")],
    ids=["new", "begun", "begun in a profile's folder"],
)
def test_a_night_that_was_begun_is_continued(tmp_path: Path, there: list[str], option: str) -> None:
    """The same command starts a night or continues it, by what lies in its folder."""
    for name in there:
        path = tmp_path / "night" / name
        path.parent.mkdir(parents=True)
        path.touch()
    argv = run_there.command(tmp_path / "night", tmp_path, ["--levels", "1,10"], "h200")
    assert argv[argv.index(str(tmp_path / "night")) - 1] == option
    assert argv[-2:] == ["--levels", "1,10"]


OBEDIENT = """trap 'kill $!; echo finished; exit 10' TERM; echo measuring; sleep 60 & wait"""
DEAF = "trap '' TERM; exec sleep 60"


def test_when_time_is_over_the_suite_finishes_by_itself(tmp_path: Path) -> None:
    """It is asked once, its own exit status and its last words are kept."""
    console = tmp_path / "console.txt"
    status = run_there.measure(["sh", "-c", OBEDIENT], dict(os.environ), console, 1)
    assert status == 10
    assert console.read_text().splitlines() == ["measuring", "finished"]


def test_a_suite_that_does_not_finish_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are brought back before the lease ends, whatever the suite does."""
    monkeypatch.setattr(run_there, "GRACE_S", 0.2)
    assert run_there.measure(["sh", "-c", DEAF], dict(os.environ), tmp_path / "console.txt", 1) == -9


def test_the_night_is_brought_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run folder unpacks to where `--resume` expects it; kernels unpack into a package; nothing else is carried."""
    monkeypatch.chdir(tmp_path)
    for name in (".runs/night/cells.jsonl", "home/kernels/one/one.so", "home/kernels/one/one.o", "out/console.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)
    files = run_there.collect(Path(".runs/night"), Path("home"), Path("out"), began=2e9 * 2)
    assert [path.name for path in files] == ["console.txt", "kernels.tar.xz", "run.tar.xz"]
    with tarfile.open("out/run.tar.xz") as run, tarfile.open("out/kernels.tar.xz") as kernels:
        assert ".runs/night/cells.jsonl" in run.getnames()
        assert kernels.getnames() == ["one/one.so"]
