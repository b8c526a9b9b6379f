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


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "AWS_ACCESS_KEY_ID", "CLIENT_SECRET", "PGPASSWORD"])
def test_secret_in_a_variable_is_hidden(name: str) -> None:
    """A plan is pasted into tickets: the value of a key is not in it."""
    assert redacted({name: "abc"}) == {name: "…"}


@pytest.mark.parametrize("name", ["NCCL_ALGO", "SGLANG_SIMULATE_ACC_TOKEN_MODE", "TOKENIZERS_PARALLELISM"])
def test_variable_of_the_measurement_is_shown(name: str) -> None:
    """What merely has a token in its name is part of what is measured."""
    assert redacted({name: "abc"}) == {name: "abc"}


def test_secrets_in_arguments_are_hidden() -> None:
    """The word after `--api-key` is hidden, a flag that merely follows one is not."""
    argv = ["serve", "--api-key", "abc", "--skip-tokenizer-init", "--port", "1"]

    assert redacted_arguments(argv) == ["serve", "--api-key", "…", "--skip-tokenizer-init", "--port", "1"]


@pytest.mark.parametrize("flag", ["--speculative-num-draft-tokens", "--max-total-tokens"])
def test_number_of_tokens_is_no_secret(flag: str) -> None:
    """It is what the variants differ in."""
    assert redacted_arguments(["serve", flag, "4"]) == ["serve", flag, "4"]
