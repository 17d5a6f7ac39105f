"""Hours of the day may pass midnight, and begin and end at different minutes."""

import pytest

from hydra.hours import Hours


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("02:00-04:30", [120, 269], [0, 119, 270, 1439]),
        ("22:00-04:00", [1320, 1439, 0, 239], [240, 1319]),
        ("00:00-23:59", [0, 1438], [1439]),
    ],
)
def test_minutes(text, inside, outside):
    hours = Hours.parse(text)
    assert all(map(hours.has, inside))
    assert not any(map(hours.has, outside))


@pytest.mark.parametrize(
    "text", ["2:00-04:00", "02:00", "24:00-04:00", "02:60-04:00", "02:00-02:00"]
)
def test_what_is_no_time_of_day_is_refused(text):
    with pytest.raises(ValueError, match=text):
        Hours.parse(text)
