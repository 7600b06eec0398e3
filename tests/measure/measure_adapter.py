"""What an adapter costs, with the default model: ``python measure_adapter.py [FOLDER [tokens]]``.

FOLDER is an adapter's (else ``auto``). Prints the time to the first token of a second question on a kept document of
about so many tokens, and that of a decoded token, with the adapter and without, asked by turns. Pages must be the same.
"""

import sys
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from localctx.cli.common import measuring_text
from localctx.engine.events import Done
from localctx.session import Session
from localctx.settings import load_settings

WORDS = ("page", "codec", "keeper", "fork", "tier", "sink", "window", "chunk")
PHASES = {"first_token": "first token of a kept document", "decode": "a decoded token"}


def main(adapter: str = "auto", tokens: int = 6_000) -> None:
    """Ask by turns, and print the medians and their ratio."""
    with TemporaryDirectory() as folder:
        seconds = measure(Path(folder), adapter, tokens)
    for phase, words in PHASES.items():
        with_it, without = (median(seconds[phase, name]) * 1e3 for name in (adapter, "none"))
        print(f"{words}: {with_it:.1f} ms with {adapter}, {without:.1f} ms without: {with_it / without:.3f}")


def measure(folder: Path, adapter: str, tokens: int) -> dict[tuple[str, str], list[float]]:
    """The seconds of each question, by phase and adapter; those of the first two, which read and compile, left out."""
    models, home, file = load_settings().models, folder / "home", folder / "text.txt"
    home.mkdir()
    (home / "models").symlink_to(models)
    file.write_text(measuring_text(None)[: 4 * tokens])
    seconds, kept = defaultdict[tuple[str, str], list[float]](list), set[bytes]()
    plain = {"mode": "full", "answers": "free", "careful": "off", "embedder": "none"}
    settings = load_settings(home=home, max_tokens=32, draft=0, **plain)
    with closing(Session(settings, lambda event: None)) as session:
        for number, word in enumerate(WORDS):
            for name in (adapter, "none"):
                session.change(replace(settings, adapter=name))
                *_, done = session.stream(f"What is a {word}?", [str(file)])
                assert isinstance(done, Done)
                report = done.report.to_json()
                names = {row["name"] for row in session.store.db.query("SELECT name FROM pages")}
                assert not kept or names == kept, "an adapter changes no page of a document"
                kept = names
                assert name == "auto" or bool(report["adapter"]) == (name != "none")
                if number:
                    seconds["first_token", name].append(report["seconds"]["first_token"])
                    each = report["seconds"]["decode"] / max(1, report["tokens"]["generated"] - 1)
                    seconds["decode", name].append(each)
    return seconds


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
