"""OCR: reads a picture of a page with RapidOCR, which is an optional extra. Runs in the child process.

It uses the models in RapidOCR's package; nothing is downloaded.
"""

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from localctx.library.parsers.layout import Box, place
from localctx.library.parsers.word_boxes import WORD, WordBox, clamp
from localctx.system import processors

INSTALL = "pip install 'localctx[ocr]'"
_MAX_THREADS = 4  # each takes address space, which the child process may use only so much of
_INK = 48  # difference from the paper's brightness, of 255
_MARGIN = 16  # pixels
_SURE = 0.85  # confidence; upright pages reach 0.95 and more, rotated ones less than 0.8


def is_installed() -> bool:
    """Returns True if the extra ``ocr`` is installed."""
    return all(find_spec(name) for name in ("rapidocr", "onnxruntime"))


class OpticalReader:
    """The loaded OCR models. Loading takes about a second."""

    def __init__(self) -> None:
        import rapidocr

        models = Path(rapidocr.__file__).parent / "models"
        unlimited = 1 << 16  # pixels; the caller bounds the picture
        self._read: Any = rapidocr.RapidOCR(
            params={
                "Global.log_level": "critical",
                "Global.use_cls": False,
                "Global.max_side_len": unlimited,
                "Det.limit_type": "max",
                "Det.limit_side_len": unlimited,
                "Det.model_path": str(models / "PP-OCRv6_det_small.onnx"),
                "Rec.model_path": str(models / "PP-OCRv6_rec_small.onnx"),
                "EngineConfig.onnxruntime.intra_op_num_threads": min(_MAX_THREADS, processors()),
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            }
        )

    def read(self, picture: Any) -> tuple[str, list[WordBox]]:
        """Returns the text of a page in any of four orientations, given as gray values, uint8 [height, width], and the
        boxes of its words on the picture as it was given.
        """
        top, left, trimmed = _trimmed(picture)
        if not trimmed.size:
            return "", []
        best, highest, turned = list[Box](), 0.0, 0
        for quarters in (0, 2, 1, 3):
            boxes, confidence = self._detect(trimmed, quarters)
            if confidence > highest:
                best, highest, turned = boxes, confidence, quarters
            if highest > _SURE or not boxes:
                break
        text, placed = place(best)
        upright = [(start, end, _turned_back(box, turned, *trimmed.shape)) for start, end, box in placed]
        return text, list(_words(text, upright, left, top, *picture.shape))

    def _detect(self, picture: Any, quarters: int) -> tuple[list[Box], float]:
        """Rotates the picture left by ``quarters`` of 90 degrees; returns the boxes found, and the mean confidence of
        the characters, where those on vertical lines count as 0.
        """
        import numpy as np

        result = self._read(np.ascontiguousarray(np.rot90(picture, quarters)))
        if not result:
            return [], 0.0
        boxes = [_box(*item) for item in zip(result.boxes, result.txts, strict=True)]
        scored = zip(boxes, result.scores, strict=True)
        level = sum(len(b.text) * score for b, score in scored if b.right - b.left > b.bottom - b.top)
        return boxes, level / sum(len(box.text) for box in boxes)


def _trimmed(picture: Any) -> tuple[int, int, Any]:
    """Crops empty margins, which take as long to process as text; returns how many pixels were cropped at the top and
    at the left, and what is left of the picture: an empty array for an empty page.
    """
    import numpy as np

    ink = picture < int(picture.max()) - _INK
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    if not rows.size:
        return 0, 0, picture[:0]
    top, left = max(0, int(rows[0]) - _MARGIN), max(0, int(columns[0]) - _MARGIN)
    return top, left, picture[top : rows[-1] + _MARGIN, left : columns[-1] + _MARGIN]


def _box(corners: Any, text: str) -> Box:
    """Returns the box of a line whose ``corners`` [4, 2] run clockwise from the upper left; a slanted line's edges are
    taken at its middle.
    """
    across, down = corners[:, 0], corners[:, 1]
    return Box(across.min(), down[:2].mean(), across.max(), down[2:].mean(), text)


def _turned_back(box: Box, quarters: int, height: int, width: int) -> Box:
    """Returns where a box is on a picture of ``height`` and ``width`` that was rotated left by ``quarters`` of 90
    degrees before the box was found.
    """
    left, top, right, bottom, text = box
    if quarters == 1:
        return Box(width - bottom, left, width - top, right, text)
    if quarters == 2:
        return Box(width - right, height - bottom, width - left, height - top, text)
    return Box(top, height - right, bottom, height - left, text) if quarters == 3 else box


def _words(
    text: str, placed: Sequence[tuple[int, int, Box]], left: int, top: int, height: int, width: int
) -> Iterator[WordBox]:
    """Yields the boxes of words: each takes a share of its piece's box by its letters, and half a letter at each end,
    because letters are not equally wide. ``left`` and ``top`` were cropped from a picture of ``height`` and ``width``.
    """
    for start, end, box in placed:
        across = box.right - box.left >= box.bottom - box.top  # else the line runs up or down the page
        begin, length = (box.left, box.right - box.left) if across else (box.top, box.bottom - box.top)
        for match in WORD.finditer(text, start, end):
            a, b = (begin + length * share / max(1, end - start) for share in _shares(match, start, end))
            edges = (a, box.top, b, box.bottom) if across else (box.left, a, box.right, b)
            x0, y0, x1, y1 = edges
            corners = (x0 + left) / width, (y0 + top) / height, (x1 + left) / width, (y1 + top) / height
            yield WordBox(*match.span(), *map(clamp, corners))


def _shares(match: re.Match[str], start: int, end: int) -> tuple[float, float]:
    return max(0, match.start() - start - 0.5), min(end - start, match.end() - start + 0.5)
