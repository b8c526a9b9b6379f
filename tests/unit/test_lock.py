"""One run at a time has the node, and the second is told who has it."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from fixtures import profiles
from fixtures.engines import ServerError
from fixtures.engines.lock import NodeLock

ROOT = Path(__file__).parents[2]
TESTS = ("tests/perf/test_node.py", "tests/perf/test_throughput.py")
HOLD = (
    "import sys; from pathlib import Path; from fixtures.engines.lock import NodeLock\n"
    "lock = NodeLock(Path(sys.argv[1])); lock.acquire(0)\n"
    "print('mine', flush=True); sys.stdin.readline()\n"
    "lock.release(); print('released', flush=True); sys.stdin.readline()\n"
)


@contextmanager
def other_run(path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Have another process hold the lock at *path* until a line is written to it, or until it is killed."""
    command = [sys.executable, "-c", HOLD, str(path), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "mine\n"
        yield process
        process.kill()


def test_second_run_is_told_who_has_the_node(tmp_path: Path) -> None:
    """Pid, user, command and start are in the message, with what to do, and no secret of the command."""
    path = tmp_path / "node.lock"
    with other_run(path, "--api-key", "abc") as other, pytest.raises(ServerError) as told:
        NodeLock(path).acquire(0)

    message = str(told.value)
    assert f"held by pid {other.pid} of " in message
    assert " since 20" in message
    assert "--api-key" in message
    assert "abc" not in message.replace(str(path), "")
    assert "--wait-node MINUTES" in message


def test_second_run_has_the_node_after_the_first(tmp_path: Path) -> None:
    """Released is free, for whoever comes next."""
    path = tmp_path / "node.lock"
    with other_run(path) as other:
        assert other.stdin
        assert other.stdout
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "released\n"
        lock = NodeLock(path)
        lock.acquire(0)
        lock.release()


def test_second_run_waits_for_the_first(tmp_path: Path) -> None:
    """With minutes to wait, a run that comes too early starts when the node is free."""
    path = tmp_path / "node.lock"
    with other_run(path) as first:
        second = subprocess.Popen(
            [sys.executable, "-c", HOLD.replace("acquire(0)", "acquire(1)"), str(path)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with second:
            assert second.stdout
            first.kill()
            assert second.stdout.readline() == "mine\n"
            second.kill()


def test_waiting_run_says_for_whom(tmp_path: Path) -> None:
    """Half an hour of silence looks like a hang: whoever watches the console sees who has the node."""
    path, told = tmp_path / "node.lock", list[str]()
    with other_run(path) as other, pytest.raises(ServerError):
        NodeLock(path).acquire(0.001, told.append)

    assert told[0].startswith(f"waiting for the node: {path} is held by pid {other.pid} of ")


def test_second_pytest_measures_nothing(tmp_path: Path) -> None:
    """The whole way: a run that finds the node taken starts no server, fails once, and says who has it."""
    lock, profile = tmp_path / "node.lock", tmp_path / "taken.toml"
    text = (profiles.FOLDER / "sim.toml").read_text(encoding="utf-8")
    profile.write_text(text.replace("[engine]", f'[node]\nlock = "{lock}"\n[engine]', 1), encoding="utf-8")
    words = ["-c", "pytest.ini", "--rootdir=.", "-p", "no:cacheprovider", f"--profile={profile}", *TESTS]
    places = [f"--run={tmp_path / 'run'}", f"--history={tmp_path / 'history'}", f"--basetemp={tmp_path / 'base'}"]
    with other_run(lock) as other:
        run = [sys.executable, "-m", "pytest", *words, *places]
        second = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert second.returncode == 1, second.stdout
    assert f"the node is in use: {lock} is held by pid {other.pid} of " in second.stdout
    assert "1 failed" in second.stdout
    assert "not run" in second.stdout
    assert "passed" not in second.stdout


def test_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    """SIGKILL runs no release; the kernel takes the lock back, whatever the file still says."""
    path = tmp_path / "node.lock"
    with other_run(path) as other:
        other.kill()
        other.wait()

    lock = NodeLock(path)
    lock.acquire(0)
    lock.release()


def test_server_does_not_inherit_the_lock(tmp_path: Path) -> None:
    """A server that outlives its run must not keep the node."""
    path = tmp_path / "node.lock"
    lock = NodeLock(path)
    lock.acquire(0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False) as server:
        lock.release()
        with other_run(path):
            pass
        server.kill()


def test_lock_is_held_once(tmp_path: Path) -> None:
    """To acquire what is ours, and to release what is not, changes nothing."""
    lock = NodeLock(tmp_path / "node.lock")
    lock.acquire(0)
    lock.acquire(0)

    lock.release()
    lock.release()

    again = NodeLock(lock.path)
    again.acquire(0)
    again.release()


def test_every_user_may_lock(tmp_path: Path) -> None:
    """Whatever the umask: the second run is often another user's."""
    lock = NodeLock(tmp_path / "new" / "node.lock")
    lock.acquire(0)
    lock.release()

    assert stat.S_IMODE(os.stat(lock.path).st_mode) == 0o666  # noqa: PTH116


def test_link_is_not_followed(tmp_path: Path) -> None:
    """In a folder where everybody writes, a link may lead to any file of ours: it is refused, and the file is whole."""
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "node.lock").symlink_to(tmp_path / "precious")

    with pytest.raises(ServerError, match=r"cannot be opened.*let node\.lock in the profile name"):
        NodeLock(tmp_path / "node.lock").acquire(0)

    assert (tmp_path / "precious").read_text() == "kept"


def test_holder_that_has_not_said_who_it_is(tmp_path: Path) -> None:
    """Between taking the lock and writing there is a moment: the message says so much."""
    path = tmp_path / "node.lock"
    with other_run(path):
        os.truncate(path, 0)
        with pytest.raises(ServerError, match="held by a run that does not say who it is"):
            NodeLock(path).acquire(0)


def test_profile_names_its_lock() -> None:
    """The path in the profile is the lock of its node."""
    profile = profiles.load("h200")
    node = msgspec.structs.replace(profile.node, lock="/var/lock/node7")

    assert NodeLock.of(msgspec.structs.replace(profile, node=node)).path == Path("/var/lock/node7")


def test_profiles_of_one_gpu_node_exclude_each_other() -> None:
    """Two profiles with GPUs mean the same GPUs; two without may be measured by one run, one after the other."""
    paths = {name: NodeLock.of(profiles.load(name)).path for name in ("h200", "blackwell-tp8", "cpu", "sim")}

    assert paths["h200"] == paths["blackwell-tp8"]
    assert len(set(paths.values())) == 3
