"""``quality --context``: finds the greatest text length at which answers from the whole text are as good as answers
from passages.
"""

from typing import TYPE_CHECKING

from localctx.cli.printing import print_line, print_text
from localctx.errors import UsageError

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.quality.context_quality import AskFunction
    from localctx.session import Session


def measure_context(session: "Session", terminal: "Terminal", text: str, max_tokens: int | None, as_json: bool) -> None:
    """Measure up to which length the model answers as well from the whole ``text`` as from its passages. Store this
    length as the effective context, and print it. Texts have at most ``max_tokens`` tokens (None: the trained window).
    """
    import hashlib

    from localctx.cli.terminal import print_json, table
    from localctx.engine.planning.effective_context import MEASURED
    from localctx.quality.context_quality import LengthResult, compare_lengths, effective_context, make_haystacks

    model, name = session.model, session.settings.model
    pieces = make_haystacks(model.tokenizer, text, max_tokens or model.trained)
    compared = list[LengthResult]()
    with temporary_asker(session) as ask:
        for one in compare_lengths(pieces, ask, terminal.show):
            compared.append(one)
            terminal.say(
                f"{one.length:,} tokens: {one.whole} of {one.asked} from the whole, {one.passages} from passages"
            )
    terminal.clear()
    tokens = effective_context(compared)
    report = {"model": name, "effective": tokens, "lengths": [c.to_json() for c in compared]}
    key = hashlib.sha256(f"{MEASURED} {name}".encode()).digest()
    session.store.quality_results.note(key, name, MEASURED, True, report)
    if as_json:
        print_json(report)
        return
    print_text(
        table([{"TOKENS": c.length, "ASKED": c.asked, "WHOLE": c.whole, "PASSAGES": c.passages} for c in compared])
    )
    print_line(
        f"effective context: {tokens:,} tokens; {name} reads texts up to that length whole, and passages of longer ones"
    )


class temporary_asker:
    """A context manager whose value is a function that asks a question about a text.

    The function works in a temporary data folder, with the settings of ``session``.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session

    def __enter__(self) -> "AskFunction":
        import tempfile
        from contextlib import ExitStack
        from dataclasses import replace
        from pathlib import Path

        from localctx.engine.model_loader import ModelLoader
        from localctx.session import Session
        from localctx.system import link

        self._open = ExitStack()
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        link(folder / "models", self._session.settings.models)
        settings, loader = replace(self._session.settings, home=folder, max_tokens=48), ModelLoader()
        sessions = {
            mode: self._open.enter_context(Session(replace(settings, mode=mode), loader=loader))
            for mode in ("full", "retrieve")
        }

        def ask(text: str, question: str, mode: str) -> str:
            file = folder / "text.txt"
            if not file.exists() or file.read_text(encoding="utf-8") != text:
                file.write_text(text, encoding="utf-8")
            return sessions[mode].ask(question, [str(file)]).text

        return ask

    def __exit__(self, *exc: object) -> None:
        self._open.close()


def refuse_other_measurements(**given: object) -> None:
    """Raise UsageError if one of the flags ``given`` is set, because ``--context`` cannot be combined with it."""
    if any(given.values()):
        flags = ", ".join(f"--{name}" for name, value in given.items() if value)
        raise UsageError(f"--context cannot be combined with {flags}", "run them one after the other")
