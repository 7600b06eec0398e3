"""How the places of an answer are named: each apart from the others, and an extract as what it is."""

import re

import pytest

from localctx.store.chats import Message
from localctx.ui.answers.answer_card import HOW_WORKED_OUT, CardContext, card
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


def links(shown: str) -> list[str]:
    found = re.findall(r"<button[^>]*lc-open-source[^>]*>(.*?)</button>", shown)
    return [re.sub("<.*?>", "", link).strip(" ↗") for link in found]


def test_each_page_is_linked_once_and_each_document_named_once():
    report = "Herons fish here. Storks do not. Ducks swim by. Geese fly on. Swans sleep. Gulls cry."
    starts = ("Herons fish", "Storks do", "Ducks swim", "Geese fly", "Swans sleep", "Gulls cry")
    pages = ("1", "1", "2", "3", "2", "1")
    citations = [cited(report, start) | {"page": page} for start, page in zip(starts, pages, strict=True)]
    citations.append(citations[0] | {"document": "e", "name": "annex.pdf"})
    shown = card(answer("Six birds.", citations), CardContext(lambda _: report))
    name = "news-from-nowhere.txt"
    assert links(shown) == [f"{name} · p. 1", f"{name} · p. 2", "p. 3", "annex.pdf · p. 1"]


def rows_of_a_sheet(count: int, sheet: str | None = "Invoices", **stats) -> str:
    """The card of a computed answer that cites ``count`` rows of a sheet."""
    lines = [f"Invoice: {n}; Paid: no" for n in range(2, 2 + count)]
    text = "\n\n".join(lines)
    citations = [
        cited(text, line) | {"name": "a.xlsx", "page": f"row {n}", "heading": sheet} for n, line in enumerate(lines, 2)
    ]
    return card(answer("37 of 200 rows.", citations, **stats), CardContext(lambda _: text))


def test_rows_of_a_sheet_are_grouped_and_all_that_match_are_counted():
    shown = rows_of_a_sheet(10, query="SELECT COUNT(*) FROM t", rows=37)
    assert links(shown) == ["a.xlsx · row 2, Invoices", *map(str, range(3, 11))]
    list_ = re.search('<ul class="lc-places".*?</ul>', shown)[0]
    assert "a.xlsx · Invoices: rows 3, 4, 5, 6, 7, 8, 9, 10" in re.sub("<.*?>", "", list_)
    assert "<li>and 28 more</li>" in list_
    assert 'aria-label="row 3, Invoices"' in list_


def test_rows_of_a_file_without_sheets_are_grouped_and_a_single_row_is_named():
    assert "a.xlsx · rows 3, 4" in re.sub("<.*?>", "", rows_of_a_sheet(3, None, rows=3))
    assert " more</li>" not in rows_of_a_sheet(3, None, rows=3)
    assert links(rows_of_a_sheet(2, rows=2)) == ["a.xlsx · row 2, Invoices", "a.xlsx · row 3, Invoices"]


def test_the_query_is_folded_below_the_answer():
    query = "SELECT COUNT(*) FROM t WHERE \"Paid\" = 'no'"
    shown = rows_of_a_sheet(2, query=query, rows=2)
    folded = re.search('<details class="lc-query">.*?</details>', shown)[0]
    assert HOW_WORKED_OUT in folded
    assert "SELECT" not in shown.replace(folded, "")
    older = answer(f"100 rows match (100 of 200 rows).\n\nQuery: `{query}`", [], query=query)
    assert card(older, CardContext(lambda _: None)).count("SELECT") == 1


def test_quotations_of_one_page_are_above_one_link():
    report = "Herons fish here. Storks do not."
    said, sources = "Herons fish. Storks do not.", [cited(report, s) | {"page": "4"} for s in report.split(". ")]
    sentences = [
        {"start": start, "end": end, "support": "supported", "number": number, "source": source}
        for number, (start, end), source in zip((1, 2), ((0, 12), (13, 27)), sources, strict=True)
    ]
    shown = card(answer(said, sources, sentences=sentences), CardContext(lambda _: report))
    assert (shown.count("</blockquote>"), shown.count("<figcaption>")) == (2, 1)


# Summaries


def summarized(said: str, mode: str, *ends: int, stopped: str = "eos") -> str:
    """The card of a summary with a citation of the tale for each sentence that ends at one of ``ends``."""
    starts = [0, *(end + 1 for end in ends)]
    quotes = [said[start:end] for start, end in zip(starts, ends, strict=False)]
    citations = [
        (cited(TALE, quote) if quote in TALE else cited(TALE, TALE[:60])) | {"at": end}
        for quote, end in zip(quotes, ends, strict=True)
    ]
    m = Message(2, "c", 1, "assistant", said, citations, {"mode": mode, "sentences": []}, stopped, 0.0)
    return card(m, CardContext(lambda _: TALE))


