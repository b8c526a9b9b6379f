"""How the simulated SGLang starts and stops, soundly and otherwise."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from fixtures.simulator import arguments, startup
from fixtures.simulator.faults import Faults, parse
from tests.unit.simulated import EAGLE3, ROOT, Simulated, free_port, simulated

PROMPT = {"input_ids": [11, 12, 13], "sampling_params": {"max_new_tokens": 40}}


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    """Run the simulator to its end and return it."""
    argv = [sys.executable, "-m", "fixtures.simulator", *flags]
    return subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=30, check=False)


def test_it_says_which_sglang_it_looks_like() -> None:
    """`--version` prints the version alone."""
    assert run("--version").stdout == "0.5.23\n"


@pytest.mark.parametrize(
    ("flags", "status", "words"),
    [
        pytest.param(("--nonsense", "1"), 2, "unrecognized arguments", id="unknown flag"),
        pytest.param(("--cuda-graph-bs", "1"), 2, "ambiguous option", id="a name of older versions"),
        pytest.param((), 1, "required: --model-path", id="no model"),
        pytest.param(("--model-path", "m", "--sim-fault", "gremlins"), 1, "there are: cap, ", id="no such fault"),
        pytest.param(("--model-path", "m", "--sim-law", "gravity"), 1, "no law 'gravity'", id="no such law"),
        pytest.param(("--model-path", "m", "--speculative-algorithm", "EAGLE3"), 1, "draft_model_path", id="no draft"),
    ],
)
def test_a_command_line_that_cannot_be_served_ends_the_start(flags: tuple[str, ...], status: int, words: str) -> None:
    """Argparse errors exit with 2, refused values with 1, as on the real server."""
    ended = run(*flags)

    assert ended.returncode == status
    assert words in ended.stderr


def test_the_start_is_refused_then_503_then_200(tmp_path: Path) -> None:
    """The port opens before the server is ready, and health says so."""
    with simulated(tmp_path, "--sim-time-scale", "5") as server:
        seen = server.statuses_until_ready()

    assert [each for each in seen if each != "closed"] == ["refused", 503, 200]


def test_speculation_without_a_cap_is_reset_to_48() -> None:
    """The silent cap is in the log and in `/server_info`, as on the real server."""
    argv = ("--model-path", "m", *EAGLE3)

    launch = arguments.resolve(argv)

    assert launch.max_running == 48
    assert launch.cap_was_reset


def test_a_sigterm_drains_and_exits_with_0(tmp_path: Path) -> None:
    """A request in flight is served to its end, then the process is gone and the port free."""
    with simulated(tmp_path, "--sim-law", "plain") as server:
        server.statuses_until_ready()
        with server.client.stream("POST", "/generate", json=PROMPT | {"stream": True}) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]

        assert server.process.wait(10) == 0
        assert rest[-1] == "data: [DONE]"
        assert not listens(server.port)


def listens(port: int) -> bool:
    """Whether anybody listens on *port*."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_taken_port_ends_the_start(tmp_path: Path) -> None:
    """A port that somebody holds is an exit with 1 and the sentence of the real server."""
    port = free_port()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
        with simulated(tmp_path, port=port) as server:
            assert server.process.wait(10) == 1
            assert f"Port {port} is not available" in server.log.read_text()


def test_a_scheduler_that_fails_at_start_kills_the_tree(tmp_path: Path) -> None:
    """A crash in graph capture is exit −9 with the traceback and the SIGQUIT line in the log."""
    with simulated(tmp_path, "--sim-fault", "crash-at-start") as server:
        assert server.process.wait(10) == -signal.SIGKILL
        log = server.log.read_text()

    assert "Scheduler hit an exception: Traceback" in log
    assert "Received sigquit from a child process" in log


def test_it_dies_at_the_named_concurrency(tmp_path: Path) -> None:
    """A server told to die at 1 request is gone when it runs one, and the connection breaks."""
    with simulated(tmp_path, "--sim-fault", "death-at=1", "--skip-server-warmup") as server:
        while not listens(server.port):
            time.sleep(0.01)
        with pytest.raises(httpx.TransportError):
            server.client.post("/generate", json=PROMPT)

        assert server.process.wait(10) == -signal.SIGKILL


def test_a_token_outside_the_vocabulary_kills_it(tmp_path: Path) -> None:
    """As on the real server, which indexes its embedding with it."""
    with simulated(tmp_path) as server:
        server.statuses_until_ready()
        with pytest.raises(httpx.TransportError):
            server.client.post("/generate", json={"input_ids": [10**6], "sampling_params": {"max_new_tokens": 2}})

        assert server.process.wait(10) == -signal.SIGKILL


