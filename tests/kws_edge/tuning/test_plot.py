"""Trade-off curves as drawings."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from stream_points import point

from kws_edge.errors import SettingError
from kws_edge.tuning.plot import det_plot


def test_a_drawing_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot draw .*det.svg; expected a folder"):
        det_plot([point(5, 0)], point(5, 0), 0.5, tmp_path / "absent" / "det.svg")


def test_more_misses_are_drawn_higher_and_more_false_accepts_further_right(tmp_path: Path) -> None:
    curve = [point(5, 0), point(12, 1), point(20, 10)]
    det_plot(curve, curve[1], 0.5, tmp_path / "det.svg")
    (line,) = ElementTree.parse(tmp_path / "det.svg").getroot().iter("{http://www.w3.org/2000/svg}polyline")
    x, y = np.array([xy.split(",") for xy in line.attrib["points"].split()], float).T
    assert np.all(np.diff(x) > 0)
    assert np.all(np.diff(y) > 0)  # in SVG, downwards
