"""Reports: everything is there, everything is escaped, nothing comes from elsewhere, and nothing breaks them."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fixtures.reports import lines, properties, write_report
from fixtures.reports.charts import curves, nights
from fixtures.reports.charts.axes import log_ticks, spread_out, ticks_between
from fixtures.reports.html import page
from fixtures.reports.markdown import summary
from fixtures.reports.view import Band, Fact, Finding, History, Latency, Level, Pair, Ranged, Side
from tests.unit.reporting import CAPPED, KINDS, view

HOSTILE = "</svg><script>alert(1)</script><img src=x onerror=alert(2)>\"'&`|*_"


class Tags(HTMLParser):
    """Collects the tags and the attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the tag and what it carries."""
        self.tags.append(tag)
        self.attributes += attrs


def tags(text: str) -> Tags:
    """Return what a browser would see in *text*."""
    out = Tags()
    out.feed(text)
    return out


def level(concurrency: int, *, speedup: float | None = 1.5, side: bool = True) -> Level:
    """Return a level with as little as may be known of it."""
    one = Side(tok_s=Ranged(value=100.0 * concurrency), launches_tok_s=(99.0 * concurrency,))
    return Level(
        concurrency=concurrency,
        baseline=one if side else None,
        variant=one if side else None,
        speedup=Ranged(value=speedup) if speedup else None,
        reference=None,
        allowed=None,
        level_class="",
        word="",
        outcome="unrecorded",
    )


def pair(*levels: Level, crossover: Band | None = None) -> Pair:
    """Return a pair with *levels* and nothing else."""
    return Pair(
        variant="eagle3",
        workload="short",
        note="",
        outcome="unrecorded",
        sentence="",
        crossover=crossover,
        recorded=None,
        levels=levels,
    )


@pytest.mark.parametrize("kind", ["held", "invalid", "unrecorded"])
def test_every_night_gets_its_files(tmp_path: Path, kind: str) -> None:
    """Whatever became of the night, page, summary, pictures and JSON are written, and the JSON is sound."""
    write_report(tmp_path, view(kind))

    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"report.html", "summary.md", "report.json", "crossover.svg", "crossover.png"}
    assert json.loads((tmp_path / "report.json").read_text())["outcome"] == view(kind).outcome
    ElementTree.parse(tmp_path / "crossover.svg")
    assert (tmp_path / "crossover.png").read_bytes()[:4] == b"\x89PNG"


def test_night_without_cells_gets_a_page(tmp_path: Path) -> None:
    """A run that measured nothing still leaves a page that says so."""
    nothing = replace(view("held"), headline="Nothing was measured.", sentences=(), pairs=(), cells=(), facts=())

    write_report(tmp_path, nothing)

    assert "Nothing was measured." in (tmp_path / "report.html").read_text()
    assert not (tmp_path / "crossover.png").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_page_needs_nobody(kind: str) -> None:
    """The page loads nothing and runs nothing: no script, no link, no address but SVG's name."""
    text = page(view(kind))

    seen = tags(text)
    assert not {"script", "link", "iframe", "object", "form"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name in ("src", "href") or name.startswith("on")]
    assert set(re.findall(r"https?://[^\"' <]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in text


def test_everything_is_escaped() -> None:
    """A name, a reason or a value from a server never becomes part of the page."""
    held = view("held")
    evil = replace(held.pairs[0], variant=HOSTILE, note=HOSTILE, sentence=HOSTILE, provenance=HOSTILE, drift=HOSTILE)
    night = replace(
        held,
        profile=HOSTILE,
        about=HOSTILE,
        headline=HOSTILE,
        findings=(Finding(outcome="invalid", where=HOSTILE, reason=HOSTILE, next_step=HOSTILE, more=(HOSTILE,)),),
        pairs=(replace(evil, levels=tuple(replace(lv, arms={}, word=HOSTILE) for lv in evil.levels)),),
        facts=(Fact(name=HOSTILE, tonight=HOSTILE, recorded=HOSTILE),),
        servers={HOSTILE: {HOSTILE: HOSTILE}},
        commands=((HOSTILE, HOSTILE), (HOSTILE, HOSTILE)),
        set_aside=((HOSTILE, HOSTILE),),
        notes=(HOSTILE,),
    )

    seen = tags(page(night))

    assert not {"script", "img"} & set(seen.tags)
    assert not [name for name, _ in seen.attributes if name == "onerror"]
    assert "<" not in re.sub(r"`[^\n]*`", "", summary(night))


@pytest.mark.parametrize("kind", KINDS)
def test_charts_are_sound(kind: str) -> None:
    """Every chart is well-formed, and every coordinate in it is a number."""
    drawings = re.findall(r"<svg.*?</svg>", page(view(kind)), flags=re.DOTALL)

    assert drawings
    for drawing in drawings:
        ElementTree.fromstring(drawing)
        assert "nan" not in drawing
        assert "inf" not in drawing


CORNERS = {
    "one level": pair(level(1)),
    "no speed-up": pair(level(1, speedup=None), level(2, speedup=None)),
    "nothing measured": pair(level(1, speedup=None, side=False)),
    "all equal": pair(level(1, speedup=1.0), level(2, speedup=1.0)),
    "beyond the levels": pair(level(1), level(250), crossover=Band(low=250, high=None, point=None, text=">250")),
    "a factor of a thousand": pair(level(1, speedup=1000.0), level(4096, speedup=0.001)),
}


@pytest.mark.parametrize("of", CORNERS.values(), ids=CORNERS)
def test_charts_survive_corners(of: Pair) -> None:
    """However little or much is known, the charts are drawn with numbers."""
    for drawing in (curves.speedup(of), curves.throughput(of)):
        ElementTree.fromstring(drawing)
        assert not re.search(r'"(nan|-?inf)', drawing)


def test_charts_without_data_are_left_out() -> None:
    """Where no server said an acceptance length and no request completed, there is no empty chart."""
    assert curves.acceptance(pair(level(1))) == ""
    assert curves.latency(pair(level(1)), "ttft_s") == ""
    assert "polyline" not in nights.spark([None, 1.0])


def test_latency_chart_tells_its_numbers() -> None:
    """Each dot says its quantiles under the pointer, in milliseconds."""
    side = Side(tok_s=Ranged(value=1.0), launches_tok_s=(1.0,), ttft_s=Latency(p50=0.05, p95=0.07, p99=0.09))
    drawing = curves.latency(pair(replace(level(4), variant=side), level(8)), "ttft_s")

    assert "eagle3 at C = 4: p50 50 ms, p95 70, p99 90" in drawing


def test_trend_numbers_what_happened() -> None:
    """The step of the year stands on the chart and, with its night, in the list."""
    history = view("held").pairs[0].history
    assert history is not None
    [step] = [event for event in history.happenings if event.kind == "step"]

    assert step.night[:10] == "2026-01-28"
    assert f"<title>{step.text}</title>" in nights.trend(history, 1000)


def test_trend_of_two_nights_is_drawn() -> None:
    """The second night already has a trend."""
    history = History(
        nights=("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"),
        statuses=("held", "held"),
        mean=(1.2, None),
        levels={1: (1.2, None)},
    )

    ElementTree.fromstring(nights.trend(history, 470))


def test_held_night_says_where_speculation_pays() -> None:
    """The first thing on the page of a good night is the answer."""
    held = view("held")

    assert held.outcome == "held"
    assert held.headline.startswith("eagle3 on chat pays up to C = ")
    assert held.findings == ()


def test_failures_come_first_and_causes_once() -> None:
    """Eight levels that fell for one cause are one finding of each gate, and the worst gate comes first."""
    night = view("regressed")

    assert [finding.where for finding in night.findings][:2] == [
        "eagle3 on chat: sign at C = 30",
        "eagle3 on chat: ratio at C = 1, 2, 5, 10, 30, 70, 100, 250",
    ]
    assert night.headline.startswith("eagle3 on chat at C = 30: speculation no longer beats baseline")
    assert lines(night)[0] == "REGRESSED eagle3 on chat: sign at C = 30"


def test_invalid_level_is_told_with_its_reason() -> None:
    """A capped level is one finding, is marked in the table, and its cells are shown with the reason."""
    night = view("invalid")

    text = page(night)
    assert [finding.outcome for finding in night.findings].count("invalid") == 1
    assert CAPPED in night.findings[0].reason
    assert text.count('<td class="text wrap">' + CAPPED) >= 2


def test_what_is_not_gated_is_shown_after_it() -> None:
    """A variant that is measured beside the gated one has its own section, table and sentence, and no verdict."""
    night = view("beside")

    assert [(of.variant, of.outcome) for of in night.pairs] == [("eagle3", "held"), ("lighter", "shown")]
    assert night.outcome == "held"
    assert {level.outcome for level in night.pairs[1].levels} == {"shown"}
    assert lines(night)[-2].startswith("lighter on chat pays up to C = ")


def test_terminal_ends_with_the_table_and_the_sentence() -> None:
    """The table has a row per level, and the crossover is said after it."""
    text = lines(view("held"))

    heads = "C, baseline tok/s, eagle3 tok/s, speed-up, 95 % interval, accepted, class, verdict"
    assert re.split(r" {2,}", text[0].strip()) == heads.split(", ")
    assert [row.split()[0] for row in text[1:9]] == ["1", "2", "5", "10", "30", "70", "100", "250"]
    assert [row.split()[-1] for row in text[1:9]] == ["held"] * 8
    assert text[-2] == view("held").sentences[0]
    assert text[-1] == "history: 0007_x.json was set aside: is cut off"


def test_latency_says_where_it_stops_being_better() -> None:
    """Beside throughput's crossover, in the page, the summary and the terminal."""
    it = view("held")
    texts = dict(it.pairs[0].latencies)

    assert list(texts) == ["TPOT p50", "TPOT p95", "TTFT p50", "TTFT p95"]
    assert texts["TPOT p50"].startswith("up to ")
    assert f"<b>TPOT p50</b> {texts['TPOT p50']}".replace(" … ", "\u00a0…\u00a0") in page(it)
    assert f"| up to C | {texts['TPOT p50']} |" in summary(it).replace("&#60;", "<")
    assert any(f"TPOT p50 {texts['TPOT p50']}" in line for line in lines(it))


def test_adaptive_variant_is_shown_beside_the_best_static_one() -> None:
    """At each level with the arm that is best there: eagle3 at the lowest level, baseline at the highest."""
    it = view("adaptive")
    shown = next(pair for pair in it.pairs if pair.variant == "adaptive")

    assert (shown.best[0].variant, shown.best[-1].variant) == ("eagle3", "baseline")
    assert "Beside the best static arm" in page(it)
    assert "| 250 | baseline | " in summary(it)
    assert any("beside the best static arm: C=1 1.000x of eagle3 held" in line for line in lines(it))


def test_workloads_are_shown_beside_each_other() -> None:
    """Each with its crossover, and with what its servers were busy with; the answer stands in every form."""
    it = view("workloads")
    (of,) = it.across
    chat, code = of.crossings
    answer = "eagle3's crossover is larger on code: code / chat = "

    assert (chat.workload, code.workload) == ("chat", "code")
    assert code.band.point is not None
    assert chat.band.point is not None
    assert code.band.point > chat.band.point
    assert (code.loads[-1].prefill_batch, code.loads[-1].outside_graphs) == (800.0, 0.02)
    assert chat.loads[-1].prefill_batch is None
    assert len(chat.nights) == 41
    assert chat.nights[-1] == pytest.approx(chat.band.point, rel=0.1)
    assert answer in page(it).replace("&#39;", "'")
    assert answer in summary(it)
    assert any(line.startswith(answer) for line in lines(it))
    assert "| 50 % | 0 | 800 | 2 % |" in summary(it)


def test_environment_shows_what_changed_first() -> None:
    """A driver that is not the record's is the first line, with both values; nested values are told apart."""
    facts = view("held").facts

    assert (facts[0].name, facts[0].recorded, facts[0].tonight) == ("driver", "580.159.04", "580.173.02")
    assert [fact.changed for fact in facts] == [True, False, False, False]
    assert "gpu.memory_mib" in [fact.name for fact in facts]


def test_summary_joins_the_jobs_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On GitHub the summary is appended to what the job already wrote."""
    job = tmp_path / "job.md"
    job.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(job))

    write_report(tmp_path / "report", view("regressed"))

    assert job.read_text() == "before\n" + summary(view("regressed"))
    assert "| 30 | " in job.read_text()


def test_junit_gets_the_numbers() -> None:
    """A reader of JUnit's file finds speed-ups, crossover and reason."""
    found = dict(properties(view("held")))

    assert found["outcome"] == "held"
    assert float(found["speed-up of eagle3 on chat at C=1"]) == pytest.approx(1.57, abs=0.02)
    assert re.fullmatch(r"\d+(\.\d)? … \d+(\.\d)?", found["crossover of eagle3 on chat"])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (90, 4000, [100, 200, 500, 1000, 2000]),
        (0.05, 30000, [0.1, 1, 10, 100, 1000, 10000]),
        (7, 9, [7, 7.5, 8, 8.5, 9]),
    ],
    ids=["1-2-5", "decades", "narrow"],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    """Axis ticks of a logarithmic scale are numbers that people use, whatever the range."""
    assert log_ticks(low, high) == expected


def test_labels_keep_apart() -> None:
    """Labels that would overlap are moved apart, in their order and around where they belong."""
    assert spread_out([50.0, 48.0, 10.0], apart=10) == pytest.approx([55.3, 45.3, 7.3], abs=0.1)
    assert ticks_between(0.98, 1.61) == [1.0, 1.2, 1.4, 1.6]
