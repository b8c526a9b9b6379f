"""Many independent lives of a node, on all cores of this machine."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")


def each(work: Callable[[Given], Found], given: Iterable[Given]) -> Iterator[Found]:
    """Yield what *work* makes of each of *given*, in their order; it and both ends of it must survive pickling."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None) as pool:
        yield from pool.map(work, given)
