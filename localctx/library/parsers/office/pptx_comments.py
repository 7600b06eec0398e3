"""Reads the comments on a slide, in PowerPoint's old and new format. A reply follows the comment that it answers."""

from collections.abc import Iterator

from localctx.library.parsers.office.blocks import Block, Paragraph
from localctx.library.parsers.office.chart import words_of
from localctx.library.parsers.office.package import Package
from localctx.library.parsers.office.xml_tree import Element, attribute, child, children, descendants


def slide_comments(package: Package, main: str, part: str, slide: int) -> Iterator[Block]:
    """Yields the comments on slide number ``slide``, in the part ``part``, each with its author.

    The authors' names are in parts that ``main`` refers to.
    """
    for comments in package.related(part, "comments"):
        root = package.tree(comments, f"the comments on slide {slide}")
        authors = _authors(package, main)
        for one in descendants(root, "cm", "reply"):
            author, text = authors.get(attribute(one, "authorId"), ""), _text(one)
            if text:
                yield Paragraph(f"Comment{f' by {author}' if author else ''}: {text}")


def _authors(package: Package, main: str) -> dict[str, str]:
    parts = [*package.related(main, "commentAuthors"), *package.related(main, "authors")]
    trees = (package.tree(one, "the authors of the comments") for one in parts)
    return {
        attribute(one, "id"): " ".join(attribute(one, "name").split())
        for tree in trees
        for one in descendants(tree, "cmAuthor", "author")
    }


def _text(comment: Element) -> str:
    old = child(comment, "text")
    if old is not None:
        return " ".join((old.text or "").split())
    return " ".join(" ".join(map(words_of, children(child(comment, "txBody"), "p"))).split())
