"""Where the repository is, whatever folder of ``tests`` asks."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
