"""The layering rule, by walking the imports: what judges is pure, and pytest stays in the plugins."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
PURE = {"numpy", "scipy"}


def modules(folder: Path) -> list[Path]:
    """Every module below *folder*."""
    return sorted(folder.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The absolute names that the module *path* imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


def plugins() -> set[str]:
    """The plugin modules that conftest.py names."""
    assigned = next(
        node.value
        for node in ast.parse((ROOT / "conftest.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytest_plugins"
    )
    names: tuple[str, ...] = ast.literal_eval(assigned)
    return {name for name in names if name.startswith("fixtures.")}


def dotted(path: Path) -> str:
    """The name under which *path* is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", modules(FIXTURES / "analysis"), ids=lambda path: path.name)
def test_analysis_imports_numpy_scipy_the_standard_library_and_itself(path: Path) -> None:
    """No clock of the outside, no file, no socket, no pytest: the same verdict comes out of a saved file anywhere."""
    allowed = PURE | set(sys.stdlib_module_names)
    foreign = {
        name
        for name in imported(path)
        if name.partition(".")[0] not in allowed and not f"{name}.".startswith("fixtures.analysis.")
    }

    assert foreign == set()


EFFECTS = {"asyncio", "os", "socket", "subprocess", "time", "pathlib", "http", "urllib", "random", "tempfile", "io"}


@pytest.mark.parametrize("path", modules(FIXTURES / "analysis"), ids=lambda path: path.name)
def test_analysis_touches_nothing_of_the_world(path: Path) -> None:
    """Also not through the standard library."""
    assert {name.partition(".")[0] for name in imported(path)} & EFFECTS == set()


@pytest.mark.parametrize("path", modules(FIXTURES), ids=dotted)
def test_only_plugins_import_pytest(path: Path) -> None:
    """A module that is not named in conftest.py works without pytest."""
    uses_pytest = any(name.partition(".")[0] in {"pytest", "_pytest"} for name in imported(path))

    assert not uses_pytest or dotted(path) in plugins()


def test_conftest_imports_nothing_of_ours() -> None:
    """`pytest-benchmark compare` imports it a second time, and would crash."""
    assert not any(name.startswith("fixtures") for name in imported(ROOT / "conftest.py"))
