"""What bench/clips.py says of how often something was."""

import clips


def test_a_share_has_its_interval() -> None:
    assert clips.share(9, 10) == "90.0 (59.6 to 98.2) % of 10"


def test_of_nothing_there_is_no_share() -> None:
    assert clips.share(0, 0) == "none of 0"
