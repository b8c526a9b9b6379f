"""What the load generator must be, at C = 250 in lock-step: by itself, and against SGLang's Rust client."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OURS, RUST = "ours", "SGLang Rust"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One figure of one scenario, and whether it is good enough."""

    what: str
    scenario: str
    value: float
    limit: float | None
    """None when nothing was measured to hold it against."""
    higher_is_better: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side of the limit; without one it is not."""
        if self.limit is None:
            return False
        return self.value >= self.limit if self.higher_is_better else self.value <= self.limit

    @property
    def line(self) -> str:
        """The goal as a line of text."""
        if self.limit is None:
            return f"NOT MEASURED {self.what} {self.value:.5g}, {self.scenario}"
        sign = ">=" if self.higher_is_better else "<="
        verdict = "met   " if self.met else "MISSED"
        return f"{verdict} {self.what} {self.value:.5g} ({sign} {self.limit:.5g}), {self.scenario}"


FIGURES: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "CPU per event over the C client's": lambda row: row["cpu_over_limit"],
    "ITL error p99 / interval": lambda row: row["itl_error_ms_p99"] / row["interval_ms"],
    "TTFT error p50, ms": lambda row: abs(row["ttft_error_ms_p50"]),
    "throughput error": lambda row: abs(row["throughput_error"]),
    "achieved / ideal rate": lambda row: row["achieved"],
}

AT_20_MS = (2.0, 0.001, 0.1, 0.0005, 0.998)
AT_5_MS = (None, 0.01, 0.1, 0.0005, 0.995)
"""The limits of `FIGURES`, in its order; None on the CPU at 5 ms."""

AGAINST_RUST: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "throughput error against SGLang's Rust client's": lambda row: abs(row["throughput_error"]),
    "ITL error p99, ms, against SGLang's Rust client's": lambda row: row["itl_error_ms_p99"],
    "CPU per event, us, against SGLang's Rust client's": lambda row: row["cpu_us_per_event"],
}


def judge(rows: Sequence[Mapping[str, Any]]) -> list[Goal]:
    """Return the goals of every scenario at C = 250 that our client ran in, one chunk a token."""
    rust = {row["scenario"]: row for row in rows if row["client"] == RUST and not row.get("not_installed")}
    return [
        goal
        for row in rows
        if row["client"] == OURS and row["scenario"].startswith("C=250,") and row["interval_ms"] in {20, 5}
        for goal in (*_goals(row), *_against(row, rust.get(row["scenario"])))
    ]


def _goals(row: Mapping[str, Any]) -> Iterator[Goal]:
    limits = AT_20_MS if row["interval_ms"] == 20 else AT_5_MS
    for (what, figure), limit in zip(FIGURES.items(), limits, strict=True):
        better = what.startswith("achieved")
        if limit is None:
            continue
        yield Goal(what=what, scenario=row["scenario"], value=figure(row), limit=limit, higher_is_better=better)


def _against(row: Mapping[str, Any], rust: Mapping[str, Any] | None) -> Iterator[Goal]:
    for what, figure in AGAINST_RUST.items():
        limit = None if rust is None else figure(rust)
        yield Goal(what=what, scenario=row["scenario"], value=figure(row), limit=limit)
