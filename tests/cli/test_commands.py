"""The command as a person or a script meets it: codes, one clear line, one JSON object, and Ctrl-C."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess

import click
import pytest
from ask_in_process import PLAIN, session
from clock import seconds_since
from command_checks import assert_one_line, elsewhere
from processes import opened
from tiny_models import KEPT

from localctx import cli
from localctx.shape import PAGE
from localctx.store.store import Store

pytestmark = pytest.mark.process

Run = Callable[..., CompletedProcess]


@pytest.fixture(autouse=True)
def settings(home, monkeypatch):
    """Small answers with one thread, unless a test says otherwise."""
    for name, value in {**PLAIN, "max_tokens": 6}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))


@pytest.fixture
def asks(run, tiny_model, document) -> Run:
    """``asks(*more)``: a question on the document to the tiny model."""
    return lambda *more: run("ask", document, "How long is river 7?", "--model", tiny_model, *more)


def stored(home: Path) -> list[str]:
    """The texts in the library."""
    with closing(Store(home)) as store:
        return [store.documents.text(d.id) for d in store.documents.all()]


# Help


def test_help_is_instant_and_imports_nothing_heavy(localctx):
    def timed() -> float:
        start = time.monotonic()
        assert localctx("--help").returncode == 0
        return seconds_since(start)

    assert min(timed() for _ in range(5)) < 0.3
    code = "import sys, localctx.cli; localctx.cli.run(); print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True).stdout
    assert "Usage: localctx" in shown
    assert not {"torch", "numpy", "transformers", "sqlite_utils"} & set(shown.splitlines()[-1].split())


def test_the_command_alone_shows_the_help(run):
    done = run()
    assert done.returncode == 2
    assert done.stderr.rstrip() == run("--help").stdout.rstrip()


def commands(group: click.Group, path: str = "localctx") -> Iterator[tuple[str, click.Command]]:
    for name, it in group.commands.items():
        yield from commands(it, f"{path} {name}") if isinstance(it, click.Group) else [(f"{path} {name}", it)]


@pytest.mark.parametrize(("path", "it"), [*commands(cli.cli)])
def test_every_command_has_help_with_an_example(run, path, it):
    done = run(*path.split()[1:], "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: {path} ")
    assert re.search(rf"^  [^\n]*{path}( |$)", done.stdout, re.MULTILINE)
    assert all(o.help for o in it.params if isinstance(o, click.Option)), "an option without a word on it"


# What cannot be meant: 2. What went wrong: 1. Either way one line with the problem and the remedy


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (["ask"], "files and a question", "for example"),
        (["ask", "a.txt"], "files and a question", "for example"),
        (["ask", "a.txt", " "], "question is empty", "in quotes"),
        (["ask", "-", "-", "why"], "only once", "name it once"),
        (["ask", "a.txt", "why", "--frobnicate"], "--frobnicate", "localctx ask --help"),
        (["ask", "a.txt", "why", "--kv", "int3"], "'int3'", "auto, f32, bf16, int8, k8v4, int4, int2"),
        (["ask", "a.txt", "why", "--temperature", "11"], "temperature = '11'", "from 0 to 10"),
        (["ask", "a.txt", "why", "--temperature", "nan"], "temperature = 'nan'", "from 0 to 10"),
        (["ask", "a.txt", "why", "--temperature", "hot"], "'hot'", "a number from 0 to 10"),
        (["ask", "a.txt", "why", "--top-p", "0"], "top_p = '0'", "to 1"),
        (["ask", "a.txt", "why", "--max-tokens", "0"], "max_tokens = '0'", "from 1"),
        (["ask", "a.txt", "why", "--threads", "-1"], "threads = '-1'", "from 0"),
        (["prepare"], "Missing argument 'FILE...'", "localctx prepare --help"),
        (["library", "show"], "Missing argument 'DOCUMENT'", "localctx library show --help"),
        (["library", "rm"], "Missing argument", "localctx library rm --help"),
        (["frobnicate"], "'frobnicate'", "localctx --help"),
    ],
)
def test_usage_errors(run, home, arguments, problem, remedy):
    done = run(*arguments)
    assert_one_line(done, 2, problem, remedy)
    assert not done.stdout
    assert not home.exists()


BAD_FILES = {
    "missing.txt": (None, "missing.txt does not exist", "check the name"),
    "folder": (Path.mkdir, "folder is a folder", "library add"),
    "empty.txt": (lambda p: p.touch(), "empty.txt is empty", "a file with text"),
    "blank.txt": (lambda p: p.write_text(" \n\t\r\n  "), "blank.txt is empty", "a file with text"),
    "binary": (lambda p: p.write_bytes(bytes(range(256)) * 20), "binary is not text", "UTF-8"),
    "paper.pdf": (lambda p: p.write_bytes(b"%PDF-1.7\n%\xe2\xe3\n"), "paper.pdf is a damaged PDF", "to a new PDF"),
    "letter.docx": (lambda p: p.write_bytes(b"PK\3\4" + bytes(60)), "letter.docx is a damaged zip", "save it again"),
}


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize("verb", [["ask"], ["prepare"]])
def test_files_that_cannot_be_read(run, home, tmp_path, tiny_model, verb, name):
    make, problem, remedy = BAD_FILES[name]
    if make:
        make(tmp_path / name)
    words = [tmp_path / name] + ["why?"] * (verb == ["ask"])
    assert_one_line(run(*verb, *words, "--model", tiny_model), 1, problem, remedy)
    assert not home.exists(), "nothing was worth keeping"


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (
            ["--model", "smollm2-135m-instrukt"],
            "no model 'smollm2-135m-instrukt' .*smollm2-135m-instruct",
            "models list",
        ),
        (["--model", "./nowhere"], "no model './nowhere'", "models list"),
        (["--model", "nobody/nothing"], "nobody/nothing cannot be fetched .*offline", "give --model a folder"),
        (["--device", "cuda"], "no cuda", "--device cpu"),
        (["--device", "abacus"], "'abacus' is not a device", "--device cpu"),
        (["--dtype", "f64"], "no precision 'f64'", "bf16"),
    ],
)
def test_models_and_devices_that_are_not_there(run, document, tiny_model, arguments, problem, remedy):
    if "cuda" in arguments:
        import torch

        if torch.cuda.is_available():
            pytest.skip("there is a GPU")
    model = [] if "--model" in arguments else ["--model", tiny_model]
    assert_one_line(run("ask", document, "why?", *model, *arguments), 1, problem, remedy)


def test_a_device_file_is_no_document(run, tiny_model):
    done = run("ask", os.devnull, "why?", "--model", tiny_model)
    assert_one_line(done, 1, f"{os.devnull} is a device", "name a text file")


def test_a_setting_in_the_environment_or_the_file_is_checked_and_its_place_named(run, home, document, monkeypatch):
    home.mkdir()
    (home / "settings.toml").write_text("temprature = 1\n")
    assert_one_line(run("ask", document, "why?"), 2, r"settings\.toml: there is no setting 'temprature'", "temperature")
    (home / "settings.toml").unlink()
    monkeypatch.setenv("LOCALCTX_CHUNK", "many")
    assert_one_line(run("ask", document, "why?"), 2, "the environment: chunk = 'many'", "a whole number from 1")


# Text

GERMAN = "Die Straße führt über die Brücke. Größe, Übermaß und ein Ärgernis: schön!\r\n"
SWEDISH = "Hästen åt äpplen på ängen, och älgen drack ur ån. Är det så?\r\n"
FRENCH = "Où est le garçon ? Il a mangé à l'hôtel, près de la forêt, après l'été.\r\n"
POLISH = "Wieczorem Michał poszedł na długi spacer nad rzekę, która płynie przez środek miasta.\r\n"
RUSSIAN = "Широка страна моя родная, много в ней лесов, полей и рек.\r\n"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *(
            (t, e)
            for t in (GERMAN, RUSSIAN)
            for e in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32")
        ),
        *((t, "latin-1") for t in (GERMAN, SWEDISH, FRENCH)),
        (POLISH, "cp1250"),
        (RUSSIAN, "koi8-r"),
        ("“Nobody,” he said — “nobody at all” — paid €5 for the piano of the café…\r\n", "cp1252"),
    ],
)
@pytest.mark.parametrize("lines", [1, 9])
def test_text_is_read_right_in_its_encoding(tmp_path, text, encoding, lines):
    from localctx.library.read_document import read_document

    (tmp_path / "a.txt").write_bytes((text * lines).encode(encoding))
    assert read_document(str(tmp_path / "a.txt")).text == (text * lines).replace("\r\n", "\n")


def test_the_same_text_in_other_bytes_is_the_same_document(run, home, tmp_path, tiny_model):
    for i, data in enumerate((GERMAN.encode("utf-16"), GERMAN.encode("latin-1"), GERMAN.replace("\r", "").encode())):
        (tmp_path / f"{i}.txt").write_bytes(data)
    assert run("prepare", *tmp_path.glob("?.txt"), "--model", tiny_model).returncode == 0
    assert stored(home) == [GERMAN.replace("\r\n", "\n")]


def test_standard_input_is_a_document(run, home, tiny_model):
    done = run("ask", "-", "why?", "--model", tiny_model, "--json", stdin=GERMAN.encode("latin-1"))
    assert json.loads(done.stdout)["tokens"]["generated"] > 0
    assert stored(home) == [GERMAN.replace("\r\n", "\n")]
    assert_one_line(run("ask", "-", "why?", "--model", tiny_model), 1, "standard input is empty", "text in it")


# Answers

FIELDS = {
    "answered_by": str,
    "answer": str,
    "answers": list,
    "mode": str,
    "model": str,
    "adapter": type(None),
    "decoding": str,
    "confidence": type(None),
    "withheld": type(None),
    "stopped": str,
    "tokens": {
        "prompt": int,
        "reused": int,
        "prefilled": int,
        "generated": int,
        "longest": int,
        "drafted": int,
        "accepted": int,
    },
    "seconds": dict.fromkeys(("load", "parse", "search", "restore", "rank", "prefill", "first_token", "decode"), float),
    "kv": {
        "codec": str,
        "keeper": str,
        "engine": str,
        "bytes_per_token": int,
        "pages": {"device": int, "host": int, "disk": int},
        "bytes": {"device": int, "host": int, "disk": int},
        "sketch_bytes": int,
        "window": int,
        "chunk": int,
        "reading": str,
        "evicted": list,
        "map": {"where": str, "reused": int, "looks": list},
    },
    "memory": {"peak_bytes": int},
    "passages": list,
    "ranking": type(None),
    "citations": list,
    "sentences": list,
}


def types(value: object) -> object:
    return {k: types(v) for k, v in value.items()} if isinstance(value, dict) else type(value)


CITATION = {
    "document": str,
    "name": str,
    "page": type(None),
    "heading": type(None),
    "start": int,
    "end": int,
    "quote": str,
    "source": str,
    "weight": float,
}


def test_json_is_one_object_of_the_promised_fields_and_its_numbers_add_up(asks, document, tiny_model):
    first, again = (json.loads(asks("--json").stdout) for _ in range(2))
    for report in (first, again):
        assert types(report) == FIELDS
        t = report["tokens"]
        assert t["reused"] + t["prefilled"] == t["prompt"]
        assert t["generated"] == 6
        assert sum(report["kv"]["pages"].values()) == (t["prompt"] + t["generated"] - 1) // PAGE
        assert (report["mode"], report["model"], report["stopped"]) == ("full", str(tiny_model), "length")
        assert (report["kv"]["codec"], report["kv"]["keeper"]) == ("int8", "full")
        pages = report["kv"]["map"]["where"]
        assert [pages.count(letter) for letter in "dhs"] == list(report["kv"]["pages"].values())
        assert len(pages) == -(-(t["prompt"] + t["generated"] - 1) // PAGE)
        assert report["kv"]["map"]["reused"] == -(-t["reused"] // PAGE)
        assert len(report["kv"]["map"]["looks"]) == t["prompt"] // PAGE
        assert sum(report["kv"]["map"]["looks"]) == pytest.approx(1, abs=0.01)
        assert [types(c) for c in report["citations"]] == 3 * [CITATION]
        assert all(document.read_text()[c["start"] : c["end"]] == c["quote"] for c in report["citations"])
        assert report["seconds"]["first_token"] >= report["seconds"]["restore"] + report["seconds"]["prefill"]
    assert (first["tokens"]["reused"], first["kv"]["pages"]["disk"]) == (0, 0)
    assert (again["tokens"]["reused"], again["kv"]["pages"]["disk"]) == (KEPT, 10)
    assert again["answer"] == first["answer"]


def test_the_plain_answer_is_the_one_in_the_json(asks):
    plain = asks("--no-keep")
    assert plain.stdout == json.loads(asks("--json").stdout)["answer"] + "\n"
    assert plain.stderr == "localctx: the answer was cut at 6 tokens; see --max-tokens\n"
    assert asks("-q").stderr == ""


def test_a_computed_answer_has_its_query_on_a_line_of_its_own(run, tmp_path, tiny_model):
    (tmp_path / "a.csv").write_text("tree,height,felled\n" + "".join(f"T{i},{i * 7 % 5},no\n" for i in range(5)))
    asked = ("ask", tmp_path / "a.csv", "How many trees are not felled?", "--model", tiny_model)
    told = "SELECT COUNT(*) FROM t WHERE \"felled\" = 'no'"
    assert run(*asked).stdout.startswith(f"5 of 5 rows.\n\nQuery: {told}\n")
    assert run(*asked, "--quiet").stdout == "5 of 5 rows.\n"
    report = json.loads(run(*asked, "--json").stdout)
    assert (report["answer"], report["query"]) == ("5 of 5 rows.", told)


def test_a_seed_makes_sampling_repeatable(asks):
    answer = lambda *more: json.loads(asks("--json", *more).stdout)["answer"]  # noqa: E731
    sampled = [answer("--temperature", 2, "--max-tokens", 12, "--seed", seed) for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]
    assert answer("--temperature", 2, "--top-k", 1) == answer(), "the likeliest of one is the likeliest"


def test_no_keep_leaves_nothing(asks, home):
    assert asks("--no-keep").returncode == 0
    assert not home.exists()


def test_prepare_then_ask_in_another_process_reuses_every_full_page(home, run, document, tiny_model):
    prepared = elsewhere(home, "prepare", document, "--model", tiny_model, "--json")
    assert (prepared.returncode, prepared.stderr) == (0, "")
    (report,) = json.loads(prepared.stdout)["documents"]
    assert report["tokens"] == {"prompt": KEPT, "reused": 0, "prefilled": KEPT}
    assert report["kept"]["pages"] == 11
    asked = json.loads(run("ask", document, "why?", "--model", tiny_model, "--json").stdout)
    assert asked["tokens"]["reused"] == KEPT
    assert "653 of 653 tokens kept (653 were already)" in run("prepare", document, "--model", tiny_model).stdout


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_prepare_keeps_the_good_of_several_files(run, home, document, tmp_path, tiny_model, as_json):
    other = tmp_path / "other.txt"
    other.write_text("Canals are not rivers.\n" * 20)
    done = run("prepare", document, tmp_path / "missing.txt", other, "--model", tiny_model, *as_json)
    assert_one_line(done, 1, "missing.txt does not exist", "check the name")
    assert sorted(stored(home)) == sorted([document.read_text(), other.read_text()])
    if as_json:
        report = json.loads(done.stdout)
        assert [d["name"] for d in report["documents"]] == ["rivers.txt", "other.txt"]
        assert len(report["failed"]) == 1
    else:
        assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["rivers.txt", "other.txt"]


def test_a_document_beyond_the_window_is_refused_with_both_numbers(asks, run, tmp_path, tiny_model, home):
    asks()
    long = tmp_path / "long.txt"
    long.write_text("word " * 1000)
    for arguments in (["ask", long, "why?", "--mode", "full"], ["prepare", long]):
        done = run(*arguments, "--model", tiny_model)
        assert_one_line(done, 1, r"are 5,\d\d\d tokens, and .* reads at most 4,096", "longer window")
        assert not done.stdout
    assert json.loads(asks("--json").stdout)["tokens"]["reused"] == KEPT
    with closing(Store(home)) as store:
        assert store.health()["pages"] == 11


# Library and doctor


def test_the_library_lists_shows_and_removes(run, tmp_path, tiny_model, home):
    notes = tmp_path / "notes.md"
    notes.write_text("# Rivers\n" + "Long.\n" * 30 + "## Canals\n" + "Short.\n" * 30)
    assert "empty" in run("library", "list").stdout
    assert json.loads(run("library", "list", "--json").stdout) == []
    run("prepare", notes, "--model", tiny_model)

    (listed,) = json.loads(run("library", "list", "--json").stdout)
    assert (listed["name"], listed["path"], listed["chars"]) == ("notes.md", str(notes), len(notes.read_text()))
    (cache,) = listed["caches"]
    assert (cache["model"], cache["codec"], cache["state"]) == (str(tiny_model), "int8", "ready")
    assert (cache["pages"] - 1) * PAGE < cache["tokens"] <= cache["pages"] * PAGE
    plain = run("library", "list").stdout.splitlines()
    assert len(plain) == 2
    assert all(word in plain[1] for word in (listed["id"][:12], "notes.md", f" {cache['pages']} "))

    shown = json.loads(run("library", "show", listed["id"][:6], "--json").stdout)
    assert [s["label"] for s in shown["spans"]] == ["Rivers", "Canals"]
    plain = run("library", "show", "notes.md").stdout
    assert all(word in plain for word in (listed["id"], "2 headings", "int8", "ready"))

    assert_one_line(run("library", "show", "novel"), 1, "no document 'novel'", "library list")
    done = run("library", "rm", "notes.md", "novel")
    assert_one_line(done, 1, "no document 'novel'", "library list")
    assert re.fullmatch(
        r"notes\.md moved to the trash for 7 days, \d+\.\d KiB freed; rm --now erases at once\n", done.stdout
    )
    assert json.loads(run("library", "list", "--json").stdout) == []
    assert [p.name for p in (home / "pages").iterdir()] == ["CACHEDIR.TAG"]


def test_doctor_tells_where_things_are_and_that_they_are_whole(run, home, asks):
    report = json.loads(run("doctor", "--json").stdout)
    assert (report["home"], report["store"], report["problems"]) == (str(home), {"state": "empty"}, [])
    assert report["versions"]["torch"]
    assert report["memory"]["ram"]["total"] > report["memory"]["ram"]["free"] > 0
    (home / "models" / "half").mkdir(parents=True)
    asks()
    report = json.loads(run("doctor", "--json").stdout)
    (model,) = report["models"]["installed"]
    assert (model["path"], model["state"]) == (str(home / "models" / "half"), "damaged")
    store = report["store"]
    assert (store["state"], store["pages"], store["damaged_pages"]) == ("ok", 11, 0)
    assert str(home) in run("doctor").stdout


@pytest.mark.parametrize("verb", [["doctor", "--json"], ["library", "list"], ["library", "rm", "rivers.txt"]])
def test_a_damaged_database_is_one_line_and_no_traceback(run, asks, home, verb):
    asks()
    data = bytearray((home / "library.db").read_bytes())
    data[4096:] = b"\xa5" * len(data[4096:])
    (home / "library.db").write_bytes(data)
    done = run(*verb)
    assert done.returncode == 1
    if verb[0] == "doctor":
        report = json.loads(done.stdout)
        assert report["store"]["state"] == "unusable"
        assert "verify --repair" in report["problems"][0]
    else:
        assert_one_line(done, 1, r"library\.db is damaged", "verify --repair")


# A disk that takes no more


@pytest.fixture(scope="module")
def wide_model(tiny_model, tmp_path_factory) -> Path:
    """The tiny model with a window of 200,000 tokens."""
    folder = tmp_path_factory.mktemp("models") / "wide"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 200_000}))
    return folder


FULL = (1, "home cannot be written", "free some disk space")


@pytest.mark.parametrize(
    ("limit", "pages", "kept"), [(0, 10, 0), (4 << 10, 10, 0), (64 << 10, 10, 0), (1 << 20, 100, 80)]
)
def test_a_full_disk_costs_the_keeping_but_not_the_answer(
    run, home, document, tmp_path, wide_model, limit, pages, kept
):
    text = tmp_path / "lakes.txt"
    text.write_text("".join(f"Lake {i:04} is deep and also long.\n" for i in range(2 * pages)))
    ask = ["ask", text, "why?", "--model", wide_model, "--json", "-q", "--chunk", 512]
    run("prepare", document, "--model", wide_model)
    fresh = json.loads(run(*ask, "--no-keep").stdout)

    done = elsewhere(home, *ask, limit=limit)
    assert_one_line(done, *FULL)
    assert json.loads(done.stdout)["answer"] == fresh["answer"]

    report = json.loads(run("doctor", "--json").stdout)
    assert (report["store"]["damaged_pages"], report["problems"]) == (0, [])
    assert document.read_text() in stored(home)
    after, again = (json.loads(run(*ask).stdout) for _ in range(2))
    assert after["tokens"]["reused"] >= kept * PAGE
    assert again["tokens"]["reused"] >= pages * PAGE
    assert "(653 were already)" in run("prepare", document, "--model", wide_model).stdout, (
        "what was kept before is lost"
    )


def test_what_is_kept_is_still_read_from_a_full_disk(home, run, asks, document, tiny_model):
    asks()
    done = elsewhere(home, "ask", document, "why?", "--model", tiny_model, "--json", "-q", limit=0)
    assert_one_line(done, *FULL)
    assert json.loads(done.stdout)["tokens"]["reused"] == KEPT


def test_prepare_fails_in_one_line_on_a_full_disk(home, document, tiny_model):
    assert_one_line(elsewhere(home, "prepare", document, "--model", tiny_model, limit=64 << 10), *FULL)


# Ctrl-C, and a reader that has gone


@pytest.fixture
def endless(tmp_path) -> Path:
    """A document that takes the wide model half a minute."""
    path = tmp_path / "endless.txt"
    path.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(1500)))
    return path


def interrupted(process: subprocess.Popen, signals: int = 1) -> float:
    """Seconds from Ctrl-C to the end of the process."""
    start = time.monotonic()
    for _ in range(signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    process.wait(20)
    return seconds_since(start)


def command_line(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "localctx", *map(str, arguments)]


def test_ctrl_c_stops_within_a_second_and_keeps_what_was_read(home, endless, wide_model):
    arguments = command_line("ask", endless, "why?", "--model", wide_model, "--json")
    with opened(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while sum(f.stat().st_size for f in home.glob("pages/*.kv")) < 500_000:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        assert interrupted(process) < 1
        out, err = process.communicate()
    assert (process.returncode, err) == (130, b"")
    report = json.loads(out)
    assert types(report) == FIELDS
    assert (report["stopped"], report["answer"]) == ("cancelled", "")
    pages = report["tokens"]["prefilled"] // PAGE
    assert pages >= 40
    with session(home, wide_model) as s, closing(s.prepare(str(endless))) as events:
        from localctx.engine.events import Planned

        assert next(e for e in events if isinstance(e, Planned)).reused == pages * PAGE
    with closing(Store(home)) as store:
        assert store.health()["damaged_pages"] == 0
        assert [c.state for d in store.documents.all() for c in store.caches.of_document(d.id)] == ["writing"]


def test_progress_is_shown_on_a_terminal_and_a_second_ctrl_c_ends_at_once(home, endless, wide_model):
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 100))
    arguments = command_line("prepare", endless, "--model", wide_model)
    with opened(arguments, stdout=subprocess.PIPE, stderr=its) as process:
        os.close(its)
        shown = ""
        while shown.count("reading") < 50:
            shown += os.read(ours, 4096).decode(errors="replace")
        assert interrupted(process, signals=2) < 1
    rest = os.read(ours, 1 << 16).decode(errors="replace")
    os.close(ours)
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert re.search(r"reading .* [\d,]+/4\d,\d{3}, 0 reused [\d.]+k? ?tokens/s, \d\d:\d\d left", shown), shown[-500:]
    with closing(Store(home)) as store:
        assert store.health()["damaged_pages"] == 0


def test_a_reader_that_has_gone_is_no_error_to_tell_and_costs_nothing_kept(home, document, tiny_model, run):
    ours, its = os.pipe()
    os.close(ours)
    done = subprocess.run(
        command_line("ask", document, "why?", "--model", tiny_model, "-q"),
        stdout=its,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    assert done.stderr == b""
    again = json.loads(run("ask", document, "why?", "--model", tiny_model, "--json").stdout)
    assert again["tokens"]["reused"] == KEPT
    done = subprocess.run(command_line("library", "list"), stdout=its, stderr=subprocess.PIPE, timeout=60)
    os.close(its)
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_that_does_not_fit_the_disk_is_one_line(home):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command_line("--version"), stdout=full, stderr=subprocess.PIPE, text=True)
    assert_one_line(done, 1, "No space left", "where the output goes")
