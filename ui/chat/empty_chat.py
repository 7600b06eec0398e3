"""Provides the HTML of an empty chat: a place to drop a document, and a link that asks a sample question."""

from pathlib import Path

SAMPLE_FILE = str(Path(__file__).parents[1] / "sample.md")
SAMPLE_QUESTION = "Who lights the lamp of the harbour?"
SAMPLE = "sample"  # the action of the link to the sample
_ICON = (
    '<svg viewBox="0 0 48 48" aria-hidden="true"><path d="M14 6h14l8 8v28H14z"/><path d="M28 6v8h8"/>'
    '<path d="M25 20v14M19 28l6 6 6-6"/></svg>'
)
WELCOME = f"""<section class="lc-empty">
<button type="button" class="lc-drop" data-do="open">{_ICON}
<strong>Drop a document. It stays on this computer.</strong>
<span>PDF, Word, slides, spreadsheet, e-mail, EPUB or text. Or choose a file.</span></button>
<p>Nothing at hand? <button type="button" class="lc-link" data-action="{SAMPLE}">Try the sample</button></p>
</section>"""
