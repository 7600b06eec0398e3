"""A web page's whole readable text with its headings. Runs in the child process."""

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from localctx.library.text_builder import TextBuilder

_UNSEEN = {
    *("head", "script", "style", "template", "noscript", "svg", "iframe", "object", "canvas", "audio", "video"),
    *("datalist", "textarea", "-comment"),
}
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_BLOCKS = {
    *("p", "blockquote", "pre", "table", "ul", "ol", "dl", "section", "article", "header", "footer", "main", "nav"),
    *("aside", "figure", "form", "fieldset", "hr", "details"),
}
_LINES = {"div", "li", "tr", "dt", "dd", "br", "caption", "figcaption", "address", "legend", "option", "summary"}


def read(text: str, flow: TextBuilder) -> None:
    """Append a page's text in order, without what a reader does not see."""
    try:
        page = LexborHTMLParser(text)
    except SelectolaxError as e:
        raise MemoryError from e  # anything else is HTML
    root = page.body or page.root  # a page of frames has no body
    node, down = root, True
    while root is not None and node is not None:  # no recursion: pages nest as deep as they like
        if down and _enter(node, flow) and node.child is not None:
            node = node.child
            continue
        _leave(node, flow)
        if node.mem_id == root.mem_id:
            return
        down = node.next is not None
        node = node.next or node.parent


def _enter(node: LexborNode, flow: TextBuilder) -> bool:
    """Whether what is inside is to be read too."""
    if node.tag == "-text":
        _text(node, flow)
        return False
    if node.tag in _UNSEEN or _hidden(node.attributes):
        return False
    if node.tag in _HEADINGS:
        flow.begin_heading()
    elif newlines := _newlines(node.tag):
        flow.line(newlines)
    return True


def _leave(node: LexborNode, flow: TextBuilder) -> None:
    if node.tag in _HEADINGS:
        flow.end_heading()
    elif node.tag in ("td", "th"):
        flow.cell()
    elif newlines := _newlines(node.tag):
        flow.line(newlines)


def _newlines(tag: str | None) -> int:
    return 2 if tag in _BLOCKS else 1 if tag in _LINES else 0


def _text(node: LexborNode, flow: TextBuilder) -> None:
    text = node.text_content or ""
    if node.parent is not None and node.parent.tag == "pre":
        flow.verbatim(text)
    else:
        flow.words(text)


def _hidden(attributes: dict[str, str | None]) -> bool:
    style = (attributes.get("style") or "").replace(" ", "").lower()
    return "hidden" in attributes or "display:none" in style or "visibility:hidden" in style
