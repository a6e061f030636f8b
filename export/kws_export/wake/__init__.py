"""Make a wake word model from a text, with or without recordings.

`sayings` has the word and what sounds like it spoken, `material` gathers all sounds, `windows` draws what the network
is shown, `held_out` judges it on streams, `training` trains it, `release` calibrates and writes it; `project` does one
after the other in a folder that a stopped run goes on from.
"""
