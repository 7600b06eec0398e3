"""Walks through what people do in the window, and prints a table: what worked, and the seconds that it took.

    python measure_user_journeys.py [--novel novel.txt] [--large 50] [--pictures FOLDER]

It needs Chromium and the default model. The documents are made here, except for the novel. With ``--pictures``, the
window after each step is kept as a picture.
"""

import argparse
import io
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import harness  # noqa: F401
from browser import Served, Tab, launched, served
from made_files import docx, epub, pdf
from measure_large_file import text_of
from office_files import xlsx
from PIL import Image

from localctx.settings import load_settings

LEASE = """# Tenancy agreement: {flat}

This agreement is made on 3 March 2026 between {landlord} (the landlord) and {tenant} (the tenant).

## 1. Rent
The tenant pays a monthly rent of £{rent}, on the first day of each month, by bank transfer.

## 2. Deposit
The tenant pays a deposit of £{deposit}. It is returned within 14 days of the end of the tenancy.

## 3. Use of the flat
Smoking is not allowed inside the flat. {pets}

## 4. Notice
Either party may end the tenancy by giving {notice} notice in writing.
"""
PARK = LEASE.format(
    flat="12 Park Lane",
    landlord="Helen Marsh",
    tenant="Tom Reed",
    rent="1,150",
    deposit="1,725",
    pets="Pets may be kept only with the written consent of the landlord.",
    notice="two months'",
)
MILL = LEASE.format(
    flat="7 Mill Road",
    landlord="Peter Frost",
    tenant="Ines Gray",
    rent="980",
    deposit="1,960",
    pets="Pets are not allowed.",
    notice="three months'",
)
SUBJECTS = (
    "gate",
    "sluice",
    "fish pass",
    "bridge",
    "bank",
    "gauge",
    "turbine",
    "screen",
    "pump",
    "store",
    "road",
    "mast",
)
CHAPTERS = {"The harbour": "lamp", "The storm": "boat", "The return": "bell"}


@dataclass
class Journeys:
    """The rows of the table, and the tab in which the steps are done."""

    tab: Tab
    pictures: Path | None
    rows: list[str] = field(default_factory=list)

    def step(self, name: str, do: Callable[[], str], wanted: str = "") -> None:
        """Do a step, and print its row: ``do`` returns what the user reads, which must have ``wanted``."""
        start = time.monotonic()
        try:
            read = " ".join(do().split())
            worked = "yes" if wanted.lower() in read.lower() else f"NO: {read[:300]}"
        except Exception as e:
            worked = f"NO: {type(e).__name__} {str(e)[:200]}"
        seconds = time.monotonic() - start
        print(f"| {name} | {worked} | {seconds:.1f} |", flush=True)
        self.rows.append(worked)
        if self.pictures:
            self.tab.page.screenshot(path=self.pictures / f"{len(self.rows):02}.png")

    def drop(self, *files: tuple[str, bytes]) -> str:
        """Drop files into a new chat, and wait until questions can be asked; what the card of the documents says."""
        self.tab.page.locator("#new-chat").click()
        self.tab.page.wait_for_function("!document.querySelectorAll('#conversation [data-testid=user]').length")
        for name, data in files:
            self.tab.drop(name, data)
        self.tab.wait_for("Ready", "#ready-card", 600)
        return self.tab.page.locator("#ready-card").inner_text()

    def ask(self, question: str) -> str:
        """Ask; what the last answer says."""
        self.tab.ask(question)
        self.tab.answer()
        self.tab.page.wait_for_timeout(300)
        return self.tab.page.locator("#conversation [data-testid=bot]").last.inner_text()


def report() -> bytes:
    """Returns a PDF of 12 pages, one for each of SUBJECTS, with its height."""
    pages = [
        [
            f"{n}. The {subject}",
            f"The {subject} of the weir was inspected in May {2010 + n}.",
            f"Its height above the bed of the river is {n}.{n % 10} metres.",
            *(f"The {subject} was painted, oiled and measured again in part {i}." for i in range(12)),
        ]
        for n, subject in enumerate(SUBJECTS, 1)
    ]
    return pdf(["\n".join(page) for page in pages])


def invoices() -> bytes:
    """Returns a workbook with 200 invoices."""
    towns = ("Bath", "Leeds", "York", "Hull")
    rows = [[f"INV-{i:03}", towns[i % 4], 100 + 7 * i % 500, i] for i in range(1, 201)]
    return xlsx({"Invoices": [["Number", "Town", "Amount", "Day"], *rows]})


def book() -> bytes:
    """Returns a book of three chapters, each of which names who keeps a thing."""
    told = {
        title: f"<p>Ann Marlow keeps the {thing} of the {title.lower().removeprefix('the ')}.</p>" * 3
        + "<p>The sea was calm and the gulls were asleep on the roof of the old house.</p>" * 40
        for title, thing in CHAPTERS.items()
    }
    return epub(told)


def picture() -> bytes:
    """Returns a photograph without any words."""
    file = io.BytesIO()
    Image.new("RGB", (320, 240), (90, 130, 160)).save(file, "PNG")
    return file.getvalue()


