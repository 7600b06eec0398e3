"""Builds the card of one answer as HTML: the answer, then its evidence, then one row of actions.

The state of a card is ``found`` (the answer has support), ``unsure`` (no passage supports the answer, or only a single
word was quoted), ``missing`` (nothing answers the question) or ``plain`` (there is nothing to check).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from localctx.document_parts import NEAREST, NOT_SURE
from localctx.library.citations.claims import claims_something
from localctx.library.citations.sentence_sources import (
    AnswerSentence,
    check_by_citations,
    checked_summary,
    is_unsure,
    numbered_sources,
)
from localctx.library.wording.no_answer import is_no_answer
from localctx.library.wording.sentences import trim_to_sentence
from localctx.library.wording.small_talk import is_small_talk
from localctx.library.wording.yes_no import without_repeated_clause
from localctx.store.chats import SUMMARY, Message
from localctx.ui.answers import evidence, message_actions
from localctx.ui.answers.compared_card import compared_lines
from localctx.ui.answers.evidence import EvidencePlace, Quotation, TextOf, place_of
from localctx.ui.answers.markdown import UNSUPPORTED, answer_html
from localctx.ui.render import escape
from localctx.workflows.chat.asked_sources import AskedSources

State = Literal["found", "unsure", "missing", "plain"]
SHORT = 140  # characters; answers up to this length are shown in large letters
MAX_QUOTED = 3  # numbered sources quoted below an answer; the others are folded
MAX_NAMED = 3  # documents named in "I did not find this in ..."; more are counted
HOW_WORKED_OUT = "How this was worked out"
EXTRACTED = "Key sentences from the document"
WRITTEN, NUMBERED = "Written by the model: check it.", " Each number opens the passage behind its sentence."
UNREAD = "From the model, not from a document: it may be wrong."
SHORTENED = "Shortened to its last whole sentence: it reached the length limit (Settings: Longest answer)."

OUTDATED = "No longer holds, because the file has changed"


@dataclass(frozen=True)
class CardContext:
    """The facts about a chat that its cards need. ``text_of`` returns the text of a document.

    ``outdated`` maps the id of an answer to lines about the cited text that newer versions of the documents have
    changed.
    """

    text_of: TextOf
    outdated: Mapping[int, Sequence[str]] = field(default_factory=dict)


def card(m: Message, context: CardContext, versions: Sequence[int] = (), last: bool = False, question: str = "") -> str:
    """Returns the card of an answer to a ``question``.

    ``versions`` are the ids of all answers to the question; if there are several, the user can switch between them. The
    ``last`` answer of a chat has more actions.
    """
    full_text = m.text.strip().removesuffix(f"\n\nQuery: `{m.stats.get('query')}`")  # as older answers end
    text = trim_to_sentence(full_text) if m.stopped == "length" else full_text
    checked, (nearest, cited) = [s for s in checked_sentences(m) if s.end <= len(text)], _nearest(m)
    places, rest = _places(checked, cited, context.text_of)
    state = state_of(m, checked, bool(cited), nearest is not None)
    if (brief := without_repeated_clause(text, question)) != text and (places or rest):
        text, checked, places, rest = brief, [], {}, [*places.values(), *rest]
    match state:
        case "missing":
            body = _missing(m, place_of(nearest, context.text_of) if nearest else None)
        case "unsure":
            body = _unsure(text, checked, [*places.values(), *rest])
        case _ if _is_summary(m):
            body = _summary(text, checked, places)
        case _ if m.stats.get("mode") == "compared" and not text.startswith("|"):
            body = compared_lines(text, checked, places, _asked_documents(m) or len(checked))
        case _:
            uncited = max(0, m.stats.get("rows", 0) - len(m.citations))
            body = _title(m) + _found(text or "(empty answer)", checked, places, rest, uncited)
    body += _query(m) + _unread(m, state, question)
    body += f'<p class="lc-quiet">{SHORTENED}</p>' * (m.stopped == "length")
    if changes := context.outdated.get(m.id):
        body += f'<p class="lc-outdated">{OUTDATED}: {escape("; ".join(changes))}. Ask again to get the new answer.</p>'
    row = message_actions.answer_row(m, versions, last, state, _plain(text, checked, places, rest))
    return f'<div class="lc-answer lc-{state}" data-testid="bot">{body}{row}</div>'


def state_of(m: Message, checked: Sequence[AnswerSentence], cited: bool, nearest: bool) -> State:
    """Returns the state of an answer's card.

    ``cited`` says whether the answer has citations, and ``nearest`` whether a nearest passage is shown instead of an
    answer.
    """
    if nearest or m.stopped == "unanswered" or is_no_answer(m.text):
        return "missing"
    supports = {sentence.support for sentence in checked}
    if is_unsure(m.text, supports, any(c["source"] == "quote" for c in m.citations)):
        return "unsure"
    return "found" if cited or "supported" in supports else "plain"


def checked_sentences(m: Message) -> list[AnswerSentence]:
    """Returns the sentences of an answer with their sources.

    Older answers were stored without checked sentences, so their sentences are checked against the citations.
    """
    if m.role != "assistant" or m.stats.get("mode") == "everywhere":
        return []
    if _is_summary(m) and m.citations:
        return checked_summary(m.text.strip(), m.citations)
    if "sentences" in m.stats:
        return [AnswerSentence.from_json(sentence) for sentence in m.stats["sentences"]]
    return check_by_citations(m.text.strip(), m.citations)


def _is_summary(m: Message) -> bool:
    """Returns True for a summary of documents whose citations say at which sentence they belong."""
    return m.stats.get("mode") in ("summarize", "extract") and all("at" in c for c in m.citations)


def _nearest(m: Message) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Returns the nearest passage of an unanswered question, and the answer's citations.

    Older messages store the nearest passage as a citation.
    """
    if m.citations and (m.stopped == "unanswered" or is_no_answer(m.text)):
        return m.citations[0], []
    return m.stats.get("nearest"), m.citations


