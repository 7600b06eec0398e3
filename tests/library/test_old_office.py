"""Old Word and PowerPoint files: converted by LibreOffice where it is installed, else refused in a sentence."""

import subprocess
import time

import pytest
from made_files import docx, old_office
from office_files import pptx

from localctx.errors import Cancelled, DocumentError
from localctx.library.parsers import old_office as converter
from localctx.library.read_document import read_document

pytestmark = pytest.mark.slow

OFFICE = converter.find_office()
with_office = pytest.mark.skipif(not OFFICE, reason="LibreOffice is not installed")


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A .doc and a .ppt, written by LibreOffice."""
    folder = tmp_path_factory.mktemp("old")
    (folder / "a.docx").write_bytes(docx())
    (folder / "b.pptx").write_bytes(pptx())
    profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
    for name, kind in (("a.docx", "doc"), ("b.pptx", "ppt")):
        command = [OFFICE, profile, "--headless", "--convert-to", kind, "--outdir", folder, folder / name]
        subprocess.run(command, capture_output=True, timeout=100, check=True)
    if not {"a.doc", "b.ppt"} <= {file.name for file in folder.iterdir()}:
        pytest.skip("LibreOffice is installed without Writer or Impress")  # it ends well and writes nothing
    return folder


@with_office
def test_old_files_are_read_with_their_places(old):
    letter, talk = read_document(str(old / "a.doc")), read_document(str(old / "b.ppt"))
    assert (letter.row.encoding, letter.text) == ("doc", "Rivers\n\nThey are long.")
    assert [s.label for s in letter.spans] == ["Rivers"]
    assert talk.row.encoding == "ppt"
    slides = {s.label: talk.text[s.start : s.end].strip() for s in talk.spans if s.kind == "slide"}
    assert slides["1"] == "All rivers\n\nA talk"
    assert slides["2"].endswith("Notes: The Nile has 6,650 km.")
    assert "the hidden slide 4" in talk.row.unread_lines


@with_office
def test_a_conversion_that_is_cancelled_leaves_nothing(old, tmp_path, monkeypatch):
    monkeypatch.setattr(converter.tempfile, "tempdir", str(tmp_path))
    start = time.monotonic()
    with pytest.raises(Cancelled):
        converter.convert((old / "a.doc").read_bytes(), "doc", lambda: time.monotonic() > start + 0.5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("stream", "problem"), [("WordDocument", "Word"), ("PowerPoint Document", "PowerPoint")])
def test_without_libreoffice_and_when_damaged_they_are_refused(tmp_path, monkeypatch, stream, problem):
    (tmp_path / "a").write_bytes(old_office(stream))
    for office in {"", OFFICE}:
        monkeypatch.setattr(converter, "find_office", lambda office=office: office)
        with pytest.raises(DocumentError, match=f"a is an old {problem} file.*; save it as "):
            read_document(str(tmp_path / "a"))


def test_macros_are_told():
    assert converter.has_macros(b"x" + "_VBA_PROJECT".encode("utf-16-le"))
    assert not converter.has_macros(old_office("WordDocument"))
