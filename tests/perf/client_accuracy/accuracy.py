"""How far a client's account of a run is from the server's: pure, from stamps on one clock."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Stamps = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one client: its own cost, and (n, 5) stamps in ns, one row an event.

    Columns: request number, sent by the client, received by the client, request arrived at the server, event sent by
    the server.
    """

    cpu_s: float
    wall_s: float
    events: Stamps
    tokens: int
    """Tokens that the run should have brought in all."""
    clock: str = "application"
    coalesced_share: float | None = None
    """Reads that held more than one event: all but the last are stamped late. None where the client does not say."""
    told_s: float | None = None
    """The duration that the client itself divides its tokens by; None for one that leaves only stamps.

    Of one with a duration of its own only gaps and TTFT are known, so its `received` is right within a request only.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """What the client got wrong, and what it cost."""

    cpu_us_per_event: float
    cpu_share: float
    late_ms_p50: float | None
    """None, as is p99, for a client that does not say when it received what."""
    late_ms_p99: float | None
    itl_error_ms_p50: float
    itl_error_ms_p99: float
    ttft_error_ms_p50: float
    throughput_error: float
    """Reported / true − 1, over the whole run."""
    tok_s: float
    """True rate, from the first request arrived to the last event sent, as the server saw it."""
    coalesced_share: float | None

    def as_dict(self) -> dict[str, float | None]:
        """Return the figures by name."""
        return asdict(self)


REQUEST, SENT, RECEIVED, SERVER_READ, SERVER_SENT = range(5)


def errors(run: Run) -> Errors:
    """Compare the client's stamps of *run* with the server's."""
    events = run.events[np.lexsort((run.events[:, SERVER_SENT], run.events[:, REQUEST]))]
    late = (events[:, RECEIVED] - events[:, SERVER_SENT]) / 1e6
    same = np.diff(events[:, REQUEST]) == 0
    itl = np.abs(np.diff(events[:, RECEIVED])[same] - np.diff(events[:, SERVER_SENT])[same]) / 1e6
    first = events[np.concatenate(([True], ~same))]
    ttft = (first[:, RECEIVED] - first[:, SENT] - (first[:, SERVER_SENT] - first[:, SERVER_READ])) / 1e6
    true_s = (events[:, SERVER_SENT].max() - events[:, SERVER_READ].min()) / 1e9
    told_s = run.told_s or (events[:, RECEIVED].max() - events[:, SENT].min()) / 1e9
    return Errors(
        cpu_us_per_event=run.cpu_s / len(events) * 1e6,
        cpu_share=run.cpu_s / run.wall_s,
        late_ms_p50=None if run.told_s else float(np.quantile(late, 0.5)),
        late_ms_p99=None if run.told_s else float(np.quantile(late, 0.99)),
        itl_error_ms_p50=float(np.quantile(itl, 0.5)) if len(itl) else 0.0,
        itl_error_ms_p99=float(np.quantile(itl, 0.99)) if len(itl) else 0.0,
        ttft_error_ms_p50=float(np.quantile(ttft, 0.5)),
        throughput_error=float(true_s / told_s - 1),
        tok_s=float(run.tokens / true_s),
        coalesced_share=run.coalesced_share,
    )


def joined(rows: Stamps, log: Stamps) -> Stamps:
    """Put the server's stamps beside a client's (n, 4) *rows*: request number, sent, received, tokens so far.

    *log* is the server's, (n, 4): request number, arrival, sending, tokens so far. Raises `ValueError` when the two do
    not tell of the same events.
    """
    seen = rows[np.lexsort((rows[:, 3], rows[:, 0]))]
    made = log[np.lexsort((log[:, 3], log[:, 0]))]
    if not np.array_equal(seen[:, [0, 3]], made[:, [0, 3]]):
        raise ValueError(f"the client tells of {len(seen)} events, the server of {len(made)}, and not of the same")
    return np.column_stack((seen[:, :3], made[:, 1:3]))


def placed(requests: Sequence[Mapping[str, Any]], log: Stamps) -> Stamps:
    """Lay what a client told of each request against the server's *log*, as `joined` has it; return rows of `Run`.

    A request has the number that the server gave it, a TTFT and its gaps, in seconds; it is taken to have been sent
    when it arrived. Raises `ValueError` when the two do not tell of the same events.
    """
    ordered = log[np.lexsort((log[:, 3], log[:, 0]))]
    of_number = {int(rows[0, 0]): rows for rows in np.split(ordered, np.flatnonzero(np.diff(ordered[:, 0])) + 1)}
    if sorted(request["number"] for request in requests) != sorted(of_number):
        raise ValueError(f"the client tells of {len(requests)} requests, the server of {len(of_number)}")
    return np.concatenate([_placed(request, of_number[request["number"]]) for request in requests])


def _placed(request: Mapping[str, Any], rows: Stamps) -> Stamps:
    number, arrived, sent, tokens = rows.T
    gaps_ns, new = np.array(request["gaps_s"]) * 1e9, np.diff(tokens)
    if len(new) and len(gaps_ns) == new.sum():  # one a token, those of one event equal: inter-token latencies
        gaps_ns = np.add.reduceat(gaps_ns, np.cumsum(new) - new)
    if len(gaps_ns) != len(new):
        raise ValueError(f"request {number[0]}: {len(gaps_ns)} gaps between {len(rows)} events of {tokens[-1]} tokens")
    since = np.concatenate(([0.0], np.cumsum(gaps_ns))) + request["ttft_s"] * 1e9
    return np.column_stack((number, arrived, arrived + since.astype(np.int64), arrived, sent))
