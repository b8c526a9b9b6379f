"""Servers are owned from their command to the last trace of them, and nobody else's is touched."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from fixtures.engines import Command, ServerError
from fixtures.engines.probe import Deadline
from fixtures.engines.process import ServerProcess, free_port
from fixtures.engines.remote import AttachedServer, CommandServer, filled
from tests.unit.scripted import SERVER, Scripted

SOON = Deadline(hard_s=20, quiet_s=10)

Start = Callable[..., tuple[ServerProcess, str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return the function that starts a scripted server as the suite does; it gives the process and its URL."""
    started: list[ServerProcess] = []

    def begin(*options: str) -> tuple[ServerProcess, str]:
        port = free_port()
        command = Command(argv=(sys.executable, str(SERVER), "--port", str(port), *options))
        started.append(ServerProcess.start(command, tmp_path / f"{len(started)}.log"))
        return started[-1], f"http://127.0.0.1:{port}"

    yield begin
    for process in started:
        process.stop(grace_s=1)


def ready(process: ServerProcess, url: str, deadline: Deadline = SOON) -> None:
    """Wait for *process* as the suite does."""
    asyncio.run(process.wait_ready(Scripted(), url, deadline))


def gone(process: psutil.Process) -> bool:
    """Whether *process* has ended, within seconds; whether anybody has reaped it is init's affair."""
    for _ in range(100):
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_ready_server_has_completed_a_request(start: Start) -> None:
    """Ready means that a real completion came: alive, its log says so, and it served."""
    process, url = start()

    ready(process, url)

    assert process.alive


def test_slow_start_is_not_a_dead_one(start: Start) -> None:
    """A start that keeps logging may take longer than the time allowed without a word."""
    process, url = start("--start", "slow")

    ready(process, url, Deadline(hard_s=20, quiet_s=0.9))

    assert process.alive


@pytest.mark.parametrize(
    ("options", "deadline", "message"),
    [
        (["--start", "exit"], SOON, "exited before it was ready: exit status 1; the GPU's memory is full"),
        (["--start", "silent"], Deadline(hard_s=20, quiet_s=0.5), "its log has said nothing new for"),
        (["--start", "silent"], Deadline(hard_s=0.5, quiet_s=20), "it took longer than"),
        (["--fault", "error"], Deadline(hard_s=1.5, quiet_s=20), "a completion failed: in-band error"),
        (["--fault", "mute"], Deadline(hard_s=20, quiet_s=20), "died while it was asked|exited before"),
    ],
    ids=["exits", "falls silent", "takes too long", "healthy but wrong", "hangs until it is killed"],
)
def test_start_that_fails_says_why(start: Start, options: list[str], deadline: Deadline, message: str) -> None:
    """The reason, the known cause and the log's last lines are in the error."""
    process, url = start(*options)
    if "mute" in options:
        _kill_when_listening(process)

    with pytest.raises(ServerError, match=message) as raised:
        ready(process, url, deadline)

    assert str(process.log) in str(raised.value)


def _kill_when_listening(process: ServerProcess) -> None:
    while "ready to roll" not in process.read_log():
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)


def test_stranger_on_the_port_is_not_our_server(start: Start, tmp_path: Path) -> None:
    """A healthy answer from the right port is not enough: the process that we started must be the one that gives it."""
    stranger, url = start()
    ready(stranger, url)
    command = Command(argv=(sys.executable, str(SERVER), "--port", url.rpartition(":")[2]))
    ours = ServerProcess.start(command, tmp_path / "ours.log")

    try:
        with pytest.raises(
            ServerError, match=r"exited before it was ready: exit status 1(?s:.*)address already in use"
        ):
            ready(ours, url)
    finally:
        ours.stop()

    assert stranger.alive


def test_stopped_server_frees_its_port(start: Start) -> None:
    """After stop the process is gone and the port can be taken."""
    process, url = start()
    ready(process, url)

    process.stop()

    assert not process.alive
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))):
        pass


def test_stubborn_server_is_killed(start: Start) -> None:
    """A server that ignores SIGTERM does not outlive the grace."""
    process, url = start("--start", "stubborn")
    ready(process, url)

    process.stop(grace_s=0.2)

    assert process.exit_status == -signal.SIGKILL


