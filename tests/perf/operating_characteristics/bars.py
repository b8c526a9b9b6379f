"""The bars that the gate must clear, and the table that says how it did."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.perf.operating_characteristics.crossings import Coverage
from tests.perf.operating_characteristics.faults import CURVES
from tests.perf.operating_characteristics.studies import Detection, NoisyNight, Years


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One promise: what was measured, and what it must not exceed or fall below."""

    name: str
    value: float
    limit: float
    at_most: bool
    share: bool = True
    """Shown in per cent; else as a plain number."""
    allowance: float = 0.0
    """Monte-Carlo error that a short run may add; 0 in the full one."""

    @property
    def cleared(self) -> bool:
        """Whether the promise holds."""
        return self.value <= self.limit + self.allowance if self.at_most else self.value >= self.limit - self.allowance

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        extra = f" (± {self.shown(self.allowance)} for so few runs)" if self.allowance else ""
        word = "ok  " if self.cleared else "FAIL"
        return f"{word} {self.name}: {self.shown(self.value)}, bar {sign} {self.shown(self.limit)}{extra}"

    def shown(self, value: float) -> str:
        """Return *value* as it is printed."""
        return f"{100 * value:.1f} %" if self.share else f"{value:.3g}"


def at_most(name: str, value: float, limit: float, trials: float, *, share: bool = True, short: bool = False) -> Bar:
    """Return a bar from above; a short run of *trials* may be 3 sd over it."""
    spread = limit * (1 - limit) / trials if share else limit / trials
    allowance = 3 * float(np.sqrt(spread)) if short else 0.0
    return Bar(name=name, value=value, limit=limit, at_most=True, share=share, allowance=allowance)


def at_least(name: str, value: float, limit: float, trials: float, *, short: bool = False) -> Bar:
    """Return a bar from below; a short run of *trials* may be 3 sd under it."""
    allowance = 3 * float(np.sqrt(limit * (1 - limit) / trials)) if short else 0.0
    return Bar(name=name, value=value, limit=limit, at_most=False, allowance=allowance)


def of_years(years: Sequence[Years], *, short: bool) -> list[Bar]:
    """Return the bars on unchanged nights: middle noise over all curves together, and each other noise."""
    middle = [y for y in years if y.noise == "middle" and y.case in CURVES]
    span = sum(y.years for y in middle)
    mean = {name: sum(getattr(y, name) * y.years for y in middle) / span for name in ("tonight", "whole")}
    second = sum(y.second_blocks * y.years for y in middle) / span
    per_year: tuple[tuple[str, float, float], ...] = (
        ("false alarms a year, tonight's gates, middle noise", mean["tonight"], 0.4),
        ("false alarms a year, whole gate, middle noise", mean["whole"], 1.0),
    )
    out = [at_most(name, value, limit, span, share=False, short=short) for name, value, limit in per_year]
    out.append(at_most("second blocks on unchanged nights, middle noise", second, 0.12, 365 * span, short=short))
    limits = {"quiet": 0.2, "loud": 4.0, "h200": 0.4, "unequal": 1.0}
    for y in years:
        if y not in middle:
            name = f"false alarms a year, whole gate, {y.noise} noise, {y.case}"
            out.append(at_most(name, y.whole, limits.get(y.noise, 1.0), y.years, share=False, short=short))
    return out


NIGHT_ONE = {
    "speculation −10 %": 0.95,
    "acceptance length −10 %": 0.95,
    "crossover 45 → 105": 0.95,
    "C=10 −15 %": 0.95,
    "C=100 −15 %": 0.95,
    "baseline −10 %": 0.95,
    "both arms −10 %": 0.95,
}
SEVEN_NIGHTS = {"speculation −5 %": 0.97, "baseline −5 %": 0.97}
NAMED_RIGHT = {"baseline −10 %": 0.95, "both arms −10 %": 0.95, "acceptance length −10 %": 0.90, "C=10 −15 %": 0.90}


