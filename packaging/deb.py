"""Builds a Debian package of the last commit: ``python packaging/deb.py [--out dist]``. It needs dpkg-deb.

The package contains the wheel that ``packaging/release.py`` builds, the list of tested versions, a menu entry, and
scripts that create a virtual environment in /usr/lib/localctx at installation and delete it at removal. Every build of
the same commit has the same bytes.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from release import ROOT, git, release

CONTROL = """Package: localctx
Version: {version}
Architecture: all
Maintainer: The authors of localctx <localctx@localhost>
Depends: python3 (>= 3.11), python3-venv
Section: text
Priority: optional
Installed-Size: {kilobytes}
Description: ask long documents on your own machine
 localctx answers questions about long documents without a server. A document
 is read once, and its KV cache is kept, so that every later question starts
 where reading ended.
 .
 Its libraries are fetched from the Python package index at installation.
"""
ENTRY = """[Desktop Entry]
Type=Application
Version=1.5
Name=localctx
GenericName=Document assistant
Comment=Ask long documents on your own machine
Exec=/usr/bin/localctx ui
Icon=localctx
Terminal=true
Categories=Office;Utility;
"""
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: localctx

Files: *
Copyright: the authors of localctx
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
"""


def fill(tree: Path, wheel: Path, version: str) -> None:
    """Writes all files of the package into ``tree``."""
    share, doc = tree / "usr/share/localctx", tree / "usr/share/doc/localctx"
    icons = tree / "usr/share/icons/hicolor/scalable/apps"
    for folder in (share, doc, icons, tree / "usr/share/applications", tree / "usr/bin", tree / "DEBIAN"):
        folder.mkdir(parents=True)
    shutil.copyfile(wheel, share / wheel.name)
    (share / "constraints.txt").write_bytes(git("show", "HEAD:packaging/constraints.txt"))
    (icons / "localctx.svg").write_bytes(git("show", "HEAD:ui/icon.svg"))
    (tree / "usr/share/applications/localctx.desktop").write_text(ENTRY)
    (tree / "usr/bin/localctx").symlink_to("../lib/localctx/bin/localctx")
    (doc / "copyright").write_text(COPYRIGHT)
    (doc / "changelog.gz").write_bytes(gzip.compress(git("show", "HEAD:CHANGELOG.md"), mtime=0))
    kilobytes = sum(file.lstat().st_size for file in tree.rglob("*") if not file.is_dir()) // 1024
    (tree / "DEBIAN/control").write_text(CONTROL.format(version=version, kilobytes=kilobytes))
    for script in ("postinst", "prerm"):
        (tree / "DEBIAN" / script).write_bytes(git("show", f"HEAD:packaging/debian/{script}"))
        (tree / "DEBIAN" / script).chmod(0o755)


def build(out: Path, wheel: Path | None) -> Path:
    """Builds the Debian package in the folder ``out`` and returns its path. The package contains ``wheel``; if that is
    None, the wheel is built first.
    """
    if not shutil.which("dpkg-deb"):
        sys.exit("dpkg-deb is missing: build the package on Debian or Ubuntu")
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as folder:
        wheel = wheel or release(Path(folder, "made"))[1]
        version = wheel.name.split("-")[1]
        fill(tree := Path(folder, "tree"), wheel, version)
        out.mkdir(parents=True, exist_ok=True)
        package = out / f"localctx_{version}_all.deb"
        epoch = {"SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").decode().strip()}
        little = ["-Zgzip", "-z1"]  # a wheel is compressed already
        command = ["dpkg-deb", *little, "--build", "--root-owner-group", tree, package]
        subprocess.run(command, check=True, env={**os.environ, **epoch}, stdout=subprocess.DEVNULL)
    return package


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--wheel", type=Path, help="the wheel of this commit, if it was built already")
    given = parser.parse_args()
    print(build(given.out, given.wheel))


if __name__ == "__main__":
    main()
