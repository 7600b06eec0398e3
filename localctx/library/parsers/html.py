"""Reads the text of a web page as browsers show it. Runs in the child process.

A page of well-formed XML (XHTML, the chapters of books) is read by the standard library's expat. An HTML parser would
take the rest of such a page for the content of an empty <title/> or <script/>. Any other page is read by selectolax,
which mends broken pages as browsers do. selectolax is as fast as lxml.html, which mends pages in its own way, and 40
times as fast as html5lib (0.4 MB in 15 ms). WebPageText then decides which of the elements' text a browser shows.
"""

import re
from collections.abc import Iterator
from html.entities import html5
from xml.etree import ElementTree
from xml.parsers import expat

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from localctx.library.parsers.archive import local
from localctx.library.parsers.page_text import WebPageText
from localctx.library.parsers.text_builder import TextBuilder

_LAYOUT = {"table", "h1", "h2", "h3", "pre", "article", "section"}  # no table of data has these
_LAYOUT_SELECTOR = ", ".join(_LAYOUT)
_XHTML = re.compile(r"<\?xml|<!doctype[^>]*xhtml|<html[^>]*xmlns", re.IGNORECASE)
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
_EMPTY = re.compile(rf"""<(?!(?:{_VOID})\b)([a-zA-Z][\w:-]*)((?:"[^"<]*"|'[^'<]*'|[^"'<>])*)/>""", re.IGNORECASE)
_ENTITY = re.compile("&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z][A-Za-z0-9]*;")


def read(text: str, builder: TextBuilder) -> None:
    """Append a page's visible text and its headings to ``builder`` in document order."""
    page = WebPageText(builder)
    root = _xml(text)
    if root is not None:
        _walk_xml(root, page)
    else:
        _walk_html(text, page)


def _xml(text: str) -> ElementTree.Element | None:
    """Returns the root of well-formed XML, or None. expat loads nothing from outside and refuses entity bombs."""
    named = _ENTITY.sub(lambda m: html5.get(m.group()[1:], m.group()), text)  # XML itself knows five of them
    named = named.lstrip("\ufeff \t\r\n")
    try:
        expat.ParserCreate(namespace_separator="}").Parse(named, True)  # before a tree takes memory
        return ElementTree.fromstring(named)
    except (expat.ExpatError, ElementTree.ParseError, ValueError):
        return None


def _walk_xml(root: ElementTree.Element, page: WebPageText) -> None:
    parts = [_parts(root, page)]
    while parts:  # a loop, because pages may nest deeper than the stack
        child = next(parts[-1], None)
        if child is None:
            parts.pop()
        else:
            parts.append(_parts(child, page))


def _parts(element: ElementTree.Element, page: WebPageText) -> Iterator[ElementTree.Element]:
    """Report an element and its text to ``page``, and yield each child when the child must be reported."""
    tag = local(element.tag).lower() if isinstance(element.tag, str) else "-comment"
    attributes = {local(name).lower(): value for name, value in element.attrib.items()}
    if tag == "ol" and "reversed" in attributes:
        attributes["reversed"] = str(sum(_is(child, {"li"}) for child in element))
    if tag == "table" and any(_is(inner, _LAYOUT) for inner in element.iter() if inner is not element):
        attributes["role"] = "presentation"
    if page.start(tag, attributes):
        page.text((element.text or "").removeprefix("\n" if tag == "pre" else ""))
        for child in element:
            yield child
            page.text(child.tail or "")
        page.end(tag)


def _is(element: ElementTree.Element, tags: set[str]) -> bool:
    return isinstance(element.tag, str) and local(element.tag).lower() in tags


def _walk_html(text: str, page: WebPageText) -> None:
    if _XHTML.search(text[:1024]):
        text = _EMPTY.sub(r"<\1\2></\1>", text)  # XHTML with an error somewhere
    try:
        tree = LexborHTMLParser(text)
    except SelectolaxError as e:
        raise MemoryError from e  # the parser accepts any text, and fails only for lack of memory
    root = tree.body or tree.root  # a page of frames has no body
    node, down = root, True
    while root is not None and node is not None:
        if down and _start(node, page):
            if node.child is not None:
                node = node.child
                continue
            page.end(node.tag or "")
        elif not down:
            page.end(node.tag or "")
        if node.mem_id == root.mem_id:
            return
        down = node.next is not None
        node = node.next or node.parent


def _start(node: LexborNode, page: WebPageText) -> bool:
    """Report a node to ``page``. Returns True if the children of the node are to be reported too."""
    if node.tag == "-text":
        page.text(node.text_content or "")
        return False
    attributes = {name: value or "" for name, value in node.attributes.items()}
    if node.tag == "ol" and "reversed" in attributes:
        attributes["reversed"] = str(sum(child.tag == "li" for child in node.iter()))
    if node.tag == "table" and any(inner.mem_id != node.mem_id for inner in node.css(_LAYOUT_SELECTOR)):
        attributes["role"] = "presentation"
    return page.start(node.tag or "", attributes)
