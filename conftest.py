"""A table of contents: the plugin modules, nothing else.

Never import from `fixtures` here: `pytest-benchmark compare` imports this file a second time and would crash.
"""

import pytest

pytest.register_assert_rewrite("fixtures")

pytest_plugins = (
    "fixtures.options",
    "fixtures.schedule",
    "fixtures.servers",
    "fixtures.measurement",
    "fixtures.records",
    "fixtures.judging",
    "fixtures.outcomes",
    "fixtures.calibrating",
    "fixtures.policies",
    "fixtures.timing",
    "fixtures.reporting",
    "pytester",
)