def test_grandchild_in_another_session_goes_too(start: Start) -> None:
    """A process that left the tree and the session still holds memory and ports: it carries our mark and is found."""
    process, url = start("--start", "family")
    ready(process, url)
    grandchild = psutil.Process(int(process.read_log().split("grandchild ")[1].split()[0]))

    process.stop()

    assert gone(grandchild)


def test_stop_twice_is_stop_once(start: Start) -> None:
    """A second stop finds nothing to do and signals nobody."""
    process, url = start()
    ready(process, url)

    process.stop()
    process.stop()

    assert not process.alive


def test_server_of_a_killed_pytest_is_killed_too(tmp_path: Path) -> None:
    """SIGKILL runs no teardown; the kernel ends the server with the process that started it."""
    script = (
        "import sys, time; from pathlib import Path\n"
        "from fixtures.engines import Command\n"
        "from fixtures.engines.process import ServerProcess\n"
        f"command, log = Command(argv=(sys.executable, {str(SERVER)!r})), Path({str(tmp_path / 'log')!r})\n"
        "server = ServerProcess.start(command, log)\n"
        "print(server.pid, flush=True); time.sleep(60)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        server = psutil.Process(int(parent.stdout.readline()))
        parent.kill()

    assert gone(server)


def test_attached_server_is_never_signalled(start: Start) -> None:
    """What somebody else runs is measured and left alone."""
    process, url = start()
    attached = AttachedServer(url)
    asyncio.run(attached.wait_ready(Scripted(), url, SOON))

    attached.stop()

    assert process.alive


def test_server_without_a_log_is_not_called_silent(start: Start) -> None:
    """Where there is no log to show progress, only the hard limit ends the waiting."""
    _, url = start("--start", "slow")

    asyncio.run(AttachedServer(url).wait_ready(Scripted(), url, Deadline(hard_s=20, quiet_s=0.1)))


def test_command_pair_starts_and_stops(tmp_path: Path) -> None:
    """A server in a container is a pair of commands: the first brings it, the second takes it away.

    What the first one prints (`docker run -d`: a name) is not the server's log; the completion alone says it is ready.
    """
    port = free_port()
    pid = tmp_path / "pid"
    begin = f"{sys.executable} {SERVER} --port {port} >{tmp_path}/server.log 2>&1 & echo $! >{pid}; echo started"
    url = f"http://127.0.0.1:{port}"

    server = CommandServer.start(
        ["sh", "-c", begin], ["sh", "-c", f"kill $(cat {pid})"], url, tmp_path / "pair.log", 10
    )
    asyncio.run(server.wait_ready(Scripted(), url, SOON))
    process = psutil.Process(int(pid.read_text()))
    server.stop()

    assert gone(process)
    assert not server.alive


def test_failing_start_command_is_named(tmp_path: Path) -> None:
    """The command, its status and where its output is."""
    with pytest.raises(ServerError, match=r"engine\.start ended with status 3: sh -c 'exit 3'; see .*pair\.log"):
        CommandServer.start(["sh", "-c", "exit 3"], [], "http://127.0.0.1:9", tmp_path / "pair.log", 10)


def test_start_command_that_came_halfway_is_undone(tmp_path: Path) -> None:
    """A container that a failing start left behind would hold the GPUs: the stop command runs all the same."""
    undone = tmp_path / "undone"

    with pytest.raises(ServerError, match=r"engine\.start ended with status 3"):
        CommandServer.start(
            ["sh", "-c", "exit 3"], ["touch", str(undone)], "http://127.0.0.1:9", tmp_path / "pair.log", 10
        )

    assert undone.exists()


def test_placeholders_of_a_command_pair() -> None:
    """`{argv}` becomes words of its own, quotes and all; the others are filled in where they stand."""
    words = {"variant": "eagle3", "port": "30000", "log": "l", "argv": "python -m sglang --name 'a b'"}

    assert filled(["docker", "run", "-p{port}:{port}", "image:{variant}", "{argv}"], words) == [
        "docker", "run", "-p30000:30000", "image:eagle3", "python", "-m", "sglang", "--name", "a b",
    ]  # fmt: skip