def _places(
    checked: Sequence[AnswerSentence], cited: Sequence[dict[str, Any]], text_of: TextOf
) -> tuple[dict[int, EvidencePlace], list[EvidencePlace]]:
    """Returns the places of the numbered sources, by number, and the places of all other citations. Overlapping places
    are returned once.
    """
    numbered = {n: place_of(asdict(source), text_of) for n, source in enumerate(numbered_sources(checked), 1)}
    rest = list[EvidencePlace]()
    for place in (place_of(c, text_of) for c in cited):
        if not any(place.overlaps(other) for other in [*numbered.values(), *rest]):
            rest.append(place)
    return numbered, rest


def _missing(m: Message, near: EvidencePlace | None) -> str:
    text = m.text.strip()
    own = m.stats.get("mode") != "compared" and not is_no_answer(text, languages=["en"])
    where = _where(AskedSources.from_stats(m.stats))
    not_found = f"I found no clear answer{where}." if near else f"I did not find this{where}."
    told = escape(text if own and text else not_found)
    closest = f'<div class="lc-near"><p class="lc-told">{NEAREST}:</p>{evidence.quotation(near)}</div>' if near else ""
    return f'<p class="lc-told">{told}</p>{closest}'


def _where(asked: AskedSources | None) -> str:
    """Returns where an answer was looked for, such as " in lease.pdf or annex.pdf"; "" if that is not known."""
    if asked and (asked.library or asked.collection):
        return " in the library" if asked.library else " in the collection"
    *others, last = asked.documents.values() if asked and asked.documents else [""]
    if len(others) >= MAX_NAMED:
        return f" in the {len(others) + 1:,} documents"
    return f" in {' or '.join(filter(None, [', '.join(others), last]))}" if last else ""


def _unsure(text: str, checked: Sequence[AnswerSentence], places: Sequence[EvidencePlace]) -> str:
    said = answer_html(text, checked, lambda _: "") if claims_something(text) else ""
    closest = f'<p class="lc-told">{NEAREST}:</p>{evidence.quotation(places[0])}' if places else ""
    more = evidence.links(places[1:], places[:1])
    return f'<p class="lc-told">{NOT_SURE}</p><div class="lc-said">{said}</div>{closest}{more}'


def summary_body(text: str, citations: Sequence[dict[str, Any]], text_of: TextOf) -> str:
    """Returns a summary as HTML. Each sentence that has a citation in ``citations`` gets a number that opens the cited
    place.
    """
    checked = checked_summary(text, citations)
    return _summary(text, checked, _places(checked, (), text_of)[0])


def _summary(text: str, checked: Sequence[AnswerSentence], places: dict[int, EvidencePlace]) -> str:
    if not checked or not all(s.source and _within(text[s.start : s.end], s.source.quote) for s in checked):
        head = f'<p class="lc-quiet">{WRITTEN}{NUMBERED * bool(checked)}</p>'
        return f'{head}<div class="lc-said">{_numbered(text, checked, places)}</div>'
    sourced = [(s, s.source) for s in checked if s.source]
    names, lines = list(dict.fromkeys(source.name for _, source in sourced)), list[str]()
    for name in names:
        found = [(s, " ".join(source.quote.split())) for s, source in sourced if source.name == name]
        items = "".join(f"<li>{escape(quote)}{_number(s, places)}</li>" for s, quote in found)
        lines.append(f"<h3>{escape(name)}</h3>" * (len(names) > 1) + f"<ul>{items}</ul>")
    return f'<p class="lc-quiet">{EXTRACTED}</p><div class="lc-said">{"".join(lines)}</div>'


