"""Reads the comments on a slide, in PowerPoint's old and new format. A reply follows the comment that it answers."""

from collections.abc import Iterator
from functools import cached_property

from localctx.library.parsers.office.blocks import Block, Paragraph, comment_label
from localctx.library.parsers.office.chart import words_of
from localctx.library.parsers.office.package import Package
from localctx.library.parsers.office.xml_tree import Element, attribute, child, children, descendants


class SlideComments:
    """Reads the comments on the slides of a presentation. The part ``main`` refers to the parts with the authors'
    names.
    """

    def __init__(self, package: Package, main: str) -> None:
        self._package, self._main = package, main

    def on(self, part: str, slide: int) -> Iterator[Block]:
        """Yields the comments on slide number ``slide``, in the part ``part``, each with its author."""
        for comments in self._package.related(part, "comments"):
            root = self._package.tree(comments, f"the comments on slide {slide}")
            for one in descendants(root, "cm", "reply"):
                if text := _text(one):
                    author = self._authors.get(attribute(one, "authorId"), "")
                    yield Paragraph(f"{comment_label(author)}: {text}")

    @cached_property
    def _authors(self) -> dict[str, str]:
        related = self._package.related
        parts = [*related(self._main, "commentAuthors"), *related(self._main, "authors")]
        trees = (self._package.tree(one, "the authors of the comments") for one in parts)
        return {
            attribute(one, "id"): attribute(one, "name")
            for tree in trees
            for one in descendants(tree, "cmAuthor", "author")
        }


def _text(comment: Element) -> str:
    old = child(comment, "text")
    if old is not None:
        return " ".join((old.text or "").split())
    return " ".join(" ".join(map(words_of, children(child(comment, "txBody"), "p"))).split())
