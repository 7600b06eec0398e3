"""How the places of an answer are named: each apart from the others, and an extract as what it is."""

import re

import pytest

from localctx.store.chats import Message
from localctx.ui.answers.answer_card import CardContext, card
from localctx.ui.answers.evidence import place_of

YEARS = range(1000, 1600)
TALE = "".join(f"In the year {year} the miller of the weir sold his horse to a stranger. " for year in YEARS)


def cited(text: str, sentence: str) -> dict:
    start = text.index(sentence)
    found = {"document": "d", "name": "news-from-nowhere.txt", "page": None, "heading": None, "start": start}
    return found | {"end": start + len(sentence), "quote": sentence, "source": "passage", "weight": 0.5}


def answer(text: str, citations: list[dict], **stats) -> Message:
    return Message(2, "c", 1, "assistant", text, citations, stats, "eos", 0.0)


def test_places_of_a_book_without_chapters_say_how_far_in_they_are():
    sentences = [f"In the year {year} the miller of the weir sold his horse" for year in range(1010, 1600, 75)]
    labels = [place_of(cited(TALE, sentence), lambda _: TALE).label for sentence in sentences]
    assert len(set(labels)) == len(labels) == 8
    shares = [int(re.fullmatch(r"news-from-nowhere\.txt · (\d+) % in", label)[1]) for label in labels]
    assert shares == sorted(shares)


def test_places_with_one_name_are_one_link_with_numbers():
    short = "Herons fish here. Storks do not. Ducks swim by. Geese fly on."
    citations = [cited(short, sentence) for sentence in ("Herons fish", "Storks do", "Ducks swim", "Geese fly")]
    shown = card(answer("Four birds.", citations), CardContext(lambda _: short))
    links = re.findall(r"<button[^>]*lc-open-source[^>]*>(.*?)</button>", shown)
    assert [re.sub("<.*?>", "", link).strip(" ↗") for link in links] == ["news-from-nowhere.txt"] * 2 + ["2", "3"]


def test_sentences_that_were_only_chosen_are_called_key_sentences():
    first, second = TALE.split(". ")[3] + ".", TALE.split(". ")[400] + "."
    said, at, sentences = f"{first} {second}", 0, []
    for number, sentence in enumerate((first, second), 1):
        source = cited(TALE, sentence)
        end = at + len(sentence)
        sentences.append({"start": at, "end": end, "support": "supported", "number": number, "source": source})
        at = end + 1
    context = CardContext(lambda _: TALE)
    assert "Key sentences from the document" in card(answer(said, [], mode="extract", sentences=sentences), context)
    assert "Key sentences" not in card(answer(said, [], mode="full", sentences=sentences), context)


@pytest.mark.parametrize("said", ["The document does not say.", "No, the document does not say.", "Not stated"])
def test_what_the_document_does_not_say_has_the_closest_passage_below_and_no_quotation(said):
    citations = [cited(TALE, "In the year 1010 the miller of the weir sold his horse")]
    shown = card(answer(said, citations), CardContext(lambda _: TALE, "the tale"))
    assert "lc-missing" in shown
    assert "I did not find this in the tale." in shown
    assert "In the year 1010" not in shown.partition("The closest passage:")[0]
