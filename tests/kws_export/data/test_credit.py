"""Whom to name, as a card's table and a model's file have it."""

import pytest

from kws_export.data.credit import Credit, licence_links


def test_a_note_of_a_users_own_is_parted_into_the_columns_of_a_card() -> None:
    note = "recordings by 50 people (a part): Picovoice, wake-word-benchmark (Apache-2.0)"
    found = Credit.parse(note)
    assert found == Credit("recordings by 50 people (a part)", "Apache-2.0", "Picovoice, wake-word-benchmark")
    assert str(found) == note


@pytest.mark.parametrize("note", ["CC BY/4.0", "mine (CC0)", "my: own", "a: b (c) d", "x: y ()"])
def test_of_any_other_note_nothing_is_lost(note: str) -> None:
    assert Credit.parse(note).name == note


def test_of_the_licences_that_are_named_the_texts_are_linked() -> None:
    links = licence_links([Credit("a", "CC BY 3.0, public domain", "b"), Credit("c", "Apache-2.0", "d")])
    assert "licenses/by/3.0/" in links
    assert "LICENSE-2.0" in links
    assert "by/4.0" not in links
