"""The speech engines, and which of them are installed."""

from collections.abc import Sequence

from kws_edge.errors import DependencyError, SettingError
from kws_export.voices.engine import Engine
from kws_export.voices.espeak import Espeak
from kws_export.voices.festival import Festival
from kws_export.voices.flite import Flite
from kws_export.voices.kokoro import Kokoro

ENGINES: dict[str, type[Engine]] = {"kokoro": Kokoro, "festival": Festival, "flite": Flite, "espeak": Espeak}
"""By name, the most natural first."""


def get_engines(names: Sequence[str] = ("auto",), *, language: str = "en-us", phonemes: bool = False) -> list[Engine]:
    """The engines that are asked for.

    Parameters
    ----------
    names : of engines; "auto" for all that are installed, "none" for no engine.
    language : that they must speak.
    phonemes : whether they must take phonemes.

    Raises
    ------
    SettingError : an unknown name, or an engine that cannot say it.
    DependencyError : an engine named outright is not installed, or "auto" finds none.
    """
    names = list(dict.fromkeys(name.strip() for name in names))  # one that is named twice would say all twice
    if names == ["none"]:
        return []
    automatic = names == ["auto"]
    if unknown := [name for name in names if name not in ENGINES and not automatic]:
        raise SettingError(f"no engine {unknown[0]!r}; expected auto, none, or some of {', '.join(ENGINES)}")
    found, lacking = [], []
    for name in ENGINES if automatic else names:
        engine = ENGINES[name]()
        if missing := engine.missing():
            lacking.append(f"{name}: {missing}")
        elif not engine.voices(language):
            lacking.append(f"{name}: no voice for {language}")
        elif phonemes and not engine.takes_phonemes:
            lacking.append(f"{name}: takes no phonemes")
        else:
            found.append(engine)
    if lacking and (not automatic or not found):
        raise DependencyError(f"cannot speak: {'; '.join(lacking)}")
    return found
