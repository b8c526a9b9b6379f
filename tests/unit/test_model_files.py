"""The cache of model files: whole or not at all, the same bytes each time, verified before each use."""

import multiprocessing
import os
import shutil
from pathlib import Path

import gguf
import pytest

from fixtures.engines import ServerError, model_files
from fixtures.engines.cache import cache_folder
from fixtures.engines.random_models import HeadShape, Model, TargetShape, size_bytes

TARGET = TargetShape(width=64, layers=2, heads=2, kv_heads=1, feed_forward=96, vocabulary=160)
HEAD = HeadShape(target=TARGET, feed_forward=64, draft_vocabulary=40)


def made(folder: Path, model: Model = TARGET, told: list[str] | None = None) -> Path:
    """Return the file of *model* in *folder*; *told* takes what was reported."""
    lines = [] if told is None else told
    return model_files.ensure("tiny", model, lines.append, folder)


def make_elsewhere(folder: Path) -> None:
    """Make the tiny model in another process."""
    made(folder)


@pytest.mark.parametrize("model", [TARGET, HEAD], ids=["target", "head"])
def test_two_folders_get_the_same_bytes(tmp_path: Path, model: Model) -> None:
    """A model is a pure function of its shape: two machines measure the same one."""
    first, second = made(tmp_path / "a", model), made(tmp_path / "b", model)
    assert first.read_bytes() == second.read_bytes()


def test_the_file_is_a_llama_in_f32(tmp_path: Path) -> None:
    """Every matrix of the target is F32: decoding waits for memory."""
    reader = gguf.GGUFReader(made(tmp_path))
    assert reader.fields["general.architecture"].contents() == "llama"
    assert {tensor.tensor_type for tensor in reader.tensors} == {gguf.GGMLQuantizationType.F32}
    assert sum(tensor.n_bytes for tensor in reader.tensors) == size_bytes(TARGET)


def test_every_piece_is_complete_ascii(tmp_path: Path) -> None:
    """No token ends inside a UTF-8 character, for which the server would hold its chunk back."""
    tokens = gguf.GGUFReader(made(tmp_path)).fields["tokenizer.ggml.tokens"].contents()
    assert len(set(tokens)) == TARGET.vocabulary
    assert all(token.isascii() for token in tokens)
    assert tokens[10:13] == ["a ", "b ", "c "]


def test_the_head_drafts_only_tokens_of_the_target(tmp_path: Path) -> None:
    """The map from draft ids to target ids is one to one, inside the vocabulary, and leaves special tokens out."""
    reader = gguf.GGUFReader(made(tmp_path, HEAD))
    ids = next(tensor.data for tensor in reader.tensors if tensor.name == "d2t").tolist()
    assert len(set(ids)) == HEAD.draft_vocabulary
    assert min(ids) >= 10
    assert max(ids) < TARGET.vocabulary


def test_a_good_file_is_used_again(tmp_path: Path) -> None:
    """The second launch makes nothing and reports nothing."""
    before = made(tmp_path).stat()
    told: list[str] = []
    assert made(tmp_path, told=told).stat() == before
    assert told == []


@pytest.mark.parametrize("damage", ["cut", "flipped", "no sidecar"])
def test_a_damaged_file_is_made_anew(tmp_path: Path, damage: str) -> None:
    """A file that is not what was made is never served, whatever happened to it."""
    path = made(tmp_path)
    good = path.read_bytes()
    if damage == "cut":
        os.truncate(path, len(good) // 2)
    elif damage == "flipped":
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    else:
        path.with_suffix(".sha256").unlink()
    told: list[str] = []
    assert made(tmp_path, told=told).read_bytes() == good
    assert told


def test_what_a_killed_run_left_is_overwritten(tmp_path: Path) -> None:
    """Half a file of another run is neither taken for the model nor left behind."""
    partial = model_files.path_of("tiny", TARGET, tmp_path).with_suffix(".partial")
    partial.write_bytes(b"half a model" * 100_000)
    assert model_files.verified(made(tmp_path))
    assert not partial.exists()


def test_another_shape_is_another_file(tmp_path: Path) -> None:
    """A changed shape never meets the old file under its name."""
    deeper = TargetShape(width=64, layers=3, heads=2, kv_heads=1, feed_forward=96, vocabulary=160)
    assert made(tmp_path) != made(tmp_path, deeper)


def test_two_runs_at_once_end_with_one_good_file(tmp_path: Path) -> None:
    """Runs that make the same model at the same time do not get into each other's way."""
    context = multiprocessing.get_context("spawn")
    runs = [context.Process(target=make_elsewhere, args=(tmp_path,)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(30)
    assert [run.exitcode for run in runs] == [0, 0]
    assert [path.suffix for path in sorted(tmp_path.iterdir())] == [".gguf", ".lock", ".sha256"]
    assert model_files.verified(model_files.path_of("tiny", TARGET, tmp_path))


def test_the_progress_ends_at_the_whole_size(tmp_path: Path) -> None:
    """Whoever waits sees how far it is, up to the end."""
    told: list[str] = []
    made(tmp_path, told=told)
    assert "100%" in told[-1]
    assert all("making the model tiny, once" in line for line in told)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little space is an error with the numbers and the way out, before anything is written."""
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ServerError, match=r"0 MB free; free the space, or point XDG_CACHE_HOME"):
        made(tmp_path)
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("/elsewhere", "/elsewhere"), ("", "/home/someone/.cache"), ("relative", "/home/someone/.cache")],
    ids=["set", "empty", "relative"],
)
def test_the_cache_folder_follows_the_specification(
    monkeypatch: pytest.MonkeyPatch, variable: str, expected: str
) -> None:
    """The XDG variable decides if it is absolute; else the home's `.cache` does."""
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", variable)
    assert cache_folder() == Path(expected) / "speculation-crossover"
