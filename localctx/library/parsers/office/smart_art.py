"""Reads the text of SmartArt from its data part: a line for each node, indented by its depth in the tree."""

from localctx.library.parsers.office.blocks import Block, Paragraph
from localctx.library.parsers.office.chart import words_of
from localctx.library.parsers.office.xml_tree import Element, attribute, children, descendants, find, number

_NODES = ("node", "asst")  # an assistant is a node of an organization chart
_DEEPEST = 50


def smart_art_blocks(root: Element) -> list[Block]:
    """Returns one paragraph with a line for each node of a SmartArt graphic that has text, or []. ``root`` is the
    graphic's data model.
    """
    points = {attribute(pt, "modelId"): pt for pt in children(find(root, "ptLst"), "pt")}
    below: dict[str, list[tuple[int, str]]] = {}
    for link in descendants(root, "cxn"):
        if attribute(link, "type", "parOf") == "parOf":
            order = number(attribute(link, "srcOrd"))
            below.setdefault(attribute(link, "srcId"), []).append((order, attribute(link, "destId")))
    roots = [name for name, pt in points.items() if attribute(pt, "type") == "doc"]
    lines: dict[str, str] = {}
    for name in [*roots, *points]:  # nodes below no root come last
        _add(name, 0, points, below, lines)
    text = "\n".join(filter(None, lines.values()))
    return [Paragraph(text)] if text else []


def _add(
    name: str, depth: int, points: dict[str, Element], below: dict[str, list[tuple[int, str]]], lines: dict[str, str]
) -> None:
    """Add the line of a node to ``lines``, then the lines of the nodes below the node. A node is added once."""
    point = points.get(name)
    if point is None or name in lines or depth > _DEEPEST:
        return
    is_node = attribute(point, "type", "node") in _NODES
    text = " ".join(" ".join(map(words_of, descendants(point, "p"))).split()) if is_node else ""
    lines[name] = "  " * max(depth - 1, 0) + text if text else ""
    for _, child_name in sorted(below.get(name, [])):
        _add(child_name, depth + 1, points, below, lines)
