"""What a page is checked for in a browser."""

import pytest

Axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="Playwright is not installed").Axe


def normal(text: str) -> str:
    """What a browser shows of a text."""
    return " ".join(text.replace("\0", "").replace("\ufffd", "").split())


def barriers(page, where: str = "body") -> dict[str, list]:
    """Serious violations of the rules of accessibility within ``where``, with where they are."""
    found = Axe().run(page, where).response["violations"]
    return {v["id"]: [n["html"][:200] for n in v["nodes"]] for v in found if v["impact"] in ("serious", "critical")}
