"""Fuzzing: 40 s of processor time with all other tests, the same every time; for hours by hand, with

    python -m pytest tests/fuzz -n0 --hypothesis-profile=hours -k decoder

What it finds is made small, kept in .hypothesis, and tried first the next time; an input that found a fault becomes a
test of its own beside what it broke, and one of the seeds.
"""

import hypothesis
from hypothesis import HealthCheck

hypothesis.settings.register_profile(
    "hours", max_examples=200_000, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
