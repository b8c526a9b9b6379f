"""The table, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = {
    "client": "{client}",
    "CPU us/event": "{cpu_us_per_event:.1f}",
    "x limit": "{cpu_over_limit:.1f}",
    "CPU": "{cpu_share:.0%}",
    "late p50 ms": "{late_ms_p50:.3f}",
    "late p99 ms": "{late_ms_p99:.3f}",
    "ITL err p50 ms": "{itl_error_ms_p50:.4f}",
    "ITL err p99 ms": "{itl_error_ms_p99:.3f}",
    "TTFT err p50 ms": "{ttft_error_ms_p50:.3f}",
    "throughput err": "{throughput_error:+.3%}",
    "achieved": "{achieved:.2%}",
    "coalesced": "{coalesced_share:.2%}",
}


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of one scenario under its name."""
    head = f"\n**{rows[0]['scenario']}**, medians of {rows[0]['rounds']}\n"
    lines = [COLUMNS.keys(), ["---"] * len(COLUMNS)]
    cells = [[form.format(**row) if None not in row.values() else "" for form in COLUMNS.values()] for row in rows]
    return head + "".join(f"\n| {' | '.join(line)} |" for line in [*lines, *cells])
