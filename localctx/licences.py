"""Lists the licences of localctx, its installed dependencies, its bundled parts and the installed models.

The licences are reported as table rows and as a software bill of materials (CycloneDX 1.6).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from localctx.models.adapter_folders import SHIPPED
from localctx.models.catalog import load_catalog
from localctx.models.hub.installed import list_installed
from localctx.settings import Settings
from localctx.version import __version__

NOT_TOLD = "not told"
OWN = "Apache-2.0"
_CLASSIFIER = "License :: "
_MAX_NAME = 80  # characters; a longer ``License`` field is the licence's full text
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Component:
    """A part of this installation, such as a package or a model, with the licence that its maker states.
    ``is_expression`` is True if the licence is an SPDX expression. ``needs`` has the names of the parts it depends on.
    """

    name: str
    version: str
    licence: str
    home: str = ""
    kind: str = "library"
    is_expression: bool = False
    needs: tuple[str, ...] = field(default=(), repr=False)

    @property
    def ref(self) -> str:
        """The part's reference in a bill of materials: a package URL, or kind and name."""
        name = f"{self.name}@{self.version}" if self.version else self.name
        return f"pkg:pypi/{name}" if self.kind in ("library", "application") else f"{self.kind}:{name}"


def list_components(settings: Settings) -> list[Component]:
    """Returns all parts: localctx, packages by name, bundled parts, and installed models."""
    return [*_packages(), *_bundled(), *_models(settings)]


def bill_of_materials(components: list[Component]) -> dict[str, Any]:
    """Returns a bill of materials of ``components`` as a CycloneDX 1.6 object (https://cyclonedx.org/docs/1.6/json/).
    It has no times or serial number, so the same parts give the same object.
    """
    refs = {c.name: c.ref for c in components if c.kind in ("library", "application")}
    needs = [{"ref": c.ref, "dependsOn": sorted(refs[n] for n in c.needs)} for c in components if c.needs]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _entry(components[0])},
        "components": [_entry(c) for c in components[1:]],
        "dependencies": needs,
    }


def licence_of(package: Distribution) -> tuple[str, bool]:
    """Returns a package's licence, and whether the licence is an SPDX expression. The licence is NOT_TOLD if the
    package's metadata has none.
    """
    told: Any = package.metadata
    if expression := told.get("License-Expression"):
        return expression, True
    name = (told.get("License") or "").strip()
    if name and name.upper() != "UNKNOWN" and "\n" not in name and len(name) <= _MAX_NAME:
        return name, False
    known = [c for c in told.get_all("Classifier") or () if c.startswith(_CLASSIFIER)]
    return ", ".join(c.rsplit(" :: ", 1)[1] for c in known) or NOT_TOLD, False


def _packages() -> list[Component]:
    """Returns localctx and its installed dependencies, direct and indirect."""
    found, waiting = dict[str, Distribution](), ["localctx"]
    while waiting:
        name = waiting.pop()
        if name not in found:
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                continue
            waiting += _needs(found[name], extras=name == "localctx")
    own = Component("localctx", __version__, OWN, kind="application", is_expression=True)
    parts = {name: _component(name, package, found) for name, package in sorted(found.items()) if name != "localctx"}
    needs = tuple(sorted(parts.keys() & set(_needs(found["localctx"], extras=True)))) if "localctx" in found else ()
    return [Component(**{**vars(own), "needs": needs}), *parts.values()]


def _component(name: str, package: Distribution, found: dict[str, Distribution]) -> Component:
    licence, is_expression = licence_of(package)
    needs = tuple(sorted(found.keys() & set(_needs(package))))
    return Component(name, package.version, licence, _home(package), is_expression=is_expression, needs=needs)


def _needs(package: Distribution, extras: bool = False) -> Iterator[str]:
    """Yield the names of the packages that ``package`` requires. Optional packages are included
    if ``extras`` is True.
    """
    for line in package.requires or ():
        if (extras or "extra ==" not in line) and (name := _NAME.match(line)):
            yield re.sub(r"[-_.]+", "-", name[0]).lower()


def _home(package: Distribution) -> str:
    told: Any = package.metadata
    if home := told.get("Home-page"):
        return home
    urls = dict(line.split(", ", 1) for line in told.get_all("Project-URL") or () if ", " in line)
    by_name = {name.lower(): url for name, url in urls.items()}
    names = ("homepage", "home", "repository", "source", "source code", "github", *by_name)
    return next((by_name[name] for name in names if name in by_name), "")


def _bundled() -> Iterator[Component]:
    """Yield the bundled parts that have their own licence, and the sample text."""
    for folder in sorted(SHIPPED.iterdir()):
        if (folder / "README.md").is_file():
            told = re.search(r"^license: *(\S+)$", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
            yield Component(folder.name, "", told[1].upper() if told else NOT_TOLD, kind="machine-learning-model")
    yield Component("sample.md", "", OWN, kind="file")


def _models(settings: Settings) -> Iterator[Component]:
    """Yield the models in the models folder. Licences come from the catalogue; NOT_TOLD for a
    model that is not in it.
    """
    known = load_catalog()
    for model in list_installed(settings.models):
        name = Path(model.name).name
        licence = known[name].licence if name in known else NOT_TOLD
        yield Component(model.name, "", licence, kind="machine-learning-model")


def _entry(part: Component) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": part.kind, "bom-ref": part.ref, "name": part.name}
    if part.version:
        entry |= {"version": part.version, "purl": part.ref}
    if part.licence != NOT_TOLD:
        named = {"expression": part.licence} if part.is_expression else {"license": {"name": part.licence}}
        entry["licenses"] = [named]
    if part.home:
        entry["externalReferences"] = [{"type": "website", "url": part.home}]
    return entry