def documents(journeys: Journeys, novel: Path | None) -> None:
    """The steps with one or several documents."""
    step, drop, ask = journeys.step, journeys.drop, journeys.ask
    step("drop a tenancy agreement", lambda: drop(("park-lane.md", PARK.encode())), "Ready")
    step("... What is the rent?", lambda: ask("What is the rent?"), "1,150")
    step("... May I keep pets?", lambda: ask("May I keep pets?"), "written consent")
    step(
        "... What is the name of the landlord's dog?",
        lambda: ask("What is the name of the landlord's dog?"),
        "no clear answer",
    )
    leases = (("park-lane.md", PARK.encode()), ("mill-road.md", MILL.encode()))
    step("drop it with a second one", lambda: drop(*leases), "Ready")
    step("... Which of the two has the lower rent?", lambda: ask("Which of the two has the lower rent?"), "mill")
    step("... Are pets allowed?", lambda: ask("Are pets allowed?"), "mill-road")
    step("... What are the main differences?", lambda: ask("What are the main differences?"), "980")
    step("drop a report of 12 pages (PDF)", lambda: drop(("report.pdf", report())), "Ready")
    step("... How high is the fish pass?", lambda: ask("How high is the fish pass above the bed?"), "3.3")
    step("... Summarize it", lambda: ask("Summarize this document."), "weir")
    minutes = (
        ("Heading 1", "Minutes"),
        ("", "The council met on 4 May. It voted for the new bridge, which costs £90,000."),
    )
    step("drop a DOCX", lambda: drop(("minutes.docx", docx(minutes))), "Ready")
    step("... What does the bridge cost?", lambda: ask("What does the new bridge cost?"), "90,000")
    step("drop an XLSX of 200 rows", lambda: drop(("invoices.xlsx", invoices())), "Ready")
    step("... amount of one row", lambda: ask("What is the amount of invoice INV-120?"), "440")
    total = sum(100 + 7 * i % 500 for i in range(1, 201))
    step("... sum of a column", lambda: ask("What is the total amount?"), f"{total:,}")
    step("drop an EPUB", lambda: drop(("book.epub", book())), "Ready")
    step("... Who keeps the bell?", lambda: ask("Who keeps the bell of the return?"), "Marlow")
    if novel:
        step("drop a novel", lambda: drop(("novel.txt", novel.read_bytes())), "Ready")
        step("... a question about it", lambda: ask("Who is Dick?"), "Dick")


def mishaps(journeys: Journeys) -> None:
    """The steps with files that cannot be read."""
    tab = journeys.tab
    bad = (("broken.pdf", report()[:400]), ("empty.txt", b""), ("photo.png", picture()))

    def drop_bad() -> str:
        tab.page.locator("#new-chat").click()
        for name, data in bad:
            tab.drop(name, data)
        for name, _ in bad:
            tab.wait_for(name, "#ready-card")
        return tab.wait_for("damaged", "#ready-card")

    journeys.step("drop a corrupt, an empty and a picture file: each is named with its reason", drop_bad, "empty")


def two_tabs(journeys: Journeys, other: Tab, url: str) -> None:
    """A chat that goes on in a second tab."""
    journeys.drop(("park-lane.md", PARK.encode()))
    journeys.ask("What is the deposit?")
    chat = journeys.tab.page.url

    def read() -> str:
        other.open(chat)
        return other.wait_for("1,725", "#conversation")

    journeys.step("the same chat in a second tab", read, "1,725")


@contextmanager
def killed_and_started(window: Served, home: Path) -> Iterator[None]:
    """Kill the server, and start another one on its port."""
    window.process.send_signal(signal.SIGKILL)
    window.process.wait()
    with served(home, "--port", window.origin.rpartition(":")[2]):
        yield


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--novel", type=Path)
    parser.add_argument("--large", type=int, default=50, help="megabytes of the large file (50); 0: none")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--mishaps", action="store_true", help="leave out the steps with documents that can be read")
    given = parser.parse_args()
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        home = Path(folder) / "home"
        home.mkdir()
        (home / "models").symlink_to((load_settings().home / "models").resolve())
        print("| step | worked | s |\n|---|---|---|")
        with served(home) as window:
            context = browser.new_context(viewport={"width": 1280, "height": 850})
            journeys = Journeys(Tab(context.new_page()), given.pictures)
            journeys.step("open the window", lambda: journeys.tab.open(window.url).page.title(), "localctx")
            if not given.mishaps:
                documents(journeys, given.novel)
            mishaps(journeys)
            two_tabs(journeys, Tab(context.new_page()), window.url)
            if given.large:
                large_file(journeys, Path(folder), given.large, Tab(browser.new_page()).open(window.url))
            kill(journeys, window, home)
        print(f"{sum(row == 'yes' for row in journeys.rows)} of {len(journeys.rows)} worked")


def large_file(journeys: Journeys, folder: Path, megabytes: int, other: Tab) -> None:
    """Another chat, while a large file is indexed."""
    large = folder / "large.txt"
    large.write_text(text_of(megabytes), encoding="utf-8")
    other.page.locator("#question input[type=file]").first.set_input_files(str(large))
    other.wait_for("large", "#ready-card", 120)
    journeys.step(
        f"a question in another chat, while {megabytes} MB are indexed",
        lambda: journeys.ask("What is the rent?"),
        "1,150",
    )


def kill(journeys: Journeys, window: Served, home: Path) -> None:
    """What the page shows after its server was killed, and after another one was started."""
    tab = journeys.tab
    tab.box.fill("What is the notice?")
    tab.page.wait_for_timeout(1500)
    with killed_and_started(window, home):
        lost = "kill -9 while a question is typed, and start again: what was typed is there"
        journeys.step(lost, lambda: back(tab, "What is the notice?"), "What is the notice?")
        journeys.step("... it is asked", lambda: journeys.ask("What is the notice?"), "two months")


def back(tab: Tab, typed: str) -> str:
    """Wait until the page goes on by itself; what is in its box."""
    script = (
        "typed => !document.querySelector('#lost') && document.querySelector('#question textarea')?.value === typed"
    )
    tab.page.wait_for_function(script, arg=typed, timeout=60000)
    return tab.box.input_value()


if __name__ == "__main__":
    main()
