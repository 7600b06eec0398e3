"""Lists the models a user can choose: from the catalogue, on this machine, and one given by name."""

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localctx.errors import ModelError
from localctx.machine import Machine
from localctx.models.catalog import CatalogEntry, load_catalog
from localctx.models.choice.engine_choice import choose_engine
from localctx.models.choice.model_advice import Advice
from localctx.models.choice.model_estimate import ModelEstimate, estimate, estimate_packed, usefulness
from localctx.models.choice.sizing import stored_parameters
from localctx.models.files.gguf_file import find_gguf, open_gguf
from localctx.models.hub.download import SourceFailed, look_up
from localctx.models.hub.installed import (
    MANIFEST,
    InstalledModel,
    disk_errors,
    folder_bytes,
    folder_name,
    is_complete,
    list_installed,
)
from localctx.models.hub.resolve import check_known, hub_source
from localctx.models.llama_cpp.library import llama_cpp_is_installed
from localctx.network import refuse_offline
from localctx.settings import Settings

_GENERATES = ("CausalLM", "ConditionalGeneration", "LMHeadModel")  # name endings of generative architectures
_REMEDY = "type owner/name of the Hugging Face hub, or the path of a folder or a .gguf file"


@dataclass(frozen=True)
class ListedModel:
    """A model that a user can choose. ``state`` is ``installed``, ``partial`` (a download of which ``present`` bytes
    are here), ``damaged`` or ``available``. ``estimate`` is None if the size of the model is unknown. ``problem`` says
    why it cannot run on this machine.
    """

    entry: CatalogEntry
    state: str
    estimate: ModelEstimate | None = None
    present: int = 0
    problem: str = ""

    @property
    def name(self) -> str:
        """The value of the setting ``model`` that chooses this model."""
        return self.entry.name


def list_models(settings: Settings, advice: Advice) -> list[ListedModel]:
    """Returns the catalogue's chat models, best for this machine first, then other models on this machine, then the
    model named in the settings. Models that ``advice`` does not cover are estimated for its machine.
    """
    local = {model.name: model for model in list_installed(settings.models)}
    known = [_known(e, local.pop(folder_name(e.name), None), advice) for e in load_catalog().values()]
    models = sorted((m for m in known if m.entry.kind == "chat"), key=lambda m: usefulness(m.estimate))
    models += [m for other in local.values() if (m := _other(other, advice.machine))]
    if settings.model not in {m.name for m in models}:
        with suppress(ModelError):
            models.append(find_model(settings.model, settings, advice.machine))
    return models


def find_model(name: str, settings: Settings, machine: Machine) -> ListedModel:
    """Returns the model that a user named by its path or hub id, with an estimate for ``machine``. If the model is not
    installed, its hub id is looked up on the hub. Raises ModelError with the reason if there is no such model.
    """
    source = hub_source(name)
    installed = is_complete(settings.models / folder_name(name))
    if source and not installed and not Path(name).expanduser().exists():
        return _on_hub(name, machine)
    try:
        checked, present = check_known(name, settings.models)
        choose_engine(checked, settings.engine)
    except ModelError as error:
        raise ModelError(error.problem, _REMEDY) from error
    if entry := load_catalog().get(checked):
        return ListedModel(entry, "installed" if present else "available", estimate(entry, machine))
    folder = Path(checked) if Path(checked).exists() else settings.models / folder_name(checked)
    with disk_errors(settings.models):
        return _described(checked, folder, machine)


def _known(e: CatalogEntry, local: InstalledModel | None, advice: Advice) -> ListedModel:
    state = {"ready": "installed"}.get(local.state, local.state) if local else "available"
    return ListedModel(e, state, advice.models.get(e.name), local.bytes if local else 0)


def _on_hub(name: str, machine: Machine) -> ListedModel:
    source = hub_source(name)
    assert source
    try:
        refuse_offline(f"the hub would be asked about {name}")
        entry = look_up(name, source)
    except SourceFailed as error:
        remedy = f"check the name and the network, or {_REMEDY}"
        raise ModelError(f"{name} cannot be downloaded: {error}", remedy) from error
    packed = bool(source.pattern)
    listed = _sized(entry, machine, packed=packed)
    return replace(listed, state="available", problem=_llama_problem() if packed else "")


def _other(model: InstalledModel, machine: Machine) -> ListedModel | None:
    """Returns a model in the models folder that is not in the catalogue. None for a model that generates no text, and
    for a partial download, whose name is unknown.
    """
    source = _read(model.path / MANIFEST).get("source", {})
    gguf = find_gguf(str(model.path))
    name = str(model.path) if gguf else source.get("repo") or model.name
    if model.state == "damaged":
        return ListedModel(_bare(name, model.bytes), "damaged")
    if model.state == "partial" or not (gguf or _generates(_read(model.path / "config.json"))):
        return None
    try:
        return _described(name, model.path, machine)
    except (ModelError, OSError) as error:
        problem = error.problem if isinstance(error, ModelError) else str(error)
        return ListedModel(_bare(name, model.bytes), "installed", problem=problem)


def _described(name: str, path: Path, machine: Machine) -> ListedModel:
    """Returns the model at ``path`` as a ListedModel, from its config or GGUF. Raises OSError, and ModelError for a
    model that generates no text.
    """
    source = _read(path / MANIFEST).get("source", {})
    if gguf := find_gguf(str(path)):
        file, title = open_gguf(gguf), str(gguf.stem)
        facts: dict[str, Any] = {"title": title, "family": file.family, "parameters": file.header.weights}
        entry = replace(_bare(name, file.nbytes), licence=str(source.get("licence", "")), **facts)
        packed = choose_engine(str(gguf), "auto") == "llama.cpp"
        return replace(_sized(entry, machine, packed=packed), problem=_llama_problem() if packed else "")
    config = _read(path / "config.json")
    if not _generates(config):
        raise ModelError(f"{name} is not a model that answers", "choose another")
    title = str(source.get("file") or Path(name).name).removesuffix(".gguf")
    facts = {"title": title, "family": str(config.get("model_type", "")), "parameters": stored_parameters(path)}
    return _sized(replace(_bare(name, folder_bytes(path)), licence=str(source.get("licence", "")), **facts), machine)


def _generates(config: dict[str, Any]) -> bool:
    kinds = config.get("architectures") or []
    return not kinds or any(str(kind).endswith(_GENERATES) for kind in kinds)


def _sized(entry: CatalogEntry, machine: Machine, packed: bool = False) -> ListedModel:
    if not entry.parameters:
        return ListedModel(entry, "installed")
    return ListedModel(entry, "installed", (estimate_packed if packed else estimate)(entry, machine))


def _bare(name: str, nbytes: int) -> CatalogEntry:
    return CatalogEntry(name, Path(name).name, "", context=0, bytes=nbytes, parameters=0, fits=0, sources=())


def _llama_problem() -> str:
    missing = "it needs llama.cpp, which is not installed: pip install 'localctx[gguf]'"
    return "" if llama_cpp_is_installed() else missing


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}
