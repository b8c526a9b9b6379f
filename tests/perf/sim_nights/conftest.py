"""The nights run side by side in processes of their own; each test waits for the one it asks about."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.perf.sim_nights.nights import Ended

AT_ONCE = 10
"""On two cores: a night takes a few per cent of one and waits for the rest."""
LONG = ("two contexts", "blackwell-tp8", "cuda12.8", "several", "calibrated", "one arm pays", "policy")
"""Nights of more than a minute: they begin first, so that none of them is waited for alone."""

Night = Callable[[Path], Ended]


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave the nights of the tests out of a night that somebody asked for by name."""
    return True if config.getoption("profile") else None


@pytest.fixture(scope="session")
def nights(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Ended]]:
    """Return the function that waits for a night of any module's `NIGHTS`; all that were selected have begun."""
    with ThreadPoolExecutor(AT_ONCE) as workers:
        running: dict[str, Future[Ended]] = {
            name: workers.submit(night, tmp_path_factory.mktemp("night"))
            for name, night in sorted(_selected(request.session).items(), key=lambda item: item[0] not in LONG)
        }
        yield lambda name: running[name].result()
        for each in running.values():
            each.cancel()


def _selected(session: pytest.Session) -> dict[str, Night]:
    """Return the nights that the selected tests ask about, by name."""
    return {
        str(item.callspec.params["night"]): item.module.NIGHTS[item.callspec.params["night"]]
        for item in session.items
        if isinstance(item, pytest.Function) and "nights" in item.fixturenames
    }
