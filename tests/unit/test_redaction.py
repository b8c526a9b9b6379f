"""What leaves the node carries no secret and no name, and still says what was measured."""

import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.reports.redaction import of_this_node, redact_folder

SECRET = "s3cr3t-of-the-registry"
NODE = of_this_node({"HF_TOKEN": SECRET, "DB_PASSWORD": "abc", "PATH": "/usr/bin"}, "gpu-node-07", "ci", "/home/ci")

HIDDEN = {
    "value of a secret variable": (f"--key {SECRET}", "--key [secret]"),
    "token by its look": ("hf_" + "a" * 34 + " was used", "[secret] was used"),
    "header": ("Authorization: Bearer abcdef123456", "Authorization: Bearer [secret]"),
    "password in a URL": ("https://me:pass@host.example/x", "https://[secret]@host.example/x"),
    "address": ('"10.1.2.3:30000"', '"[address]:30000"'),
    "mail": ("by a.person@example.org", "by [mail]"),
    "node": ("on gpu-node-07 at night", "on [node] at night"),
    "home": ("/home/ci/models/x", "~/models/x"),
    "GPU": ("GPU-5f1c2a9e-1111-2222-3333-444455556666", "GPU-5f1c2a9e"),
}
KEPT = {
    "throughput": "17,444.2 tok/s at C = 250",
    "versions": 'driver 580.159.04, sglang 0.5.17, torch 2.11.0+cu130, "cuda": "13.0.1.2.3"',
    "loopback": "http://127.0.0.1:30000/generate",
    "short value of a secret variable": "abc",
}


@pytest.mark.parametrize(("text", "expected"), HIDDEN.values(), ids=HIDDEN)
def test_secret_is_hidden(text: str, expected: str) -> None:
    """Secrets, addresses, people and the node's name are replaced, and nothing around them."""
    assert NODE(text) == expected


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_measurement_is_kept(text: str) -> None:
    """Numbers and versions look like addresses to a careless pattern: they stay."""
    assert NODE(text) == text


def test_folder_is_copied_redacted(tmp_path: Path) -> None:
    """Every file arrives, texts redacted and pictures untouched; the original stays as it is."""
    source = tmp_path / "report"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "report.html").write_text(f"<p>{SECRET}</p>")
    (source / "crossover.png").write_bytes(b"\x89PNG" + SECRET.encode())

    redact_folder(source, tmp_path / "out", NODE)

    assert (tmp_path / "out" / "deep" / "report.html").read_text() == "<p>[secret]</p>"
    assert (tmp_path / "out" / "crossover.png").read_bytes() == b"\x89PNG" + SECRET.encode()
    assert SECRET in (source / "deep" / "report.html").read_text()


def test_command_says_how_it_is_used() -> None:
    """Without its two folders the command explains itself and copies nothing."""
    command = [sys.executable, "-m", "fixtures.reports.redaction"]

    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "FROM TO" in done.stderr
