"""A plan tells time, and tells no secrets."""

import pytest

from fixtures.planning import minutes, redacted, redacted_arguments


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(45, "45 s"), (89.6, "90 s"), (600, "10 min"), (7500, "2 h 05 min")],
    ids=["seconds", "just under", "minutes", "hours"],
)
def test_duration_for_people(seconds: float, expected: str) -> None:
    """Seconds below a minute and a half, then minutes, then hours."""
    assert minutes(seconds) == expected


def test_secrets_in_variables_are_hidden() -> None:
    """A plan is pasted into tickets: the value of a key is not in it, the others are."""
    assert redacted({"NCCL_ALGO": "Ring", "HF_TOKEN": "abc"}) == {"NCCL_ALGO": "Ring", "HF_TOKEN": "…"}


def test_secrets_in_arguments_are_hidden() -> None:
    """The word after `--api-key` is hidden, a flag that merely follows one is not."""
    argv = ["serve", "--api-key", "abc", "--skip-tokenizer-init", "--port", "1"]

    assert redacted_arguments(argv) == ["serve", "--api-key", "…", "--skip-tokenizer-init", "--port", "1"]
