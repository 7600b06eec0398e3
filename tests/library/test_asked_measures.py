"""A question about a weight is not answered with a temperature."""

import pytest

from localctx.library.wording.asked_measures import has_measure, has_other_measure


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("How heavy is the kettle?", "80 °C", True),
        ("How heavy is the kettle?", "780 g", False),
        ("How heavy is the kettle?", "1.1 kg at 80 °C", False),
        ("How heavy is the kettle?", "very heavy", False),
        ("How heavy is the kettle?", "2 pounds", False),
        ("How much does the kettle cost?", "40 pounds", False),
        ("How heavy is the kettle?", "two", False),  # without a unit
        ("How much memory do I need?", "half a billion", True),
        ("How much memory do I need?", "80 °C", True),
        ("How much memory do I need?", "4 GB", False),
        ("How much memory do I need?", "eight gigabytes", False),
        ("How much memory do I need?", "as much as you have", False),
        ("How much RAM is needed?", "512 MiB", False),
        ("How much does it cost?", "26 modules of 400 W", True),
        ("How much does it cost?", "$49", False),
        ("How much do I have to pay on order?", "30 %", False),
        ("How many modules does it have?", "9.6 kWp", True),
        ("How many modules does it have?", "24", False),
        ("How many onions do I need?", "800 g", False),
        ("How many euros is that?", "24 euros", False),
        ("How often does he take it?", "100 mg", True),
        ("How often does he take it?", "100 mg twice a day", False),
        ("How often does he take it?", "every 12 hours", False),
        ("How long does it take?", "3 h 25", False),
        ("How long is the cable?", "75 cm", False),
        ("How long is the lease?", "890 euros", True),
        ("Wie groß ist die Wohnung?", "890,00 Euro", True),
        ("Wie groß ist die Wohnung?", "64,5 m²", False),
        ("Combien coûte l'entrée ?", "10 minutes", True),
        ("What does he take?", "100 mg", False),  # no kind is asked for
    ],
)
def test_a_quantity_of_another_kind_than_asked_for(question, answer, other):
    assert has_other_measure(question, answer) is other


def test_a_sentence_with_a_quantity_of_the_kind_asked_for():
    assert has_measure("How heavy is it?", "It holds 1.2 l and weighs 780 g.")
    assert not has_measure("How heavy is it?", "It holds 1.2 l.")
    assert not has_measure("Who made it?", "It weighs 780 g.")
