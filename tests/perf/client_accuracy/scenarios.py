"""What is offered to every client alike."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One load: streams, pace, size and endpoint."""

    concurrency: int
    interval_us: int
    tokens_per_event: int = 1
    tokens: int = 128
    waves: int = 4
    path: str = "/generate"

    @property
    def name(self) -> str:
        """Short name, as in the table."""
        interval = f", {self.tokens_per_event} a chunk" if self.tokens_per_event > 1 else ""
        return f"C={self.concurrency}, {self.interval_us / 1000:g} ms a token{interval}, {self.path}"

    @property
    def ideal_tok_s(self) -> float:
        """The rate at which the server would send with no client in its way."""
        return self.concurrency / self.interval_us * 1e6


def scenarios() -> list[Scenario]:
    """Return what is offered: the goals' own scenarios first, with the waves that the goals speak of."""
    return [
        Scenario(concurrency=250, interval_us=20_000),
        Scenario(concurrency=250, interval_us=5_000),
        Scenario(concurrency=250, interval_us=20_000, path="/v1/completions"),
        Scenario(concurrency=250, interval_us=20_000, tokens_per_event=16, waves=2),
        *(Scenario(concurrency=c, interval_us=us, waves=1) for c in (1, 10, 100) for us in (20_000, 5_000)),
    ]
