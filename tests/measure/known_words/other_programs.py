"""Files made by other programs of files that libraries made: by LibreOffice, and by Chromium."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from known_words import plain_makers
from known_words.source import Known, Made, Source, report

from localctx.library.parsers.old_office import find_office

CONVERSIONS = {
    "docx": ("odt", "doc", "rtf", "pdf"),
    "odt": ("docx", "pdf"),
    "pptx": ("odp", "ppt", "pdf"),
    "xlsx": ("ods", "xls"),
}
_FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<include ignore_missing="yes">/etc/fonts/fonts.conf</include><dir>{folder}</dir></fontconfig>"""
_SIDE_BY_SIDE = " body { columns: 2; font-size: 9pt } h2.later { break-before: auto } .columns { columns: auto }"


@contextmanager
def fonts(folder: Path | None) -> Iterator[None]:
    """While this lasts, programs that are started also find the fonts in ``folder``."""
    with tempfile.TemporaryDirectory() as place:
        if folder:
            (Path(place) / "fonts.conf").write_text(_FONTS.format(folder=folder.resolve()))
            os.environ["FONTCONFIG_FILE"] = str(Path(place) / "fonts.conf")
        yield
        os.environ.pop("FONTCONFIG_FILE", None)


def scripts_without_font(sources: Sequence[Source]) -> list[str]:
    """The scripts that no font of this machine has, so that nothing can be printed in them."""
    languages = {"latin": "en", "cyrillic": "ru", "greek": "el", "arabic": "ar", "chinese": "zh-tw"}
    listed = {name: _output(["fc-list", f":lang={tag}", "family"]) for name, tag in languages.items()}
    return [source.script for source in sources if not listed[source.script].strip()]


def _output(command: list[str]) -> str:
    return (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout if shutil.which(command[0]) else ""
    )


# --- LibreOffice


def convert(files: Sequence[Made], sources: Sequence[Source]) -> Iterator[Made]:
    """Every file that LibreOffice can convert, in each form that it is converted to."""
    by_script = {source.script: source for source in sources}
    unprinted = scripts_without_font(sources)
    for old, forms in CONVERSIONS.items():
        for form in forms:
            chosen = [f for f in files if f.format == old and not (form == "pdf" and _script(f) in unprinted)]
            made = _converted(chosen, form)
            if len(made) < len(chosen):
                print(f"LibreOffice makes no .{form} of {len(chosen) - len(made)} .{old} files")
            for file, data in ((file, made[file.name]) for file in chosen if file.name in made):
                known = _known(by_script[_script(file)], old, file.known) if form == "pdf" else file.known
                yield Made(f"{_script(file)}.{form}", f"LibreOffice of {old}", data, known)


def _script(file: Made) -> str:
    return file.name.partition(".")[0]


def _known(source: Source, old: str, known: Known) -> Known:
    """What a PDF says: pages instead of headings or slides."""
    first = 2 if old == "pptx" else 1
    pages = [str(number) for number in range(first, first + 4)]
    return report(source, "page", pages, note=old != "pptx", free=f"{source.running} {' '.join(pages)}")


def _converted(files: Sequence[Made], form: str) -> dict[str, bytes]:
    """What one run of LibreOffice makes of files, by the files' names. A LibreOffice without Calc makes no tables."""
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            (Path(folder) / file.name).write_bytes(file.data)
        profile = f"-env:UserInstallation={(Path(folder) / 'profile').as_uri()}"
        command = [find_office(), profile, "--headless", "--norestore", "--convert-to", form, "--outdir", folder]
        names = [str(Path(folder) / file.name) for file in files]
        subprocess.run([*command, *names], check=True, capture_output=True, timeout=600)
        made = {file.name: (Path(folder) / file.name).with_suffix(f".{form}") for file in files}
        return {name: path.read_bytes() for name, path in made.items() if path.is_file()}


# --- Chromium


def print_pages(sources: Sequence[Source]) -> Iterator[Made]:
    """Each report as a PDF that Chromium prints, a page a section, and in two columns."""
    from browser import FLAGS, find_chromium
    from playwright.sync_api import sync_playwright

    unprinted = scripts_without_font(sources)
    with (
        sync_playwright() as playwright,
        tempfile.TemporaryDirectory() as folder,
        playwright.chromium.launch(executable_path=find_chromium(playwright), args=FLAGS) as browser,
    ):
        tab = browser.new_page()
        for source in (s for s in sources if s.script not in unprinted):
            for way, style, pages in (("", "", "1234"), (", 2 columns", _SIDE_BY_SIDE, "1111")):
                file = Path(folder) / "page.html"
                file.write_bytes(plain_makers.html(source, way=style))
                tab.goto(file.as_uri())
                known = report(source, "page", pages, note=False)
                yield Made(f"{source.script}.pdf", f"Chromium{way}", tab.pdf(), known)
