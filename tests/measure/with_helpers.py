"""Imported for what it does: puts the folder of the tests' helpers on the path, so that scripts here find them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "helpers"))
