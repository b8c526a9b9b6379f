"""The saved nights of each gated pair: no server, no hardware. `pytest -m history` reads a thousand in seconds."""

from collections.abc import Sequence

import pytest

from fixtures.analysis.arms import Summary, summarise
from fixtures.analysis.gate import Rules, judge
from fixtures.analysis.record import Record
from fixtures.analysis.verdicts import Gate, Outcome, Verdict
from fixtures.histories import Reading, read_as
from fixtures.histories.events import Event, Kind
from fixtures.histories.trends import Trend, trend
from fixtures.options import settings_of
from fixtures.outcomes import expect_held
from fixtures.records import history_folder, record_of
from fixtures.reports.pairs import cusum_sentence
from fixtures.reports.terminal import trend_lines

pytestmark = pytest.mark.history

NIGHTS = 365
"""Nights that a trend shows."""
RECENT = 30
"""Nights back to which a change asks for somebody's word; older ones are shown."""


def test_saved_nights_can_be_read(profile: str, request: pytest.FixtureRequest) -> None:
    """No saved night is damaged: one that is would otherwise be missing from every comparison."""
    reading = read(request.config, profile)

    if reading.damaged:
        named = [f"{path}: {reason}" for path, reason in reading.set_aside if path in reading.damaged]
        pytest.fail("\n".join([*named, "Restore them, or delete them: they are not used"]), pytrace=False)


def test_trend(
    profile: str,
    variant: str,
    workload: str,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The speed-up has not stepped or crept down in the last month without a new record."""
    reading = read(request.config, profile)
    found = trend(reading.nights, (variant, workload), last=NIGHTS)
    if found is None:
        pytest.skip(f"{len(reading.nights)} saved nights of {profile}: a trend needs two")
    record = record_of(request.config, settings_of(request.config).profiles[profile])

    with capsys.disabled():
        print("\n" + "\n".join([*trend_lines(found), *cusum(reading.nights, record, (variant, workload))]))

    fell = [event for event in fresh(found, record) if event.total < 0]
    if fell:
        drift_fails = settings_of(request.config).drift_fails
        outcome = Outcome.REGRESSED if drift_fails else Outcome.INCONCLUSIVE
        expect_held(
            Verdict(
                gate=Gate.DRIFT,
                variant=variant,
                workload=workload,
                outcome=outcome,
                reason="; ".join(map(str, fell)),
                next_step='If it is meant to stay: pytest --replay=NIGHT.json --record --reason "…"',
            )
        )


def read(config: pytest.Config, profile: str) -> Reading[Summary]:
    """Return the saved nights of *profile*, summarised."""
    settings = settings_of(config)
    return read_as(history_folder(settings, settings.profiles[profile]), profile, summarise)


def fresh(found: Trend, record: Record | None) -> list[Event]:
    """Return the lasting changes of the last month that are not in the record yet."""
    since = max(found.nights[-RECENT:][0], record.recorded_at if record else "")
    lasting = [event for event in found.events if event.kind in (Kind.STEP, Kind.CREEP)]
    return [event for event in lasting if (event.until or event.night) > since]


def cusum(nights: Sequence[Summary], record: Record | None, key: tuple[str, str]) -> list[str]:
    """Return how near to an alarm the newest night is, if there is a record to measure it by."""
    if record is None:
        return []
    judgement = judge(nights[-1], record, nights[:-1], Rules(pairs=(key,)))
    sentence = cusum_sentence(judgement.drifts.get(" on ".join(key)))
    return [f"  {sentence}"] if sentence else []
