"""Tries a GGUF in a child process before this process loads it, and measures the memory of its contexts there.

llama.cpp aborts the process on unexpected file contents. The child computes one token, then makes contexts without
allocating them (``no_alloc``) and reads their sizes from llama.cpp's log.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from localctx.errors import ModelError, UsageError
from localctx.models.files.gguf_file import GgufFile
from localctx.models.llama_cpp.library import (
    KV_TYPES,
    NATIVE_CODEC,
    NO_TRANSFORM,
    llama_build,
    llama_library,
    llama_log,
)
from localctx.models.llama_cpp.options import CELLS, ContextOptions, memory_kind
from localctx.models.memory_fit import MemoryNeed, largest_context

CONTEXTS = (8192, 65_536)  # sizes of measured contexts in tokens; others are linear in these
SECONDS = 60  # time limit of a child, plus one second per READ bytes
READ = 50_000_000
_ROWS = 64  # tokens of a batch that is computed with repacked weights; a few tokens take another way
_MOST = 1 << 24  # tokens of a context
Value = TypeVar("Value")
_SIZE = re.compile(r"(llama_kv_cache\w*|llama_memory_recurrent): +size = +([\d.]+) MiB")
_TRANSFORMED = re.compile(r"attn_rot_k = 1\b")
_COMPUTE = re.compile(r"(?:compute|output) buffer size = +([\d.]+) MiB")


@dataclass(frozen=True)
class ContextBytes:
    """The sizes in bytes of a native context of ``cells`` tokens: ``kv`` of keys and values, which grows with the
    context, ``states`` of recurrent states, which does not, and ``compute`` of buffers.
    """

    cells: int
    kv: float
    states: float
    compute: float

    @property
    def need(self) -> MemoryNeed:
        """The memory that the context needs, in bytes, without the weights."""
        return MemoryNeed(working=self.compute, kv=self.kv + self.states)


@dataclass(frozen=True)
class LlamaSizes:
    """Facts about a GGUF that llama.cpp reports: the number of ``parameters``, the ``trained`` window in tokens, the
    sliding ``window`` (0: none), whether it has ``recurrent`` states, and whether tokens can move to other positions
    (``shifts``).

    ``transformed`` are the codecs whose keys get a Hadamard transform. ``repacks`` is False if llama.cpp crashes
    with weights that it repacked for this processor. ``contexts`` has the sizes of two contexts by codec; other sizes
    are interpolated. Codecs that the heads of the model do not allow are missing.
    """

    parameters: int
    trained: int
    window: int
    recurrent: bool
    shifts: bool
    transformed: Sequence[str]
    repacks: bool
    contexts: Mapping[str, tuple[ContextBytes, ContextBytes]]

    def at(self, codec: str, cells: int) -> ContextBytes:
        """Returns the size of a context of ``cells`` tokens, in bytes, interpolated between the two measured contexts.
        Raises UsageError for an unsupported codec.
        """
        low, high = self._measured(codec)
        part = (cells - low.cells) / (high.cells - low.cells)
        between = lambda a, b: max(0.0, a + (b - a) * part)  # noqa: E731
        return ContextBytes(cells, between(low.kv, high.kv), low.states, between(low.compute, high.compute))

    def largest(self, codec: str, limit: int) -> int:
        """Returns the size in tokens, a multiple of CELLS, of the largest context within ``limit`` bytes."""
        return largest_context(lambda cells: self.at(codec, cells).need.fit_device(limit), CELLS, _MOST)

    def bytes_per_token(self, codec: str) -> int:
        """Returns the size in bytes of the keys and values of one more token in a long text."""
        low, high = self._measured(codec)
        return round((high.kv - low.kv) / (high.cells - low.cells))

    def _measured(self, codec: str) -> tuple[ContextBytes, ContextBytes]:
        if codec not in self.contexts:
            raise UsageError(
                f"llama.cpp has no {codec} KV for this model", f"use one of: auto, {', '.join(self.contexts)}"
            )
        return self.contexts[codec]


def try_gguf(gguf: GgufFile, batch: int, folder: Path) -> LlamaSizes:
    """Returns the sizes of ``gguf`` for native batches of ``batch`` tokens. A child process first tries to load the
    file, because llama.cpp aborts on a damaged one. If ``folder`` has a record of an earlier trial, that is used
    instead.

    Raises ModelError if the child fails or times out.
    """
    from localctx.kernels.llvm.processor import INSTRUCTIONS  # the child does not need it

    def trial() -> dict[str, Any]:
        sizes = json.loads(run_trial(__name__, [str(gguf.path), str(batch)], gguf))
        return {**sizes, "repacks": can_repack(gguf)}

    how = [batch, os.environ.get(NO_TRANSFORM, ""), INSTRUCTIONS]
    return record_trial(gguf, how, folder, trial, _from_json)


def can_repack(gguf: GgufFile) -> bool:
    """Returns True if llama.cpp computes ``gguf`` with weights that it repacks for this processor. A child process
    tries it, because llama.cpp (as of 0.3.36) crashes with some files on processors with AMX.

    Raises ModelError if the child times out.
    """
    try:
        run_trial(__name__, [str(gguf.path)], gguf)
    except ModelError as e:
        if isinstance(e.__cause__, subprocess.TimeoutExpired):
            raise
        return False
    return True


def record_trial(
    gguf: GgufFile,
    how: object,
    folder: Path,
    trial: Callable[[], dict[str, Any]],
    read: Callable[[dict[str, Any]], Value],
) -> Value:
    """Returns the result of trying ``gguf`` with the options ``how``. If ``folder`` has a record of such a trial, the
    record is used. Otherwise ``trial`` runs, and its JSON result is recorded there. ``read`` turns the JSON into the
    value to return.
    """
    key = sha256(json.dumps([gguf.hashes, llama_build(), how], sort_keys=True).encode()).hexdigest()[:32]
    record = folder / f"{key}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        return read(json.loads(record.read_text("utf-8")))
    tried = trial()
    with suppress(OSError):  # the trial then runs again next time
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = record.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(tried), "utf-8")
        part.replace(record)
    return read(tried)


def run_trial(module: str, arguments: Sequence[str], gguf: GgufFile) -> bytes:
    """Run ``module``, which tries ``gguf``, in a child process. Returns its output. Raises ModelError if it fails."""
    command = [sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    seconds = SECONDS + gguf.nbytes // READ
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=seconds, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as e:
        raise ModelError(f"llama.cpp did not load {gguf.path} within {seconds} s", "fetch the file again") from e
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = said[-1][:200] if said else f"it ended with status {done.returncode}"
        raise ModelError(f"llama.cpp cannot run {gguf.path} ({reason})", "fetch the file again, or take another model")
    return done.stdout


def _from_json(tried: dict[str, Any]) -> LlamaSizes:
    contexts = {codec: (ContextBytes(**low), ContextBytes(**high)) for codec, (low, high) in tried["contexts"].items()}
    return LlamaSizes(**{**tried, "contexts": contexts})


def main(path: str, batch: int) -> LlamaSizes:
    """Load the file at ``path``, compute one token and measure contexts. Raises ValueError, with llama.cpp's message if
    loading fails.
    """
    library = llama_library()
    model = _load(path, no_alloc=False)
    kind, trained = memory_kind(model), library.llama_model_n_ctx_train(model)
    context = _computed(model, ContextOptions(256, 2, NATIVE_CODEC, batch=batch), 1)
    parameters = library.llama_model_n_params(model)
    shifts = library.llama_memory_can_shift(library.llama_get_memory(context))
    library.llama_free(context)
    library.llama_model_free(model)
    model, contexts = _load(path, no_alloc=True), dict[str, tuple[ContextBytes, ContextBytes]]()
    transformed = list[str]()
    for codec in KV_TYPES:
        options = (ContextOptions(n, kind.sequences, codec, batch=batch) for n in CONTEXTS)
        with llama_log() as log:
            low, high = (_measure(model, one, trained) for one in options)
        if low and high:
            contexts[codec] = low, high
            transformed += [codec] * bool(_TRANSFORMED.search("".join(log)))
    return LlamaSizes(parameters, trained, kind.window, kind.recurrent, shifts, transformed, False, contexts)


def compute_repacked(path: str) -> None:
    """Load the file at ``path`` with weights repacked for this processor, and compute a batch. Raises ValueError."""
    _computed(_load(path, no_alloc=False, repacked=True), ContextOptions(256, 2, NATIVE_CODEC, batch=_ROWS), _ROWS)


def _computed(model: Any, options: ContextOptions, rows: int) -> Any:
    """Returns a context of ``model`` that has computed a batch of ``rows`` tokens. Raises ValueError."""
    library = llama_library()
    context = library.llama_init_from_model(model, options.native(library.llama_model_n_ctx_train(model)))
    tokens = (library.llama_token * rows)()
    if not context or library.llama_decode(context, library.llama_batch_get_one(tokens, rows)):
        raise ValueError("it computes no token")
    return context


def _load(path: str, no_alloc: bool, repacked: bool = False) -> Any:
    library = llama_library()
    options = library.llama_model_default_params()
    options.n_gpu_layers, options.use_extra_bufts, options.no_alloc = 0, repacked, no_alloc
    if no_alloc:
        options.load_mode = library.LLAMA_LOAD_MODE_NONE  # no_alloc does not skip memory mapping
    with llama_log() as log:
        model = library.llama_model_load_from_file(os.fsencode(path), options)
    if not model:
        errors = [line.strip() for line in log if "error" in line] or ["it is not loaded"]
        raise ValueError(errors[0].rpartition("error loading model: ")[2])
    return model


def _measure(model: Any, options: ContextOptions, trained: int) -> ContextBytes | None:
    library = llama_library()
    with llama_log() as log:
        context = library.llama_init_from_model(model, options.native(trained))
    if not context:
        return None
    library.llama_free(context)
    return context_bytes(options.cells, log)


def context_bytes(cells: int, log: Sequence[str]) -> ContextBytes:
    """Returns the size of a context of ``cells`` tokens from llama.cpp's ``log`` of its creation."""
    text, mib = "".join(log), 1 << 20
    found = [(name, float(size)) for name, size in _SIZE.findall(text)]
    kv = sum(size for name, size in found if name.startswith("llama_kv_cache"))
    states = sum(size for name, size in found if name.startswith("llama_memory_recurrent"))
    return ContextBytes(cells, kv * mib, states * mib, sum(map(float, _COMPUTE.findall(text))) * mib)


if __name__ == "__main__":
    try:
        if len(sys.argv) > 2:
            print(json.dumps(asdict(main(sys.argv[1], int(sys.argv[2])))))
        else:
            compute_repacked(sys.argv[1])
    except ValueError as e:
        sys.exit(str(e))