def of_detection(found: Iterable[Detection], *, short: bool) -> list[Bar]:
    """Return the bars on faults."""
    out = []
    for it in found:
        for limits, value, what in (
            (NIGHT_ONE, it.first_night, "seen on night 1"),
            (SEVEN_NIGHTS, it.seven_nights, "seen within 7 nights"),
            (NAMED_RIGHT, it.named_right, "named right"),
        ):
            if it.fault in limits:
                out.append(at_least(f"{it.fault}: {what}", value, limits[it.fault], it.runs, short=short))
    return out


def of_coverage(found: Sequence[Coverage], runs: int, *, short: bool) -> list[Bar]:
    """Return the bars on the crossover's interval, with their negative control."""
    worst = min(found, key=lambda it: it.covers)
    resampled = [it.bootstrap for it in found if it.bootstrap is not None]
    out = [
        at_least(f"coverage, worst cell ({worst.case}, {worst.noise})", worst.covers, 0.92, runs, short=short),
        at_least("coverage, mean", float(np.mean([it.covers for it in found])), 0.95, runs * len(found), short=short),
        at_most("falsely called multiple", max(it.called_multiple for it in found), 0.01, runs, short=short),
    ]
    if resampled:
        name = "negative control: coverage of a bootstrap over windows"
        out.append(Bar(name=name, value=float(np.mean(resampled)), limit=0.80, at_most=True))
    return out


def of_noisy(found: NoisyNight, runs: int, *, short: bool) -> list[Bar]:
    """Return the bars on a shaking node."""
    return [
        at_most("noisy night fails", found.fails, 0.03, runs, short=short),
        at_least("noisy night is inconclusive", found.inconclusive, 0.90, runs, short=short),
        at_least("second noisy night in a row fails as environment", found.environment, 0.95, runs, short=short),
    ]


def table(years: Sequence[Years], found: Sequence[Detection], covered: Sequence[Coverage], bars: Sequence[Bar]) -> str:
    """Return the tables of the README, in Markdown."""
    parts = [_years_table(years), _detection_table(found), _coverage_table(covered), _bars_table(bars)]
    return "\n\n".join(parts)


def _years_table(years: Sequence[Years]) -> str:
    head = (
        "| unchanged nights | simulated years | false alarms a year, tonight's gates | whole gate "
        "| inconclusive a year | nights with a second block | launches a night |\n"
        f"|{' --- |' * 7}"
    )
    rows = [
        f"| {y.noise} noise, {y.case} | {y.years:.0f} | {y.tonight:.2f} | {y.whole:.2f} | {y.inconclusive:.1f} "
        f"| {100 * y.second_blocks:.0f} % | {y.launches:.1f} |"
        for y in years
    ]
    return "\n".join([head, *rows])


def _detection_table(found: Sequence[Detection]) -> str:
    head = "| fault (middle noise) | seen on night 1 | within 7 nights | cause named right |\n| --- | --- | --- | --- |"
    rows = [
        f"| {it.fault} | {100 * it.first_night:.0f} % | {100 * it.seven_nights:.0f} % | "
        f"{f'{100 * it.named_right:.0f} %' if it.first_night else '–'} |"
        for it in found
    ]
    return "\n".join([head, *rows])


def _coverage_table(found: Sequence[Coverage]) -> str:
    noises = list(dict.fromkeys(it.noise for it in found))
    head = f"| true crossover, 95 % interval of a record | {' | '.join(noises)} |\n| --- |{' --- |' * len(noises)}"
    by_case = {(it.case, it.noise): it.covers for it in found}
    rows = [
        f"| {case} | {' | '.join(f'{100 * by_case[case, noise]:.0f} %' for noise in noises)} |"
        for case in dict.fromkeys(it.case for it in found)
    ]
    return "\n".join([head, *rows])


def _bars_table(bars: Sequence[Bar]) -> str:
    rows = [
        f"| {bar.name} | {bar.shown(bar.value)} | {'≤' if bar.at_most else '≥'} {bar.shown(bar.limit)} |"
        + ("" if bar.cleared else " **not cleared** |")
        for bar in bars
    ]
    return "\n".join(["| promise | measured | bar |", "| --- | --- | --- |", *rows])
