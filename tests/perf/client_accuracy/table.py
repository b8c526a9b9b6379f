"""The table, as Markdown: a dash for what a client does not tell."""

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = {
    "client": ("client", "{}"),
    "CPU us/event": ("cpu_us_per_event", "{:.1f}"),
    "x limit": ("cpu_over_limit", "{:.1f}"),
    "CPU": ("cpu_share", "{:.0%}"),
    "late p50 ms": ("late_ms_p50", "{:.3f}"),
    "late p99 ms": ("late_ms_p99", "{:.3f}"),
    "ITL err p50 ms": ("itl_error_ms_p50", "{:.4f}"),
    "ITL err p99 ms": ("itl_error_ms_p99", "{:.3f}"),
    "TTFT err p50 ms": ("ttft_error_ms_p50", "{:.3f}"),
    "throughput err": ("throughput_error", "{:+.3%}"),
    "achieved": ("achieved", "{:.2%}"),
    "coalesced": ("coalesced_share", "{:.2%}"),
}


def as_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of one scenario under its name."""
    head = f"\n**{rows[0]['scenario']}**, medians of {rows[0].get('rounds', 0)}\n"
    lines = [COLUMNS.keys(), ["---"] * len(COLUMNS), *map(_cells, rows)]
    return head + "".join(f"\n| {' | '.join(line)} |" for line in lines)


def _cells(row: Mapping[str, Any]) -> list[str]:
    if row.get("not_installed"):
        return [row["client"], "not installed", *["–"] * (len(COLUMNS) - 2)]
    return ["–" if row.get(key) is None else form.format(row[key]) for key, form in COLUMNS.values()]
