"""Where the repository is, whatever folder of ``tests`` asks, and the commands that check its style."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LINT = ("ruff", "check", ".")
FORMAT = ("ruff", "format", "--check", ".")
"""Run by the tests and, before a commit, by .pre-commit-config.yaml: ``python -m ...`` in the repository's root."""
