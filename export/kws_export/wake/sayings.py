"""What the voices say: the wake words themselves, and phrases that sound like them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kws_edge.text import folder_name
from kws_export.phonemes import Dictionary, near_misses
from kws_export.voices import Engine, Utterance
from kws_export.voices.casting import cast
from kws_export.voices.espeak import pronounce, transcribe
from kws_export.voices.files import write_renditions
from kws_export.wake.settings import WakeSettings, WakeWord

SHARES = {"kokoro": 1.0, "festival": 0.1, "flite": 0.2, "espeak": 0.2}
"""Takes by each engine, in parts of `WakeSettings.takes`: those with more voices have more to say."""
VARIED = 0.6
"""Of the takes of a word: those with an accent or another intonation, without which voices are too much alike."""
NEAR_SHARES = {"kokoro": 2, "festival": 1, "flite": 2, "espeak": 2}
"""Takes of each near-miss."""
BESIDE = ("there", "you", "the", "what", "everyone", "google", "mister", "now")
"""Words that are put in the place of the rest of an English phrase; other languages take their most frequent ones."""


def spoken_words(
    settings: WakeSettings, engines: Sequence[Engine], folder: Path, step: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, Path]]:
    """Have every word said: its label and the file of each take. Takes that are there are kept."""
    for i, word in enumerate(settings.words):
        for engine in engines:
            utterances = word.utterances(settings.language)
            each = max(1, round(settings.takes * SHARES[engine.name] / len(utterances)))
            renditions = cast(engine, utterances, each, [settings.seed, i], varied=VARIED)
            for path in write_renditions(engine, renditions, folder / folder_name(word.text)):
                step()
                yield word.text, path


def spoken_near_misses(
    phrases: Sequence[str],
    settings: WakeSettings,
    engines: Sequence[Engine],
    folder: Path,
    step: Callable[[], None] = lambda: None,
) -> Iterator[Path]:
    """Have the near-misses of all words (`similar_phrases`) said: the file of each take."""
    utterances = [Utterance(text, "", settings.language) for text in phrases]
    for engine in engines:
        for path in write_renditions(
            engine, cast(engine, utterances, NEAR_SHARES[engine.name], [settings.seed]), folder
        ):
            step()
            yield path


def word_takes(settings: WakeSettings, engines: Sequence[Engine]) -> int:
    """How many takes `spoken_words` makes, about."""
    return sum(max(1, round(settings.takes * SHARES[engine.name])) for engine in engines) * len(settings.words)


def near_takes(phrases: int, engines: Sequence[Engine]) -> int:
    """How many takes `spoken_near_misses` makes."""
    return phrases * sum(NEAR_SHARES[engine.name] for engine in engines)


def similar_phrases(settings: WakeSettings) -> list[str]:
    """What is not to be taken for one of the words, `near_misses` for each: similar words, and parts of a phrase."""
    dictionary = Dictionary.load(settings.language)
    said = {
        (word, utterance.text): pronounce(utterance)
        for word in settings.words
        for utterance in word.utterances(settings.language)
    }
    texts = [f" {text.casefold()} " for word in settings.words for text in (word.text, *word.said)]
    phrases: dict[str, None] = {}
    for word in settings.words:
        ipa = said[word, word.said[0]]
        others = tuple(other for which, other in said.items() if which != (word, word.said[0]))
        found = [miss.text for miss in near_misses(ipa, dictionary, settings.near_misses, others)]
        parts = _parts(word, dictionary, settings.near_misses // 2)
        keep = settings.near_misses - len(parts)
        phrases |= dict.fromkeys([*parts, *found[: max(keep, 0)]])
    return [phrase for phrase in phrases if not any(text in f" {phrase.casefold()} " for text in texts)]


def _parts(word: WakeWord, dictionary: Dictionary, count: int) -> list[str]:
    """Of a phrase: each word alone, and the phrase with one word replaced by one like it, or by any other."""
    words = word.said[0].split()
    if len(words) == 1:
        return []
    english = dictionary.language.startswith("en")
    any_other = list(BESIDE) if english else list(dictionary.words[50:58])
    phrases = list(words)
    for i, ipa in enumerate(transcribe(words, dictionary.language)):
        similar = [miss.text for miss in near_misses(ipa, dictionary, max(2, count // (2 * len(words))))]
        others = any_other[: max(2, count // (3 * len(words)))]
        phrases += [" ".join([*words[:i], other, *words[i + 1 :]]) for other in (*similar, *others)]
    return list(dict.fromkeys(phrases))[:count]
