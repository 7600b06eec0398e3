"""Inserts the values of form fields and text boxes among the line pieces of a page."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from localctx.library.parsers.pdf.letters import DisplayMap, Edges, Letter
from localctx.library.parsers.pdf.notes import PageNote
from localctx.library.parsers.pdf.pieces import LinePiece, piece_of

_LETTER = 6.0  # points: the width of a value's letter, at most
_LINE = 14.0  # points: the height of a value's line, at most
_TOUCH = 3.0  # points by which a field and its name may overlap
_FAR = 150.0  # points between a field and its name at its left, at most
_NEAR = 1.5  # heights of a field between it and its name above it, at most


class _Placed(NamedTuple):
    """A line piece at its place in the reading order. ``is_note`` is True if the piece is a note and not text of the
    page itself.
    """

    piece: LinePiece
    is_note: bool


def with_notes(
    pieces: Sequence[LinePiece], notes: Sequence[PageNote], angle: int, to_points: DisplayMap
) -> list[LinePiece]:
    """Insert notes (values of form fields and text boxes) among the line pieces of a page, each after the words that it
    belongs to. ``angle`` is the direction of the pieces' lines. Returns all pieces.
    """
    placed = [_Placed(piece, is_note=False) for piece in pieces]
    for note in sorted(notes, key=lambda note: to_points.turned(note.edges, angle)[1::-1]):
        own = [_Placed(line, is_note=True) for line in note_lines(note, angle, to_points)]
        at = _place(placed, own[0].piece, is_tick=note.kind == "tick") if own else 0
        placed[at:at] = own
    return [item.piece for item in placed]


def note_lines(note: PageNote, angle: int, to_points: DisplayMap, prefix: str = "") -> Iterator[LinePiece]:
    """Yields the lines of a note as line pieces of the direction ``angle``.

    The box of the note is divided among its letters. ``prefix`` is put before the text.
    """
    lines = [line for line in (prefix + note.text).split("\n") if line.strip()]
    left, top, right, bottom = note.edges
    across, down = right - left, bottom - top
    for i, line in enumerate(lines):
        height = down if len(lines) == 1 else min(_LINE, down / len(lines))
        width = min(_LETTER, across / len(line))
        letters = list[Letter | None]()
        for j, character in enumerate(line):
            share = Edges(left + j * width, top + i * height, left + (j + 1) * width, top + (i + 1) * height)
            edges = share if angle == 0 else note.edges
            letters.append(None if character.isspace() else _letter(character, edges, angle, to_points))
        yield piece_of(_trimmed(letters))


def _letter(character: str, edges: Edges, angle: int, to_points: DisplayMap) -> Letter:
    return Letter(character, edges, edges, angle, to_points.turned(edges, angle))


def _trimmed(letters: Sequence[Letter | None]) -> Sequence[Letter | None]:
    there = [i for i, letter in enumerate(letters) if letter]
    return letters[there[0] : there[-1] + 1]


def _place(placed: Sequence[_Placed], note: LinePiece, is_tick: bool) -> int:
    """Returns the index in ``placed`` at which a note is inserted: after the name of its field. A tick may also come
    before the name.

    The name is the text to the left of the note, else the text above the note (for a tick also the text to the right).
    A note without a name comes after all higher pieces.
    """
    names = [(i, item.piece) for i, item in enumerate(placed) if not item.is_note]
    beside = [(i, p) for i, p in names if p.top <= note.middle <= p.bottom or note.top <= p.middle <= note.bottom]
    left = [(note.left - p.right, i) for i, p in beside if p.right <= note.left + _TOUCH]
    right = [(p.left - note.right, i) for i, p in beside if p.left >= note.right - _TOUCH]
    over = [
        (note.top - p.bottom, i)
        for i, p in names
        if p.middle < note.top and p.left < note.right and note.left < p.right
    ]
    if is_tick and right and min(right) < min(left, default=(_FAR, 0)):
        return min(right)[1]
    is_under = over and min(over)[0] < _NEAR * note.height
    if left and (min(left)[0] < _FAR or not is_under):
        return _after_notes(placed, min(left)[1] + 1, note)
    if is_under:
        return _after_notes(placed, min(over)[1] + 1, note)
    return max((i + 1 for i, item in enumerate(placed) if item.piece.middle < note.middle), default=0)


def _after_notes(placed: Sequence[_Placed], at: int, note: LinePiece) -> int:
    """Returns the first index from ``at`` on that comes after all notes above ``note`` or to the left of ``note``."""
    while at < len(placed) and placed[at].is_note:
        other = placed[at].piece
        if other.is_on_line_of(note) and other.left > note.left:
            break
        at += 1
    return at
