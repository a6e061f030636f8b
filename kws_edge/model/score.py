"""The scores that decide whether an answer is withheld: measures of uncertainty."""

from typing import Final, Literal, TypeAlias, get_args

Score: TypeAlias = Literal["entropy", "vacuity"]
"""By which a clip's answer is withheld."""
SCORES: Final[tuple[Score, ...]] = get_args(Score)

StreamScore: TypeAlias = Literal["entropy", "vacuity", "both"]
"""By which a stream's answers are withheld; with both, each must hold its own threshold."""
STREAM_SCORES: Final[tuple[StreamScore, ...]] = get_args(StreamScore)
