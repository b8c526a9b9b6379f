"""Synthetic nights as the files that the suite saves, and back through the reader that a replay uses."""

from pathlib import Path
from typing import Any

import msgspec

from fixtures.analysis.measurements import Cell, Night
from fixtures.histories import dumps, read_night, with_gate, write_atomically


def through_file(night: Night, path: Path) -> Night:
    """Write *night* to *path* as pytest-benchmark would, and return what a replay reads there."""
    document = {"benchmarks": [_benchmark(cell) for cell in night.cells], "version": "5.2.3", "machine_info": {}}
    write_atomically(path, dumps(with_gate(document, night, {})))
    return read_night(path)


def _benchmark(cell: Cell) -> dict[str, Any]:
    return {
        "name": f"test_throughput[{cell.profile}-{cell.launch}-{cell.variant}-{cell.workload}-C{cell.concurrency:03d}]",
        "group": f"{cell.profile} {cell.workload} C={cell.concurrency}",
        "stats": {"data": [window.seconds / window.output_tokens for window in cell.rounds]},
        "extra_info": msgspec.to_builtins(cell),
    }
