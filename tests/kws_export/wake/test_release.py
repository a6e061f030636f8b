"""What a wake word's threshold is chosen by."""

import pytest

from kws_edge.stream.settings import StreamSettings
from kws_edge.tuning.evaluation import StreamReport
from kws_edge.tuning.points import Point
from kws_export.wake.release import _all_speeds

HOUR = 3600.0


def test_hours_of_sounds_do_not_dilute_the_rate_on_speech() -> None:
    point = Point(
        StreamSettings({"entropy": 0.5}),
        StreamReport(HOUR),
        {
            "speech": StreamReport(HOUR, false_accepts=3),
            "speech, faster and higher": StreamReport(HOUR, false_accepts=1),
            "sounds": StreamReport(9 * HOUR),
            "sounds, faster and higher": StreamReport(9 * HOUR),
        },
    )
    assert _all_speeds(point).false_accepts_per_hour == pytest.approx(2.0)
