"""Renders the documents of a chat as a checklist in HTML: each has a checkbox, a name, a length and a state."""

from collections.abc import Collection, Sequence

from localctx.document_parts import count_parts
from localctx.store.documents import DocumentRow
from localctx.store.store import Store
from localctx.ui.everyday import about_words
from localctx.ui.render import escape, opener

# A box that the user clicked ignores its attribute "checked" when the list is shown again.
ON_CHANGE = """
element.addEventListener('change', event => {
  window.lcTicked = event.target.value
  trigger('select', { index: 0, value: event.target.value })
})
const tick = () => element.querySelectorAll('input').forEach(box => { box.checked = box.hasAttribute('checked') })
new MutationObserver(tick).observe(element, { attributes: true, childList: true, subtree: true })
"""
CHARACTERS_OF_A_WORD = 6  # rough average for English text, including the space
_NONE_TICKED = '<p role="status" data-none-ticked>No document is ticked.</p>'
_EMPTY = "<p>Drop a document anywhere on this page, or add one from the library.</p>"


def sources(
    store: Store, documents: Sequence[str], ticked: Collection[str], model: str, asked: Collection[str] = ()
) -> str:
    """Returns the checklist of ``documents`` (ids); those in ``ticked`` are ticked.

    If ``model`` has read a document, the list says that it is ready. ``asked`` are the names of files that are
    read for a running answer; those that are no documents of the list yet are listed too.
    """
    rows, read = list(filter(None, map(store.documents.get, documents))), store.caches.prepared_documents(model)
    items = "".join(_source(row, _facts(store, row, read), row.id in ticked) for row in rows)
    coming = [name for name in asked if name not in {row.name for row in rows}]
    items += "".join(_item("", name, "", " checked disabled") for name in coming)
    nothing = _NONE_TICKED if rows and not ticked else ""
    return f'<ul class="lc-source-list">{items}</ul>{nothing}' if items else _EMPTY


def attached(files: Sequence[tuple[str, str, str, bool]]) -> str:
    """Returns the list of the files in the question box. Each of ``files`` is (name, id of the document or "", facts,
    whether it can be read).
    """
    items = "".join(
        _item(document, name, escape(facts), " checked disabled" if readable else " disabled")
        for name, document, facts, readable in files
    )
    return f'<ul class="lc-source-list">{items}</ul>' if items else ""


def file_kind(name: str) -> str:
    """Returns the label for a kind of file: the suffix of the ``name``, or ``text`` if there is no short suffix."""
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    return suffix if 0 < len(suffix) <= 4 and suffix.isalnum() else "text"


def length(store: Store, row: DocumentRow) -> str:
    """Returns a document's length in words for the user, such as ``12 pages`` or ``about 6,100 words``."""
    part, parts = store.documents.count_parts(row.id)
    return length_in_words(part, parts, row.chars)


def length_in_words(part: str, parts: int, characters: int) -> str:
    """Returns a length in words for the user: the number of parts, or else of words; "" for no text."""
    if parts:
        return count_parts(part, parts)
    return about_words(characters / CHARACTERS_OF_A_WORD) if characters else ""


def not_read(row: DocumentRow) -> str:
    """Returns a line with the parts of a document that could not be read; "" if there are none."""
    lines = "; ".join(row.unread_lines)
    return f'<small class="lc-not-read">Not read: {escape(lines)}</small>' if lines else ""


def _facts(store: Store, row: DocumentRow, read: Collection[str]) -> str:
    ready = "ready" if row.id in read else ""
    return " · ".join(filter(None, [length(store, row), ready]))


def _source(row: DocumentRow, facts: str, ticked: bool) -> str:
    return _item(row.id, row.name, escape(facts), " checked" * ticked, not_read(row))


def _item(document: str, name: str, facts: str, ticked: str, below: str = "") -> str:
    shown = escape(name)
    box = f'<input type="checkbox" value="{document}"{ticked} aria-label="Ask about {shown}">'
    opens = f'<button type="button" {opener(document, name)} aria-label="Open {shown}">{shown}</button>'
    named = opens if document else f"<span>{shown}</span>"
    return f'<li>{box}<i class="lc-kind">{file_kind(name)}</i><div>{named}<small>{facts}</small>{below}</div></li>'
