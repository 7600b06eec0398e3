"""Lean: gradio as the window needs it. Import this before gradio is imported anywhere.

Gradio rewrites type stubs in its own package folder whenever it is imported, which is half of the time that takes.
It leaves out classes that have no source file, and for as long as it is being imported none has.
"""

import inspect
import os
from typing import Any
from unittest.mock import patch

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported


def _nowhere(thing: Any) -> str:
    raise OSError("no source file is looked up while gradio is imported")


with patch.object(inspect, "getfile", _nowhere):
    import gradio  # noqa: F401
