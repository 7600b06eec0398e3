"""Builds the wheel and the sdist of the last commit into a folder: ``python packaging/release.py [--out dist]``.

Every build of the same commit has the same bytes: file times are the commit's time, and owners, permissions and order
are fixed. This requires the same version of setuptools, which is printed. The script also writes a bill of materials
(CycloneDX) and SHA256SUMS. It stops if CHANGELOG.md has no section for the version. It needs git, and ``pip install
build setuptools``.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from importlib.metadata import version as installed_version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def read_version(source: Path) -> str:
    """Returns the version in ``source``/localctx/version.py, the only file that states it."""
    found = re.search(r'^__version__ = "([^"]+)"$', (source / "localctx" / "version.py").read_text(), re.MULTILINE)
    return found[1] if found else sys.exit("localctx/version.py has no __version__")


def check_changelog(source: Path, version: str) -> None:
    """Exit with a message if CHANGELOG.md has no section for ``version``, or an empty one."""
    text = (source / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"^## \[?{re.escape(version)}\]?.*?$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if not section or not section[1].strip():
        sys.exit(f"CHANGELOG.md says nothing of {version}: rename its section Unreleased, and commit that")


def build(kind: str, source: Path, out: Path, epoch: str) -> Path:
    """Builds a ``wheel`` or an ``sdist`` from ``source`` in the folder ``out``. Returns the path of the built file."""
    os.umask(0o022)  # permissions in the archives are those of the files
    command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(out), str(source)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONHASHSEED": "0", "TZ": "UTC"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\nthe {kind} could not be built")
    (made,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def repack(archive: Path, epoch: int) -> None:
    """Rewrites a tar.gz so that its bytes are reproducible: one time for all files, no owners, plain permissions, and
    names in order.
    """
    packed = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with archive.open("wb") as file, gzip.GzipFile("", "wb", mtime=epoch, fileobj=file) as zipped:
        zipped.write(packed.getvalue())


def bill_of_materials(wheel: Path, source: Path, version: str) -> str:
    """Returns a bill of materials in CycloneDX 1.6: the packages that the wheel requires, with the tested versions. It
    has no build time and no licences of other packages, so it is the same wherever it is built. `localctx doctor
    --licences --json` reports the licences of an installation.
    """
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"localctx-{version}.dist-info/METADATA").decode()
    lines = (source / "packaging" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if "==" in line)
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in re.findall(r"^Requires-Dist: ([\w.-]+)", metadata, re.M)}
    parts = []
    for name in sorted(names | tested.keys()):
        purl = f"pkg:pypi/{name}" + (f"@{tested[name]}" if name in tested else "")
        part = {"type": "library", "bom-ref": purl, "name": name, "scope": "required" if name in tested else "optional"}
        parts.append({**part, **({"version": tested[name]} if name in tested else {}), "purl": purl})
    own = f"pkg:pypi/localctx@{version}"
    about = {"type": "application", "bom-ref": own, "name": "localctx", "version": version, "purl": own}
    about["licenses"] = [{"expression": "Apache-2.0"}]
    direct = [part["bom-ref"] for part in parts if part["name"] in names]
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": about}}
    return (
        json.dumps({**bill, "components": parts, "dependencies": [{"ref": own, "dependsOn": direct}]}, indent=1) + "\n"
    )


def release(out: Path, report: Callable[[str], None] = print) -> list[Path]:
    """Builds the sdist, the wheel (from the sdist), the bill of materials and SHA256SUMS in ``out``. Returns the four
    paths.
    """
    epoch = git("log", "-1", "--format=%ct").decode().strip()
    if git("status", "--porcelain"):
        report("changes that are not committed are left out")
    with tempfile.TemporaryDirectory() as folder:
        source, unpacked, made = (Path(folder, name) for name in ("source", "unpacked", "made"))
        for part in (source, unpacked, made):
            part.mkdir()
        with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", "HEAD"))) as tree:
            tree.extractall(source, filter="data")
        version = read_version(source)
        check_changelog(source, version)
        sdist = build("sdist", source, made, epoch)
        repack(sdist, int(epoch))
        with tarfile.open(sdist) as tree:
            tree.extractall(unpacked, filter="data")
        wheel = build("wheel", unpacked / f"localctx-{version}", made, epoch)
        out.mkdir(parents=True, exist_ok=True)
        files = [Path(shutil.copy(file, out)) for file in (sdist, wheel)]
        files.append(out / f"localctx-{version}.cdx.json")
        files[-1].write_text(bill_of_materials(wheel, source, version), encoding="utf-8")
    sums = out / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n" for f in files))
    report(f"built with setuptools {installed_version('setuptools')}, {git('rev-parse', 'HEAD').decode().strip()}")
    return [*files, sums]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    print((release(parser.parse_args().out)[-1]).read_text(), end="")


if __name__ == "__main__":
    main()
