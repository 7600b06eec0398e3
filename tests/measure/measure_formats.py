"""Are documents read faithfully? ``python measure_formats.py [--only FORMAT] [--fonts FOLDER] [--keep FOLDER]``.

Makes files of one report in five scripts (Latin, Cyrillic, Greek, Arabic, Chinese) by the libraries of the formats, by
LibreOffice and by Chromium. Reads each as ``library add`` does, and with MarkItDown where it can be imported
(``pip install 'markitdown[all]'``). Prints for each format and maker the means of recall, precision and order of words,
and how many planted words are cited in the right place, which MarkItDown does not tell. Recall and precision compare
multisets of words after NFKC; order is the longest common subsequence. Labels that a reader adds (``Footnote 1:``,
names of columns in each row) count neither way. MarkItDown's means leave out the files that it refuses.

``--keep FOLDER`` keeps the files, what was read of them, and what differs. ``--fonts FOLDER`` has fonts for scripts
which the system has no fonts for; without them, no PDFs are made in these scripts, which is said. Exit code 1: a mean
is below what is wanted.
"""

import argparse
import logging
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import harness  # noqa: F401  (puts the helpers on the path)
from known_words import odf_makers, office_makers, other_programs, plain_makers
from known_words.score import Score, mean, right_places, score
from known_words.source import Made, load, words

from localctx.errors import DocumentError
from localctx.library.parsers.old_office import find_office
from localctx.library.parsers.sandbox import ReadOptions
from localctx.library.read_document import read_document

WANTED = Score(recall=0.99, precision=0.99, order=0.98)
Reader = Callable[[Path, Made], tuple[str, tuple[int, int]]]


def make_files() -> list[Made]:
    """Every file, and a line about those that this machine cannot make."""
    sources = load()
    makers = (office_makers, odf_makers, plain_makers)
    files = [made for source in sources for maker in makers for made in maker.make(source)]
    if missing := other_programs.scripts_without_font(sources):
        print(f"no PDFs in these scripts, for want of a font (--fonts): {', '.join(missing)}")
    converted = list(other_programs.convert(files, sources)) if find_office() else []
    return [*files, *converted, *other_programs.print_pages(sources)]


def ours(path: Path, made: Made) -> tuple[str, tuple[int, int]]:
    """What localctx reads, and how many places are right."""
    document = read_document(str(path), ReadOptions(ocr="off"))
    return document.text, right_places(document.text, document.spans, made.known.places)


def find_peer() -> Reader | None:
    """MarkItDown as a reader, or None where it is not installed."""
    try:
        from markitdown import MarkItDown
    except ImportError:
        return None
    logging.disable(logging.WARNING)  # of what it parses with
    converter = MarkItDown()
    return lambda path, made: (converter.convert(path).markdown, (0, 0))


def read(reader: Reader, made: Made, folder: Path) -> tuple[Score | None, str]:
    """The score of one file, and its text. None: the reader refuses the file."""
    path = folder / made.name
    path.write_bytes(made.data)
    try:
        text, places = reader(path, made)
    except DocumentError as e:
        return Score(0, 0, 0, (0, len(made.known.places))), str(e)
    except Exception as e:
        return None, f"{type(e).__name__}: {e}"
    return score(text, made.known, places), text


def differences(text: str, made: Made) -> str:
    """The words that are missing in a text, and those that are too many."""
    found, wanted = Counter(words(text)), Counter(made.known.body) + Counter(made.known.notes)
    more = {word: count for word, count in (found - wanted).items() if word not in made.known.free}
    return f"missing: {dict(wanted - found)}\nadded: {more}\n"


def keep(folder: Path, made: Made, text: str, scored: Score | None) -> None:
    """Write a file, what was read of it, and what differs."""
    name = f"{made.name}-{''.join(c if c.isalnum() else '_' for c in made.maker)}"
    (folder / f"{name}.{made.format}").write_bytes(made.data)
    (folder / f"{name}.read.txt").write_text(f"{scored}\n{differences(text, made)}\n{text}\n")


def row(name: str, count: int, own: list[Score], peer: list[Score | None] | None) -> str:
    """A line of the table."""
    one = mean(own)
    cells = [name, str(count), *(f"{value:.3f}" for value in (one.recall, one.precision, one.order))]
    cells.append(f"{one.places[0]}/{one.places[1]}" if one.places[1] else "")
    readable = [scored for scored in peer or [] if scored]
    other = mean(readable) if readable else None
    cells += [f"{value:.3f}" for value in (other.recall, other.precision, other.order)] if other else ["-", "-", "-"]
    return f"| {' | '.join(cells)} |"


def measure(files: list[Made], kept: Path | None) -> Score:
    """Print the table, and return the mean of all files."""
    peer = find_peer()
    if not peer:
        print("MarkItDown is not installed")
    print("| format, made by | files | recall | precision | order | places | MarkItDown's recall | precision | order |")
    print("|---|---|---|---|---|---|---|---|---|")
    groups = defaultdict[str, list[Made]](list)
    for made in files:
        groups[f".{made.format}, {made.maker}"].append(made)
    every, others = list[Score](), list[Score | None]()
    for name, group in sorted(groups.items()):
        own, theirs = read_group(group, peer, kept)
        print(row(name, len(group), own, theirs), flush=True)
        every, others = every + own, others + theirs
    print(row("all", len(files), every, others))
    print(f"{len({made.format for made in files})} formats; MarkItDown reads {sum(map(bool, others))} of the files")
    return mean(every)


def read_group(group: list[Made], peer: Reader | None, kept: Path | None) -> tuple[list[Score], list[Score | None]]:
    """Our scores of some files, and MarkItDown's."""
    own, theirs = list[Score](), list[Score | None]()
    with tempfile.TemporaryDirectory() as folder:
        for made in group:
            scored, text = read(ours, made, Path(folder))
            assert scored, f"{made.name} ({made.maker}): {text}"
            own.append(scored)
            theirs += [read(peer, made, Path(folder))[0]] if peer else []
            if kept:
                keep(kept, made, text, scored)
    return own, theirs


def main() -> None:
    """Make the files, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a format, such as pdf")
    parser.add_argument("--fonts", type=Path, help="a folder with more fonts")
    parser.add_argument("--keep", type=Path, help="a folder for the files and what was read")
    given = parser.parse_args()
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    with other_programs.fonts(given.fonts):
        files = [made for made in make_files() if given.only in ("", made.format)]
    got = measure(files, given.keep)
    enough = all(getattr(got, name) >= getattr(WANTED, name) for name in ("recall", "precision", "order"))
    sys.exit(0 if enough and got.places[0] == got.places[1] else 1)


if __name__ == "__main__":
    main()
