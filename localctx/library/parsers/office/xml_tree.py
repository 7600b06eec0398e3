"""Parses XML of office files, and finds elements by local names, as Office uses two sets of namespaces.

The trees are lxml's. A damaged file is read as far as possible (libxml2's recovery); the standard library's parser
stops at the first fault.
"""

from collections.abc import Iterator

from lxml import etree
from lxml.etree import _Element as Element

from localctx.errors import DocumentError


def parse_xml(data: bytes) -> tuple[Element | None, bool]:
    """Parse ``data`` as XML. Returns the root element or None, and True if the XML is complete.

    Reads nothing outside of ``data``. Raises DocumentError if the XML is nested too deeply, or declares entities with
    content: office programs declare none.
    """
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True, recover=True, remove_comments=True,
        remove_pis=True,
    )  # fmt: skip
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError):
        return None, False
    if any("depth" in error.message for error in parser.error_log):
        raise DocumentError("is nested too deeply to be read", "save it again in another program, or do not trust it")
    if root is None:
        return None, False
    declared = root.getroottree().docinfo.internalDTD
    entities = [] if declared is None else list(declared.iterentities())
    if any(entity.content for entity in entities):
        raise DocumentError("is not a valid office document: it declares entities", "do not trust it")
    return root, not (len(parser.error_log) or entities)


def local(element: Element) -> str:
    """Returns an element's name without its namespace; "" for comments and the like."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: Element | None, name: str, default: str = "") -> str:
    """Returns the attribute ``name`` in any namespace, or ``default`` if it or the element is missing."""
    if element is None:
        return default
    if (value := element.get(name)) is not None:
        return value
    return next((value for key, value in element.items() if key.rpartition("}")[2] == name), default)


def child(element: Element | None, *path: str) -> Element | None:
    """Follow a ``path`` of element names down from ``element``, each time to the first child of that name. Returns the
    element at the end of the path, or None.
    """
    for name in path:
        if element is None:
            return None
        element = next((one for one in element if local(one) == name), None)
    return element


def children(element: Element | None, *names: str) -> Iterator[Element]:
    """Yields the children whose local name is one of ``names``."""
    for one in () if element is None else element:
        if local(one) in names:
            yield one


def descendants(element: Element | None, *names: str) -> Iterator[Element]:
    """Yields the element itself and all elements below it with one of these ``names``, in document order."""
    for one in () if element is None else element.iter(etree.Element):
        if local(one) in names:
            yield one


def find(element: Element | None, name: str) -> Element | None:
    """Returns the first element that ``descendants`` yields for ``name``, or None."""
    return next(descendants(element, name), None)


def number(text: str, default: int = 0) -> int:
    """Returns ``text`` as a whole number, or ``default`` if it is not a number or has more than nine characters.

    The limit protects against forged files.
    """
    text = text.strip()
    return int(text) if text.lstrip("-").isdecimal() and text.isascii() and len(text) < 10 else default


def is_on(element: Element | None) -> bool:
    """Returns True if a property such as ``<w:vanish/>`` is present and its value is not "off"."""
    return element is not None and attribute(element, "val", "1") not in ("0", "false", "off")