def test_a_squatter_answers_in_its_place(tmp_path: Path) -> None:
    """The process exits with 1, and what answers on the port does not speculate."""
    with simulated(tmp_path, *EAGLE3, "--sim-fault", "squatter") as server:
        assert server.process.wait(15) == 1
        info = server.client.get("/server_info").json()

    assert info["speculative_algorithm"] is None


def test_an_orphan_holds_the_port_for_a_while(tmp_path: Path) -> None:
    """After the stop the port stays taken, and is free again once the orphan has gone."""
    with simulated(tmp_path, "--sim-fault", "orphan-s=0.5") as server:
        server.statuses_until_ready()
        status = server.stop()
        held = listens(server.port)
        until = time.monotonic() + 10
        while listens(server.port) and time.monotonic() < until:
            time.sleep(0.05)

        assert (status, held, listens(server.port)) == (0, True, False)


def test_a_hanging_server_is_healthy_and_silent(tmp_path: Path) -> None:
    """Health says 200 while no request is ever answered."""
    with simulated(tmp_path, "--sim-fault", "hang") as server:
        assert server.statuses_until_ready()[-1] == 200
        with pytest.raises(httpx.ReadTimeout):
            server.client.post("/generate", json=PROMPT, timeout=0.3)


def stream(server: Simulated, new: int = 40) -> list[bytes]:
    """Return the raw pieces of one stream."""
    body = {"input_ids": [21, 22], "stream": True, "sampling_params": {"max_new_tokens": new, "stream_interval": 4}}
    with server.client.stream("POST", "/generate", json=body) as response:
        return list(response.iter_raw())


@pytest.mark.parametrize(
    ("fault", "sound", "last"),
    [
        pytest.param("split-events", True, "data: [DONE]", id="split"),
        pytest.param("merge-events", True, "data: [DONE]", id="merged"),
        pytest.param("error-in-band=1", False, "data: [DONE]", id="in-band error"),
        pytest.param("no-end-marker=1", False, "data: {", id="no end marker"),
    ],
)
def test_streams_break_as_told(tmp_path: Path, fault: str, sound: bool, last: str) -> None:
    """A stream's faults change how it is written, or how it ends, and nothing else."""
    with simulated(tmp_path, "--sim-law", "plain", "--sim-fault", fault) as server:
        server.statuses_until_ready()
        text = b"".join(stream(server)).decode()
    lines = [line for line in text.split("\n") if line]

    assert lines[-1].startswith(last)
    assert ('"completion_tokens":40' in text) == sound
    assert ('{"error":' in text) == fault.startswith("error")


def test_a_flush_can_fail_for_good(tmp_path: Path) -> None:
    """The fault of a server that is never flushed."""
    with simulated(tmp_path, "--sim-fault", "flush-fails") as server:
        server.statuses_until_ready()

        assert server.client.post("/flush_cache").status_code == 500


def test_a_flush_can_be_refused_for_a_while(tmp_path: Path) -> None:
    """The fault of a server that is not idle yet: refused twice, then done."""
    with simulated(tmp_path, "--sim-fault", "flush-refused=2") as server:
        server.statuses_until_ready()

        assert [server.client.post("/flush_cache").status_code for _ in range(3)] == [400, 400, 200]


def test_every_other_launch_is_slow(tmp_path: Path) -> None:
    """Launches that share a counter take turns."""
    flags = ["--model-path", "m", "--sim-fault", "launch-factor=1.5", "--sim-fault", f"launch-counter={tmp_path / 'n'}"]

    factors = [startup.count_launch(arguments.resolve(flags)).faults.launch_factor for _ in range(4)]

    assert factors == [1.0, 1.5, 1.0, 1.5]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param([], Faults(), id="none"),
        pytest.param(["cap=48", "hang"], Faults(cap=48, hang=True), id="two"),
        pytest.param(["slow-start-s=1.5"], Faults(slow_start_s=1.5), id="a number"),
    ],
)
def test_faults_are_read_from_the_command_line(texts: list[str], expected: Faults) -> None:
    """Names have dashes, values their type."""
    assert parse(texts) == expected


@pytest.mark.parametrize(("speculative", "cap"), [(True, 7), (False, 0)])
def test_a_fault_can_be_of_the_speculative_arm_alone(*, speculative: bool, cap: int) -> None:
    """The same flags on both arms, and only one of them is at fault."""
    assert parse(["speculative:cap=7"], speculative=speculative).cap == cap


@pytest.mark.parametrize(
    ("text", "message"),
    [("gremlins", "no fault 'gremlins'"), ("hang=1", "takes no value"), ("cap", "needs a value")],
)
def test_a_fault_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    """A typo must not be a sound server."""
    with pytest.raises(ValueError, match=message):
        parse([text])
