"""How far a client's account of a run is from the server's: pure, from stamps on one clock."""

from dataclasses import asdict, dataclass

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
    coalesced_share: float = 0.0
    """Reads that held more than one event: all but the last are stamped late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """What the client got wrong, and what it cost."""

    cpu_us_per_event: float
    cpu_share: float
    late_ms_p50: float
    late_ms_p99: float
    itl_error_ms_p50: float
    itl_error_ms_p99: float
    ttft_error_ms_p50: float
    throughput_error: float
    """Reported / true − 1, over the whole run."""
    tok_s: float
    """True rate, from the first request arrived to the last event sent, as the server saw it."""
    coalesced_share: float

    def as_dict(self) -> dict[str, float]:
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
    told_s = (events[:, RECEIVED].max() - events[:, SENT].min()) / 1e9
    return Errors(
        cpu_us_per_event=run.cpu_s / len(events) * 1e6,
        cpu_share=run.cpu_s / run.wall_s,
        late_ms_p50=float(np.quantile(late, 0.5)),
        late_ms_p99=float(np.quantile(late, 0.99)),
        itl_error_ms_p50=float(np.quantile(itl, 0.5)) if len(itl) else 0.0,
        itl_error_ms_p99=float(np.quantile(itl, 0.99)) if len(itl) else 0.0,
        ttft_error_ms_p50=float(np.quantile(ttft, 0.5)),
        throughput_error=float(true_s / told_s - 1),
        tok_s=float(run.tokens / true_s),
        coalesced_share=run.coalesced_share,
    )
