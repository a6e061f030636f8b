"""The names of the scores, by which answers are withheld: uncertainties, of which lower is surer."""

from typing import Final, Literal, TypeAlias, get_args

Score: TypeAlias = Literal["entropy", "vacuity"]
"""By which a clip's answer is withheld."""
SCORES: Final[tuple[Score, ...]] = get_args(Score)

StreamScore: TypeAlias = Literal["entropy", "vacuity", "both"]
"""By which a stream's answers are withheld; with both, each must hold its own threshold."""
STREAM_SCORES: Final[tuple[StreamScore, ...]] = get_args(StreamScore)
