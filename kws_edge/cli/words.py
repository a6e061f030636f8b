"""Words on the command line."""


def word_list(words: str | None) -> list[str] | None:
    """The words of `--words yes,no`; None for all."""
    return None if words is None else [word.strip() for word in words.split(",")]
