"""A question about a height is not answered with a length."""

import pytest

from localctx.library.wording.dimensions import has_dimension, has_other_dimension

CRACK = "The crest has a crack 3.4 metres long."


@pytest.mark.parametrize(
    ("question", "answer", "cited", "other"),
    [
        ("How high is the crest of the weir?", "3.4 metres", CRACK, True),
        ("What is the height of the crest?", "The crest is 3.4 metres.", CRACK, True),
        ("How long is the crack in the crest?", "3.4 metres", CRACK, False),
        ("How tall is the tower?", "12 m", "The tower has a height of 12 m.", False),
        ("How wide is the tower?", "12 m", "The tower has a height of 12 m.", True),
        ("How wide is the tower?", "12 m", "The tower, 12 m in height, is old.", True),
        ("How wide is the room?", "4 m", "The room is 5 m long and 4 m wide.", False),
        ("How wide is the room?", "5 m", "The room is 5 m long and 4 m wide.", True),
        ("How wide is the room?", "5 m", "The room is 5 m long and 5 m wide.", False),
        ("How wide is the room?", "4 m", "The room is 5 m long and 4 m across.", False),  # neither is it the length
        ("How wide is the tower?", "12 m", "The tower has a height of about 12 m.", True),
        ("How high is the weir?", "3.4 metres", "The crest of the weir is at 3.4 metres.", False),  # none is named
        ("How far is the weir?", "3.4 metres", CRACK, False),  # the question asks for none
        ("How long is the lease?", "12 months", "The lease is 12 months long.", False),  # no length
        ("How large is the room?", "5 m", "The room is 5 m long.", False),  # no dimension is asked for
        ("How high and wide is it?", "3.4 metres", CRACK, False),  # several are asked for
        ("How high is the rent?", "900 euros", "The rent is 900 euros; the hall is 9 m long.", False),
        ("Wie hoch ist das Wehr?", "3,4 Meter", "Der Riss ist 3,4 Meter lang.", True),
        ("Wie hoch ist das Wehr?", "3,4 m", "Das Wehr ist 3,4 m hoch.", False),
        ("Quelle est la hauteur du mur ?", "2 mètres", "Le mur fait 2 mètres de haut.", False),
        ("Quelle est la largeur du mur ?", "2 mètres", "Le mur fait 2 mètres de haut.", True),
        ("¿Qué altura tiene el muro?", "2 metros", "El muro mide 2 metros de largo.", True),
        ("墙有多高?", "2米", "墙长2米。", True),
        ("How much RAM do I need?", "5 GB", "You need 4 GB of memory and 5 GB of disk.", True),
        ("How much memory do I need?", "4 GB", "You need 4 GB of memory and 5 GB of disk.", False),
        ("墙有多高?", "2米", "墙高2米。", False),
    ],
)
def test_a_length_of_another_dimension_than_asked_for(question, answer, cited, other):
    assert has_other_dimension(question, answer, cited) is other


@pytest.mark.parametrize(
    ("question", "sentence", "has"),
    [
        ("How wide is the apron?", "The apron is 12 metres long and 6 metres wide.", True),
        ("How high is the apron?", "The apron is 12 metres long and 6 metres wide.", False),
        ("Who built the apron?", "The apron is 12 metres long.", False),
        ("How wide is the apron?", "The apron is wide.", False),
        ("How much RAM do I need?", "You need 4 GB of memory and 5 GB of disk.", True),
    ],
)
def test_a_sentence_with_the_dimension_asked_for(question, sentence, has):
    assert has_dimension(question, sentence) is has