def _asked_documents(m: Message) -> int:
    asked = AskedSources.from_stats(m.stats)
    return len(asked.documents) if asked else 0


def _unread(m: Message, state: State, question: str) -> str:
    """Returns a line below an answer that no document was read for; "" for other answers, and for small talk."""
    asked = AskedSources.from_stats(m.stats)
    unread = asked and not (asked.documents or asked.library or asked.collection or is_small_talk(question))
    return f'<p class="lc-quiet">{UNREAD}</p>' if unread and state == "plain" else ""


def _query(m: Message) -> str:
    """Returns the folded query of an answer that was computed over a table, or ""."""
    if not (query := m.stats.get("query")):
        return ""
    return f'<details class="lc-query"><summary>{HOW_WORKED_OUT}</summary><code>{escape(query)}</code></details>'


def _found(
    text: str,
    checked: Sequence[AnswerSentence],
    places: dict[int, EvidencePlace],
    rest: Sequence[EvidencePlace],
    uncited: int = 0,
) -> str:
    ranked: list[tuple[int | None, EvidencePlace]] = [*places.items(), *((None, place) for place in rest)]
    if ranked and len(places) < 2 and claims_something(text) and _within(text, ranked[0][1].text):
        alone = evidence.quotation(ranked[0][1], text, css="lc-alone")
        return alone + evidence.links([place for _, place in ranked[1:]], [ranked[0][1]], uncited)
    several = len(checked) > 1
    said = _said(text, checked, places if several else {})
    quoted = [
        Quotation(place, _of(text, checked, n), n if several else None) for n, place in ranked[: len(places) or 1]
    ]
    shown = evidence.quotations(quoted[:MAX_QUOTED]) + evidence.further_quotations(quoted[MAX_QUOTED:])
    below = evidence.links(rest, [quote.place for quote in quoted], uncited)
    dimmed = any(sentence.support == "unsupported" for sentence in checked)
    return f"{said}{shown}{below}" + f'<p class="lc-quiet">Dimmed: {UNSUPPORTED.lower()}.</p>' * dimmed


def _title(m: Message) -> str:
    return '<p class="lc-quiet">Summary of what was said before</p>' if m.role == SUMMARY else ""


def _within(said: str, quote: str) -> bool:
    return evidence.squeezed(said) in evidence.squeezed(quote)


def _plain(
    text: str, checked: Sequence[AnswerSentence], places: dict[int, EvidencePlace], rest: Sequence[EvidencePlace]
) -> str:
    """Returns an answer as plain text, for copying: the answer with the numbers of its sources, then the sources."""
    said, at = "", 0
    for sentence in checked:
        said += text[at : sentence.end] + (f" [{sentence.number}]" if sentence.number else "")
        at = sentence.end
    cited = [(f"[{n}] ", place) for n, place in places.items()] + [("", place) for place in rest]
    lines = [f"{mark}“{' '.join(place.text.split())}” ({place.label})" for mark, place in cited]
    return "\n\n".join([said + text[at:], *lines]).strip()


def _of(text: str, checked: Sequence[AnswerSentence], number: int | None) -> str:
    """Returns the sentences of an answer that the source ``number`` supports, or the whole answer if there are none."""
    return "\n".join(text[s.start : s.end] for s in checked if s.number == number and number) or text


def _said(text: str, checked: Sequence[AnswerSentence], places: dict[int, EvidencePlace]) -> str:
    css = " lc-short" if len(text) <= SHORT and "\n" not in text and len(checked) < 2 else ""
    return f'<div class="lc-said{css}">{_numbered(text, checked, places)}</div>'


def _numbered(text: str, checked: Sequence[AnswerSentence], places: dict[int, EvidencePlace]) -> str:
    return answer_html(text, checked, lambda sentence: _number(sentence, places))


def _number(sentence: AnswerSentence, places: dict[int, EvidencePlace]) -> str:
    """Returns the number after a supported sentence, as a button that opens the words that support the sentence."""
    if not sentence.number or sentence.number not in places:
        return ""
    place = places[sentence.number]
    attributes = place.attributes.replace('class="', 'class="lc-number ', 1)
    heard = f'<span class="lc-unseen">source </span>{sentence.number}'
    button = f'<button type="button" {attributes} title="{escape(place.label)}">{heard}</button>'
    return f'<span class="lc-joined">\u2060{button}</span>'  # a word joiner, or the number could begin a line by itself
