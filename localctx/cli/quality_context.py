"""``quality --context``: up to which length does the model answer from the whole as well as from passages?"""

from typing import TYPE_CHECKING

from localctx.errors import UsageError

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.quality.context_quality import AskFunction
    from localctx.session import Session


def measure_context(session: "Session", terminal: "Terminal", text: str, longest: int | None, as_json: bool) -> None:
    """Measure, remember what was found, and print it."""
    import hashlib

    from localctx.cli.terminal import print_json, table
    from localctx.engine.effective_context import MEASURED
    from localctx.quality.context_quality import LengthResult, compare_lengths, effective_context, make_haystacks

    model, name = session.model, session.settings.model
    pieces = make_haystacks(model.tokenizer, text, longest or model.trained)
    compared = list[LengthResult]()
    with asking(session) as ask:
        for one in compare_lengths(pieces, ask, terminal.show):
            compared.append(one)
            terminal.say(
                f"{one.length:,} tokens: {one.whole} of {one.asked} from the whole, {one.passages} from passages"
            )
    terminal.clear()
    found = effective_context(compared)
    report = {"model": name, "effective": found, "lengths": [c.to_json() for c in compared]}
    key = hashlib.sha256(f"{MEASURED} {name}".encode()).digest()
    session.store.verdicts.note(key, name, MEASURED, True, report)
    if as_json:
        print_json(report)
        return
    print(table([{"TOKENS": c.length, "ASKED": c.asked, "WHOLE": c.whole, "PASSAGES": c.passages} for c in compared]))
    print(f"effective context: {found:,} tokens; {name} reads whole what is not longer, and passages of the rest")


class asking:
    """A function that asks in a data folder which is gone afterwards, with the model that ``session`` has loaded."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def __enter__(self) -> "AskFunction":
        import tempfile
        from contextlib import ExitStack
        from dataclasses import replace
        from pathlib import Path

        from localctx.engine.model_loader import ModelLoader
        from localctx.session import Session

        self._open = ExitStack()
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        (folder / "models").symlink_to(self._session.settings.models)
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


def refuse_others(**given: object) -> None:
    """Raises UsageError for flags that say to measure something else as well."""
    if any(given.values()):
        flags = ", ".join(f"--{name}" for name, value in given.items() if value)
        raise UsageError(f"--context measures one thing, and {flags} another", "run them one after the other")
