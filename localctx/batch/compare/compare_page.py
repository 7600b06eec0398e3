"""Writes a comparison as a self-contained web page, with both versions of each changed clause side by side."""

from html import escape

from localctx.library.compare.comparison import ClauseChange, ClauseVersion, Comparison

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem; color: #1c1c1e; background: #fff }}
table {{ border-collapse: collapse; width: 100%; table-layout: fixed }}
th, td {{ border-bottom: 1px solid #e3e3e6; padding: .35rem .6rem; text-align: left; vertical-align: top;
  overflow-wrap: anywhere }}
th:first-child {{ width: 22% }}
small {{ display: block; color: #63636a }}
del {{ background: #fde2e1; color: #8a1c14 }}
ins {{ background: #dcf5e3; color: #14532d }}
del, ins {{ text-decoration: none; border-radius: .2rem; padding: 0 .2rem }}
@media (prefers-color-scheme: dark) {{
  body {{ color: #e8e8ea; background: #18181b }} th, td {{ border-color: #3a3a40 }} small {{ color: #a0a0a8 }}
  del {{ background: #5a1f1b; color: #ffd9d6 }} ins {{ background: #17432a; color: #d3f5de }} }}
</style>
<h1>{title}</h1>
<p>{summary}</p>
{groups}
{notes}
</html>
"""
_GROUP = """<h2>{title}</h2>
<table><thead><tr><th scope="col">What changed</th><th scope="col">Old</th><th scope="col">New</th></tr></thead><tbody>
{rows}
</tbody></table>"""


def compare_page(comparison: Comparison) -> str:
    """Returns a comparison as one HTML page."""
    groups = (
        _GROUP.format(title=escape(title), rows="\n".join(map(_row, changes)))
        for title, changes in comparison.groups.items()
    )
    return _PAGE.format(
        title=escape(f"{comparison.old.name} → {comparison.new.name}"),
        summary=escape(comparison.summary),
        groups="\n".join(groups),
        notes="\n".join(f"<p>{escape(note)}</p>" for note in comparison.notes),
    )


def _row(change: ClauseChange) -> str:
    words = "<br>".join(_words(word.old, word.new) for word in change.words)
    moved = "<small>moved</small>" if change.moved and change.words else ""
    head = f'<th scope="row">{words or escape(change.state)}{moved}</th>'
    return f"<tr>{head}{_cell(change.old)}{_cell(change.new)}</tr>"


def _words(old: str, new: str) -> str:
    return " ".join(f"<{tag}>{escape(words)}</{tag}>" for tag, words in (("del", old), ("ins", new)) if words)


def _cell(version: ClauseVersion | None) -> str:
    return f"<td><small>{escape(version.place)}</small>{escape(version.text)}</td>" if version else "<td></td>"
