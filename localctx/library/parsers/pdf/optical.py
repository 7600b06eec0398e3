"""Reads the image of a page by OCR with RapidOCR, an optional extra. Runs in the child process.

Uses the models in RapidOCR's package; nothing is downloaded.
"""

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from localctx.library.parsers.pdf.layout import Box, place
from localctx.library.parsers.word_boxes import WORD, WordBox, clamp
from localctx.system import processors

INSTALL = "pip install 'localctx[ocr]'"
_MAX_THREADS = 4  # each takes address space, which is limited for the child process
_INK = 48  # difference from the paper's brightness (0 to 255) that counts as ink
_MARGIN = 16  # pixels
_SURE = 0.85  # confidence; upright pages reach 0.95 and more, rotated ones less than 0.8


def is_installed() -> bool:
    """Returns True if the extra ``ocr`` is installed."""
    return all(find_spec(name) for name in ("rapidocr", "onnxruntime"))


class OpticalReader:
    """Reads images of pages by OCR. It holds the loaded OCR models; loading takes about a second."""

    def __init__(self) -> None:
        import rapidocr

        models = Path(rapidocr.__file__).parent / "models"
        unlimited = 1 << 16  # pixels; the caller bounds the image
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
        """Returns the text of a page image, uint8 gray values [height, width], and its word boxes on that image.

        The page may be rotated by any multiple of 90 degrees.
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
        """Run OCR on the image, rotated left by ``quarters`` times 90 degrees. Returns the boxes and the confidence.

        The confidence is the mean over all characters; characters on vertical lines count as 0.
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
    """Crop empty margins, which take as long to process as text.

    Returns the pixels cropped at the top and left, and the cropped image: an empty array for an empty page.
    """
    import numpy as np

    ink = picture < int(picture.max()) - _INK
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    if not rows.size:
        return 0, 0, picture[:0]
    top, left = max(0, int(rows[0]) - _MARGIN), max(0, int(columns[0]) - _MARGIN)
    return top, left, picture[top : rows[-1] + _MARGIN, left : columns[-1] + _MARGIN]


def _box(corners: Any, text: str) -> Box:
    """Returns the box of a line with ``corners`` [4, 2], clockwise from the upper left.

    The top and bottom of a slanted line are taken at its middle.
    """
    across, down = corners[:, 0], corners[:, 1]
    return Box(across.min(), down[:2].mean(), across.max(), down[2:].mean(), text)


def _turned_back(box: Box, quarters: int, height: int, width: int) -> Box:
    """Returns a box in the coordinates of the unrotated image of ``height`` and ``width``.

    The image was rotated left by ``quarters`` times 90 degrees before the box was found.
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
    """Yields the boxes of words. A word gets the share of its line's box that matches its letters, plus half a letter
    at each end.

    The margin is needed because letters are not equally wide. ``left`` and ``top`` are the pixels cropped from an image
    of ``height`` and ``width``.
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
