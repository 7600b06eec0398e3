"""Renders a table with the longest context that fits into memory, for each precision of the KV cache."""

from typing import Any

from localctx.errors import format_bytes
from localctx.ui.render import escape


def table(report: dict[str, Any]) -> str:
    """Returns a table with a row for each codec: bytes per token, the size of the context in the ``report``, and the
    longest context that fits.
    """
    head = ("precision", "bytes per token", f"{report['context']:,} tokens", "longest context in memory")
    rows = [
        (
            c,
            f"{entry['bytes_per_token']:,}",
            format_bytes(entry["bytes"]),
            f"{report['fits'][c]:,} tokens" if report["fits"][c] else "none",
        )
        for c, entry in report["codecs"].items()
    ]
    cells = "".join(
        f'<tr class="{"lc-now" if row[0] == report["kv"]["codec"] else ""}"><th scope="row">{escape(row[0])}</th>'
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    drawn = f'<table class="lc-table"><thead><tr>{top}</tr></thead><tbody>{cells}</tbody></table>'
    return f'<div class="lc-wide" tabindex="0">{drawn}</div>'
