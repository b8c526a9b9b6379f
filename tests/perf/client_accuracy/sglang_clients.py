"""SGLang's own benchmark clients, each in a process of its own, called as `clients` are.

They keep no stamps, only each request's TTFT and gaps: one line of JSON has these with the number that the server gave
the request, and `accuracy.placed` lays them against the server's log. Their CPU seconds are all in but for imports:
prompts and report included. Neither needs what `sglang` imports (torch, transformers): the Rust client is an extension
module that loads alone, and the Python client gets stand-ins for what a run at a ready server with given prompts never
uses. Seen with sglang 0.5.23.
"""

import asyncio
import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.perf.client_accuracy.clients import NUMBER_DIGITS, Job

VERSION = "0.5.23"
INSTALL = f"pip install --no-deps --only-binary :all: sglang=={VERSION}"
RUST, PYTHON = "SGLang Rust", "SGLang Python"

Told = dict[str, Any]
"""What SGLang's clients return with their output details."""


def missing(name: str) -> str | None:
    """Say why the client *name* cannot run here; None when it can."""
    folder = _folder()
    if folder is None:
        return f"sglang is not installed: {INSTALL}"
    if name == RUST and not _extension(folder):
        return f"this build of sglang has no Rust client: {INSTALL}"
    return None


def _folder() -> Path | None:
    """Return where sglang is installed, without importing it."""
    found = importlib.util.find_spec("sglang")
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def _extension(folder: Path) -> Path | None:
    names = (f"_bench{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES)
    paths = (folder / "srt" / "rust_extensions" / name for name in names)
    return next((path for path in paths if path.is_file()), None)


def rust(job: Job, folder: Path) -> tuple[Told, float]:
    """Run the Rust client on one worker thread; return what it told and the CPU seconds it took, all in."""
    path = _extension(folder)
    spec = importlib.util.spec_from_file_location("_bench", str(path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    options = {
        "backend": _backend(job),
        "base-url": job.url,
        "dataset-name": "random-ids",
        "vocab-size": 100_000,
        "model": "default",
        "num-prompts": job.concurrency * job.waves,
        "max-concurrency": job.concurrency,
        "random-input-len": 128,
        "random-output-len": job.tokens,
        "random-range-ratio": 1,
        "warmup-requests": 0,
        "worker-threads": 1,
    }
    flags = ("tokenize-prompt", "disable-retokenize", "output-details", "disable-tqdm")
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "told.json"
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        cpu = time.process_time()
        module.run_argv(["sglang-bench", *words, *(f"--{flag}" for flag in flags), "--output-file", str(out)])
        cpu_s = time.process_time() - cpu
        return json.loads(out.read_text()), cpu_s


def python(job: Job, folder: Path) -> tuple[Told, float]:
    """Run the Python client's own loop; return what it told and the CPU seconds it took, all in."""
    serving = _serving(folder)
    count, body = job.concurrency * job.waves, json.loads(job.body)
    row = importlib.import_module("sglang.benchmark.datasets.common").DatasetRow
    prompt = body.get("text") or body["prompt"]
    with tempfile.TemporaryDirectory() as scratch:
        serving.set_global_args(Namespace(**_python_arguments(job), output_file=str(Path(scratch) / "told.json")))
        cpu = time.process_time()
        told = asyncio.run(
            serving.benchmark(
                backend=_backend(job),
                api_url=job.url + job.path,
                base_url=job.url,
                model_id="default",
                tokenizer=Namespace(encode=lambda _text, **_: [0]),
                input_requests=[row(prompt=prompt, prompt_len=128, output_len=job.tokens) for _ in range(count)],
                request_rate=float("inf"),
                max_concurrency=job.concurrency,
                disable_tqdm=True,
                lora_names=[],
                lora_request_distribution=None,
                lora_zipf_alpha=None,
                extra_request_body={},
                profile=False,
                warmup_requests=0,
            )
        )
        return told, time.process_time() - cpu


def _python_arguments(job: Job) -> dict[str, Any]:
    """Return the options of `sglang.benchmark.serving` that a run reads, at their defaults."""
    off = (
        "cache_report", "disable_ignore_eos", "disable_stream", "goodput", "output_details", "plot_throughput",
        "return_logprob", "return_routed_experts", "sharegpt_output_len", "token_ids_logprob", "header",
    )  # fmt: skip
    return dict.fromkeys(off) | {
        "backend": _backend(job),
        "dataset_name": "random",
        "logprob_start_len": -1,
        "num_prompts": job.concurrency * job.waves,
        "random_input_len": 128,
        "random_output_len": job.tokens,
        "random_range_ratio": 1.0,
        "temperature": 0.0,
        "top_logprobs_num": 0,
        "top_p": 1.0,
        "warmup_requests": 0,
    }


def _serving(folder: Path) -> Any:
    """Import SGLang's Python client with stand-ins for its heavy imports."""

    class Unused:
        """A class of transformers that only annotations name."""

    tokenizers = ("AutoTokenizer", "PreTrainedTokenizer", "PreTrainedTokenizerBase", "PreTrainedTokenizerFast")
    _stand_in("sglang", folder=folder)
    _stand_in("transformers", dict.fromkeys(("AutoProcessor", *tokenizers), Unused))
    _stand_in("sglang.benchmark.datasets", {"get_dataset": None}, folder / "benchmark" / "datasets")
    _stand_in("sglang.srt.disaggregation.utils", {"FAKE_BOOTSTRAP_HOST": ""})
    _stand_in("sglang.srt.utils.network", {"resolve_base_url": None, "resolve_host_port": None})
    datasets = sys.modules["sglang.benchmark.datasets"]
    datasets.DatasetRow = importlib.import_module("sglang.benchmark.datasets.common").DatasetRow  # type: ignore[attr-defined]
    return importlib.import_module("sglang.benchmark.serving")


def _stand_in(name: str, attributes: Mapping[str, object] | None = None, folder: Path | None = None) -> None:
    """Put a module of nothing but *attributes* in the place of *name*; with a *folder*, a package with its modules."""
    module = ModuleType(name)
    module.__dict__.update(attributes or {})
    if folder:
        module.__path__ = [str(folder)]
    sys.modules[name] = module


def _backend(job: Job) -> str:
    return "sglang" if job.path == "/generate" else "sglang-oai"


CLIENTS: Mapping[str, Callable[[Job, Path], tuple[Told, float]]] = {RUST: rust, PYTHON: python}


def account(told: Told) -> Iterator[dict[str, Any]]:
    """Yield each request's number, TTFT and gaps, in seconds; raise `ValueError` when one failed."""
    columns = (told[name] for name in ("generated_texts", "ttfts", "itls", "errors"))
    for text, ttft_s, gaps_s, error in zip(*columns, strict=True):
        if error or not text:
            raise ValueError(f"a request failed: {error or 'no text came'}")
        yield {"number": int(text[:NUMBER_DIGITS]), "ttft_s": ttft_s, "gaps_s": gaps_s}


def main() -> None:
    """Run one client, and write what it told."""
    name, *numbers, path = sys.argv[1:]
    port, concurrency, tokens, waves = map(int, numbers)
    folder = _folder()
    if folder is None:
        sys.exit(missing(name))
    with os.fdopen(os.dup(1), "w") as answer, Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # both print a report; the Rust client past Python's stdout
        job = Job(port=port, concurrency=concurrency, tokens=tokens, waves=waves, path=path)
        told, cpu_s = CLIENTS[name](job, folder)
        seconds = {"cpu_s": cpu_s, "wall_s": told["duration"], "told_s": told["duration"]}
        answer.write(json.dumps(seconds | {"requests": [*account(told)]}) + "\n")


if __name__ == "__main__":
    main()