def test_each_extracted_sentence_is_in_a_line_of_its_own_with_a_number_that_opens_its_place():
    sentences = [TALE.split(". ")[i] + "." for i in (3, 400)]
    shown = summarized(" ".join(sentences), "extract", len(sentences[0]), len(" ".join(sentences)))
    assert "Key sentences from the document" in shown
    items = re.findall("<li>(.*?)</li>", shown.partition("lc-actions")[0])
    assert [item.partition('<span class="lc-joined">')[0] for item in items] == sentences
    opened = [int(start) for start in re.findall(r'lc-number[^>]*data-start="(\d+)"', shown)]
    assert opened == [TALE.index(sentence) for sentence in sentences]
    assert "<blockquote>" not in shown, "no sentence is shown twice"


def test_a_written_summary_says_so_and_has_numbers_where_a_passage_is_known():
    said = "A miller sells horses for six hundred years. Nobody knows why."
    shown = summarized(said, "summarize", len("A miller sells horses for six hundred years."))
    assert "Written by the model: check it." in shown
    assert shown.count("lc-number") == 1


def test_an_answer_cut_at_the_limit_ends_with_a_whole_sentence_and_says_so():
    cut = Message(2, "c", 1, "assistant", "The miller sold it. The stran", [], {"mode": "full"}, "length", 0.0)
    shown = card(cut, CardContext(lambda _: TALE))
    assert "The stran" not in shown
    assert "The miller sold it." in shown
    assert "Shortened to its last whole sentence" in shown


# Yes and no


def test_a_yes_whose_clause_only_repeats_the_question_is_a_yes_above_the_quotation():
    text = "A small dog may be kept. Birds may not."
    m, context = answer("Yes, keep a dog.", [cited(text, "A small dog may be kept.")]), CardContext(lambda _: text)
    shown = card(m, context, question="May I keep a dog?")
    assert '<div class="lc-said lc-short"><p>Yes.</p>' in shown
    assert "keep a dog" not in shown
    assert "<blockquote>A small dog may be kept.</blockquote>" in shown
    assert "Yes, keep a dog." in card(m, context, question="What about animals?")


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
    asked = {"documents": {"d": "the tale"}}
    shown = card(answer(said, citations, asked=asked), CardContext(lambda _: TALE))
    assert "lc-missing" in shown
    assert "I found no clear answer in the tale." in shown
    assert "In the year 1010" not in shown.partition("The closest passage:")[0]


def test_sources_of_the_rows_of_a_table_leave_it_a_table():
    said = "| What | Euros |\n|---|---|\n| Rent | 920 |\n| Repairs | 80 |"
    source, rows = cited(TALE, TALE[:60]), [(0, 26), (27, 41), (42, 58)]
    sentences = [
        {"start": start, "end": end, "support": support, "number": number, "source": source if number else None}
        for (start, end), support, number in zip(
            rows, ("supported", "unsupported", "supported"), (1, None, 2), strict=True
        )
    ]
    shown = card(answer(said, [], sentences=sentences), CardContext(lambda _: TALE))
    assert (shown.count("<table>"), shown.count("<tr>"), shown.count("<td>")) == (1, 3, 4)
    assert re.search(r'<td>80\s?<span class="lc-joined">\u2060<button[^>]*lc-number', shown)


def test_every_numbered_source_is_quoted_and_from_the_fourth_on_folded():
    names = [f"{letter}.md" for letter in "abcde"]
    text, sentences = "\n".join(f"{name}: £{n}." for n, name in enumerate(names, 1)), []
    source = "".join(f"The rent is £{n}. " for n in range(1, 6))
    citations = [cited(source, f"The rent is £{n}.") | {"name": name} for n, name in enumerate(names, 1)]
    for n, line in enumerate(text.split("\n"), 1):
        start = text.index(line)
        sentence = {"start": start, "end": start + len(line), "support": "supported", "number": n}
        sentences.append({**sentence, "source": citations[n - 1]})
    shown = card(answer(text, citations, sentences=sentences), CardContext(lambda _: source))
    before, _, folded = shown.partition('<details class="lc-further">')
    assert (before.count("<blockquote"), folded.count("<blockquote")) == (3, 2)
    assert "2 more quotations" in folded
