"""Reads all visible text and the headings of a web page. Runs in the child process."""

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from localctx.library.parsers.text_builder import TextBuilder

_INVISIBLE = {
    *("head", "script", "style", "template", "noscript", "svg", "iframe", "object", "canvas", "audio", "video"),
    *("datalist", "textarea", "-comment"),
}
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_BLOCKS = {
    *("p", "blockquote", "pre", "table", "ul", "ol", "dl", "section", "article", "header", "footer", "main", "nav"),
    *("aside", "figure", "form", "fieldset", "hr", "details"),
}
_LINES = {"div", "li", "tr", "dt", "dd", "br", "caption", "figcaption", "address", "legend", "option", "summary"}


def read(text: str, builder: TextBuilder) -> None:
    """Append a page's visible text to ``builder`` in document order."""
    try:
        page = LexborHTMLParser(text)
    except SelectolaxError as e:
        raise MemoryError from e  # the parser accepts any text, and fails only for lack of memory
    root = page.body or page.root  # a page of frames has no body
    node, down = root, True
    while root is not None and node is not None:  # a loop, because pages may nest deeper than the stack
        if down and _enter(node, builder) and node.child is not None:
            node = node.child
            continue
        _leave(node, builder)
        if node.mem_id == root.mem_id:
            return
        down = node.next is not None
        node = node.next or node.parent


def _enter(node: LexborNode, builder: TextBuilder) -> bool:
    """Handle the start of ``node``; returns True if its children must be visited."""
    if node.tag == "-text":
        _text(node, builder)
        return False
    if node.tag in _INVISIBLE or _hidden(node.attributes):
        return False
    if node.tag in _HEADINGS:
        builder.begin_heading()
    elif newlines := _newlines(node.tag):
        builder.line(newlines)
    return True


def _leave(node: LexborNode, builder: TextBuilder) -> None:
    if node.tag in _HEADINGS:
        builder.end_heading()
    elif node.tag in ("td", "th"):
        builder.cell()
    elif newlines := _newlines(node.tag):
        builder.line(newlines)


def _newlines(tag: str | None) -> int:
    return 2 if tag in _BLOCKS else 1 if tag in _LINES else 0


def _text(node: LexborNode, builder: TextBuilder) -> None:
    text = node.text_content or ""
    if node.parent is not None and node.parent.tag == "pre":
        builder.verbatim(text)
    else:
        builder.words(text)


def _hidden(attributes: dict[str, str | None]) -> bool:
    style = (attributes.get("style") or "").replace(" ", "").lower()
    return "hidden" in attributes or "display:none" in style or "visibility:hidden" in style
