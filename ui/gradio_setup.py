"""Imports gradio without its type stubs and analytics. Import this module before gradio is imported anywhere.

On every import, gradio rewrites type stubs in its package folder, which takes half of the import's time. Gradio skips
classes without a source file, so this module makes the lookup of source files fail during the import.
"""

import inspect
import os
from typing import Any
from unittest.mock import patch

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # gradio reads this variable when it is imported


def _no_source_file(value: Any) -> str:
    raise OSError("no source file is looked up while gradio is imported")


with patch.object(inspect, "getfile", _no_source_file):
    import gradio  # noqa: F401
