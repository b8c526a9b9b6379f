"""The page in a real browser: it renders without errors, in light and dark, wide and narrow. `tox -e report`.

Not collected by itself: it needs Chromium, and says so where there is none.
"""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from fixtures.reports.html import page
from tests.unit.reporting import KINDS, view

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=4000",
    "--enable-logging=stderr",
)
HARNESS = """<!doctype html><iframe id="page" style="width:{width}px;height:2000px;border:0" srcdoc="{page}"></iframe>
<pre id="seen"></pre><script>
document.getElementById("page").onload = event => {{
  const inner = event.target.contentDocument, root = inner.documentElement;
  const texts = [...inner.querySelectorAll("svg text")].filter(text => text.getClientRects().length);
  const charts = [...inner.querySelectorAll("svg")].filter(chart => chart.getClientRects().length);
  document.getElementById("seen").textContent = JSON.stringify({{
    overflow: root.scrollWidth - root.clientWidth,
    charts: charts.length,
    flat: charts.filter(chart => chart.getBoundingClientRect().height < 20).length,
    smallest: Math.min(...texts.map(text => text.getBoundingClientRect().height)),
    ink: getComputedStyle(inner.body).color,
  }});
}};
</script>"""
"""Measures the page from outside: the page itself runs no script."""


@pytest.fixture(scope="session")
def browser() -> str:
    """The path of Chromium, or of a browser made from it."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail(f"the report is checked in Chromium, and there is none of {', '.join(BROWSERS)}", pytrace=False)
    return found


def look(browser: str, folder: Path, text: str, width: int, *, dark: bool) -> tuple[dict[str, Any], list[str]]:
    """Return what the harness measured of the page *text* at *width*, and what the browser complained of."""
    path = folder / "harness.html"
    path.write_text(HARNESS.format(width=width, page=escape(text)), encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [browser, *FLAGS, scheme, f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    seen = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert seen, f"the page did not load:\n{done.stdout[-2000:]}"
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(unescape(seen[1])), complaints


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [420, 1400], ids=["narrow", "wide"])
@pytest.mark.parametrize("kind", KINDS)
def test_page_renders(browser: str, tmp_path: Path, kind: str, width: int, dark: bool) -> None:
    """The browser has nothing to complain of, nothing sticks out, every chart has a size and text one can read."""
    seen, complaints = look(browser, tmp_path, page(view(kind)), width, dark=dark)

    assert complaints == []
    assert seen["overflow"] == 0
    assert seen["charts"] >= 4
    assert seen["flat"] == 0
    assert seen["smallest"] >= 10
    assert (seen["ink"] == "rgb(232, 235, 240)") is dark


def test_check_notices_a_script_error(browser: str, tmp_path: Path) -> None:
    """A page with a script is caught: its own policy refuses to run it, and the browser says so."""
    broken = page(view("held")).replace("</main>", "<script>missing()</script></main>")

    _, complaints = look(browser, tmp_path, broken, 1400, dark=False)

    assert len(complaints) == 1
