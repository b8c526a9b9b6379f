"""A start that fails at 3 a.m. says why, and what to do."""

import pytest

from fixtures.engines import sglang_faults


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "the GPU's memory is full"),
        ("Capture cuda graph failed: CUDA out of memory", "the GPU's memory is full"),
        ("Capture cuda graph failed: illegal address", "graphs could not be captured"),
        ("AssertionError: shared logits buffer holds 1024 rows but caller needs 2048", "adaptive speculation captures"),
        ("ValueError: --speculative-num-steps=2 is not in the adaptive config candidate_steps [0, 3].", "none of the"),
        ("speculative_adaptive_config must contain at least one integer-string BS key", "no batch sizes as keys"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "architecture"),
        ("[Errno 98] error while attempting to bind: address already in use", "another process has the port"),
        ("ValueError: port at 30000 is not available in 30 seconds.", "another process has the port"),
        ("The memory capacity is unbalanced. pre_model_load_memory=8.1", "some GPUs have less free memory"),
        ("mat1 and mat2 shapes cannot be multiplied (1x4096 and 6144x4096)", "draft and target do not fit"),
        ("Watchdog: watchdog timeout (300 s)", "the scheduler made no step"),
        ("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)", "NCCL failed between the GPUs"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "KV cache gets too little"),
        ("OSError: /models/x does not appear to have a file named config.json.", "there is no model at"),
        ("Please pass the argument `trust_remote_code=True` to allow custom code to be run", "brings its own code"),
        ("torch.distributed.DistBackendError: NCCL error in: unhandled cuda error", "NCCL failed between the GPUs"),
        ("Rank 3 scheduler died during initialization (exit code: -9).", "the host's memory ran out"),
        ("launch_server.py: error: unrecognized arguments: --sim-law", "refused a flag of the profile"),
        ("/usr/bin/python3: No module named 'sglang'", "the interpreter has no sglang"),
        ("Scheduler hit an exception: Traceback (most recent call last):", "a scheduler died"),
    ],
    ids=[
        "GPU memory", "memory during capture", "capture", "adaptive capture", "adaptive start", "adaptive keys",
        "architecture", "port bound", "port waited for", "unbalanced", "draft and target", "watchdog", "NCCL hang",
        "KV cache", "no model", "custom code", "NCCL", "host memory", "flag", "no sglang", "scheduler",
    ],
)  # fmt: skip
def test_known_fault_has_a_name(line: str, cause: str) -> None:
    """The special cause wins over what follows from it."""
    said = sglang_faults.diagnose(f"[2026-11-30 23:44:00] {line}\nReceived sigquit from a child process.\n")

    assert said is not None
    assert cause in said


def test_hang_between_gpus_has_a_name() -> None:
    """It writes no error: the log ends within NCCL's start, and the start is given up."""
    said = sglang_faults.diagnose("Load weight begin.\nInit torch distributed begin.\n")

    assert said is not None
    assert said.startswith("the GPUs did not find each other")


@pytest.mark.parametrize(
    "log",
    [
        "",
        "Init torch distributed begin.\nInit torch distributed ends. elapsed=0.4 s\nThe server is fired up and ready",
        "server_args=ServerArgs(watchdog timeout=300, note='CUDA out of memory')\n",
    ],
    ids=["nothing", "a good start", "names of arguments"],
)
def test_healthy_log_shows_no_fault(log: str) -> None:
    """A diagnosis out of nothing would send somebody to the wrong place at 3 a.m."""
    assert sglang_faults.diagnose(log) is None
