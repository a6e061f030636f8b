"""Find words that sound alike: a pronouncing dictionary, a distance between pronunciations, near-misses."""

from kws_export.phonemes.dictionary import Dictionary
from kws_export.phonemes.distance import distances, symbols
from kws_export.phonemes.near_misses import NearMiss, near_misses

__all__ = ["Dictionary", "NearMiss", "distances", "near_misses", "symbols"]
