"""What the README says was measured is what the files say."""

import re

import pytest

from fixtures import profiles
from tests.unit.readme import README, ROOT, TABLES, filled

TEXT = README.read_text(encoding="utf-8")


def test_measured_tables_are_those_of_the_files() -> None:
    """The tables were written by `python -m tests.unit.readme` from the shipped record and nights."""
    assert filled(TEXT) == TEXT


@pytest.mark.parametrize("name", TABLES)
def test_each_table_has_its_place(name: str) -> None:
    """A table whose markers went missing would be checked by nobody."""
    assert TEXT.count(f"<!-- {name} -->") == TEXT.count(f"<!-- /{name} -->") == 1


def test_commands_of_the_readme_exist() -> None:
    """Both commands that a newcomer is given are environments of tox.ini."""
    tox = (ROOT / "tox.ini").read_text(encoding="utf-8")

    named = re.findall(r"tox -e ([a-z-]+)", TEXT)
    assert {"unit", "crossover"} <= set(named)
    assert [name for name in named if f"[testenv:{name}]" not in tox] == []


@pytest.mark.parametrize("folder", ["analysis", "engines", "load", "histories", "reports", "simulator", "offline"])
def test_every_package_is_on_the_map(folder: str) -> None:
    """Whoever looks for a folder finds it in "How it fits together"."""
    assert f"`fixtures/{folder}/`" in TEXT or f"`{folder}/`" in TEXT


def test_profile_to_copy_is_there() -> None:
    """The README's ten lines start from a profile that ships."""
    assert "blackwell-tp8" in profiles.available()
