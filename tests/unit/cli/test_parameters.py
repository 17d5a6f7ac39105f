"""Durations and times of day, as people write them."""

import time
from datetime import datetime, timedelta

import click
import pytest

from apps.cli.parameters import (
    Duration,
    rate_of,
    read_coming_moment,
    read_end,
    read_past_moment,
    read_positive,
)

ANY = Duration(min=0, min_open=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("90s", 90), ("15m", 900), ("15min", 900), ("1h", 3600),
     ("1h30m", 5400), ("1h 30m", 5400), ("2d", 172_800), ("0.5h", 1800), ("1e3", 1000)],
)  # fmt: skip
def test_durations(text, seconds):
    assert ANY.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "h", "1x", "1h30", "-1h", "1:30", "one hour"])
def test_what_is_no_duration(text):
    with pytest.raises(click.BadParameter, match="is no duration: write seconds, or as"):
        ANY.convert(text, None, None)


@pytest.mark.parametrize("text", ["0", "0h", "-5", "nan", "inf"])
def test_durations_out_of_range(text):
    with pytest.raises(click.BadParameter):
        ANY.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-40", "-40 must be greater than 0"),
        ("0", "0 must be greater than 0"),
        ("nan", "nan is not a finite number"),
        ("inf", "inf is not a finite number"),
        ("x", "'x' is not a number"),
    ],
)
def test_a_refused_rate_names_the_bound_that_counts(text, why):
    with pytest.raises(click.BadParameter) as refused:
        read_positive(None, None, text)
    assert refused.value.message == why


def test_where_0_counts_a_refused_rate_says_so():
    assert rate_of("0") == 0.0
    with pytest.raises(click.BadParameter, match=r"^-40 must not be negative$"):
        rate_of("-40")


def test_a_time_of_day_is_the_next_one():
    now = datetime.now()
    for hours in (-3, 3):
        wanted = (now + timedelta(hours=hours)).replace(second=0, microsecond=0)
        if wanted <= now:
            wanted += timedelta(days=1)
        told = read_coming_moment(None, None, f"{wanted:%H:%M}")
        assert datetime.fromtimestamp(told) == wanted
    assert read_coming_moment(None, None, None) is None
    at = "2026-12-01T08:00"
    assert read_coming_moment(None, None, at) == datetime.fromisoformat(at).timestamp()
    for wrong in ("25:00", "tomorrow", "2026-13-01"):
        with pytest.raises(click.BadParameter, match="is no time: write 18:00, 2026-12-01T08:00"):
            read_coming_moment(None, None, wrong)


@pytest.mark.parametrize(
    ("start", "end", "expected", "warned"),
    [
        ("2030-05-01T18:00", "17:00", "2030-05-02T17:00", "on 2030-05-02, 23 h 0 min after"),
        ("2030-05-01T22:00", "06:00", "2030-05-02T06:00", "on 2030-05-02, 8 h 0 min after"),
        ("2030-05-01T08:00", "09:30", "2030-05-01T09:30", ""),
        ("2030-05-01T18:00", "2030-05-02T17:00", "2030-05-02T17:00", ""),
    ],
)
def test_an_end_is_the_first_after_the_start(capsys, start, end, expected, warned):
    context = click.Context(click.Command("reserve"))
    context.params["start"] = datetime.fromisoformat(start).timestamp()
    assert read_end(context, None, end) == datetime.fromisoformat(expected).timestamp()
    told = capsys.readouterr().err
    assert warned in told
    assert bool(told) == bool(warned)


@pytest.mark.parametrize("zone", ["Z", "+05:30", ""])
def test_a_time_of_day_has_the_day_that_its_zone_has(zone):
    for hours in range(24):
        text, before_s = f"{hours:02}:00{zone}", time.time()
        coming = read_coming_moment(None, None, text)
        past = read_past_moment(None, None, text)
        after_s = time.time()
        assert before_s < coming <= after_s + 86_400
        assert before_s - 86_400 < past <= after_s
