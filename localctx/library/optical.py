"""Reading a picture of a page by RapidOCR, which is an optional extra. Runs in the child process.

The models are those that came with the package: nothing is fetched.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from localctx.library.layout import Box, text_of

INSTALL = "pip install 'localctx[ocr]'"
_MOST_THREADS = 4  # each takes address space, which is limited here
_INK = 48  # how much darker than paper, of 255
_MARGIN = 16  # pixels
_SURE = 0.85  # of 1: pages the right way up are at 0.95 and more, others below 0.8


def is_installed() -> bool:
    """Whether the extra is there."""
    return all(find_spec(name) for name in ("rapidocr", "onnxruntime"))


class Reader:
    """Loads the models, in about a second."""

    def __init__(self) -> None:
        import rapidocr

        models = Path(rapidocr.__file__).parent / "models"
        unlimited = 1 << 16  # pixels: whoever makes the picture bounds it
        self._read: Any = rapidocr.RapidOCR(
            params={
                "Global.log_level": "critical",
                "Global.use_cls": False,
                "Global.max_side_len": unlimited,
                "Det.limit_type": "max",
                "Det.limit_side_len": unlimited,
                "Det.model_path": str(models / "PP-OCRv6_det_small.onnx"),
                "Rec.model_path": str(models / "PP-OCRv6_rec_small.onnx"),
                "EngineConfig.onnxruntime.intra_op_num_threads": min(_MOST_THREADS, _processors()),
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            }
        )

    def read(self, picture: Any) -> str:
        """The text on a page given as an array of gray, [height, width], bytes. It may lie on a side or its head."""
        inked = _trimmed(picture)
        if not inked.size:
            return ""
        best, surest = list[Box](), 0.0
        for quarters in (0, 2, 1, 3):
            boxes, sure = self._seen(inked, quarters)
            if sure > surest:
                best, surest = boxes, sure
            if surest > _SURE or not boxes:
                break
        return text_of(best)

    def _seen(self, picture: Any, quarters: int) -> tuple[list[Box], float]:
        """What is seen when the picture is turned left so often, and how sure the letters on level lines are."""
        import numpy as np

        found = self._read(np.ascontiguousarray(np.rot90(picture, quarters)))
        if not found:
            return [], 0.0
        boxes = [_box(*at) for at in zip(found.boxes, found.txts, strict=True)]
        scored = zip(boxes, found.scores, strict=True)
        level = sum(len(b.text) * score for b, score in scored if b.right - b.left > b.bottom - b.top)
        return boxes, level / sum(len(box.text) for box in boxes)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _trimmed(picture: Any) -> Any:
    """Without empty margins, which take as long to look at as text; nothing of an empty page."""
    import numpy as np

    ink = picture < int(picture.max()) - _INK
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    if not rows.size:
        return picture[:0]
    top, left = max(0, rows[0] - _MARGIN), max(0, columns[0] - _MARGIN)
    return picture[top : rows[-1] + _MARGIN, left : columns[-1] + _MARGIN]


def _box(corners: Any, text: str) -> Box:
    """Of a slanted line, its height in the middle. ``corners``: from the upper left, clockwise."""
    across, down = corners[:, 0], corners[:, 1]
    return Box(across.min(), down[:2].mean(), across.max(), down[2:].mean(), text)
