"""Compiles the kernels for GPUs for sm_80 and sm_90, on no GPU: ``TRITON_INTERPRET=0 python compile_gpu.py``.

Prints a table: shared memory in bytes, registers a thread, bytes of them spilled. Launches are not written down here:
the functions are called as ever, and a driver that has no device compiles where it would launch.
"""

import re
import subprocess
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from localctx.kernels.sketch import Sketch
from localctx.kernels.triton import attention as attention_triton
from localctx.kernels.triton import pages as pages_triton
from localctx.kernels.triton import record_copy as record_copy_triton
from localctx.kernels.triton import records as records_triton
from localctx.kernels.triton import rotation as rotation_triton
from localctx.kernels.triton import selection as selection_triton
from localctx.kernels.triton import sketch as sketch_triton
from localctx.kv.codecs import make_codec
from localctx.shape import PAGE, LayerShape

CODECS = ("bf16", "int8", "k8v4", "int4")
SHAPE, HEADS, PAGES = LayerShape(8, 128, 128), 32, 4  # Llama 3's
OBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
INT64, BF16 = torch.int64, torch.bfloat16


class NoDevice:
    """A driver that knows what to compile for."""

    def __init__(self, arch: int) -> None:
        self.arch = arch

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> int:
        return self.arch

    def get_current_stream(self, device: int) -> int:
        return 0


def main() -> None:
    """Print the table."""
    kernels: list = []

    def compile_instead(self, grid):
        return lambda *args, **kwargs: kernels.append(self.run(*args, grid=grid, warmup=True, **kwargs))

    JITFunction.__getitem__ = compile_instead
    print("| kernel | codec | for | shared | registers | spilled |\n|---|---|---|---|---|---|")
    for arch in (80, 90):
        driver.set_active(NoDevice(arch))
        seen = set()
        for what, codec in launches(kernels):
            for name, kernel in zip(what, kernels[-len(what) :], strict=True):
                if kernel.hash not in seen:
                    print("|", " | ".join([name, codec, f"sm_{arch}", *map(str, used(kernel))]), "|", flush=True)
                seen.add(kernel.hash)


def launches(kernels):
    """Do everything once; tell what was launched last, and with which codec."""
    queries, new = torch.empty(1, HEADS, SHAPE.k_dim, dtype=BF16), torch.empty(1, SHAPE.kv_heads, PAGE, 128, dtype=BF16)
    at, kinds = torch.empty(PAGES, dtype=INT64), torch.empty(PAGES, dtype=torch.uint8)
    pages = attention_triton.TritonPages(torch.empty(1, 4, dtype=INT64), torch.empty(2, dtype=INT64), at, kinds)
    tails = attention_triton.TritonOpenPages(torch.empty(1, 2, dtype=INT64), *torch.empty(2, 1, dtype=INT64))
    for codec in CODECS:
        layout = layout_of(codec)
        attention_triton.attend_rows(queries, new[:, :, 0], new[:, :, 0], pages, tails, layout, 0.1)
        yield ("attend", "merge"), codec
        if codec == "int8":
            attention_triton.attend_pages(
                queries, pages, layout, 0.1, extra=torch.empty(HEADS, PAGES * PAGE), masses=True
            )
            yield ("attend pages", "merge pages"), codec
        pages_triton.seal(new[0], new[0], at, layout, 0)
        yield ("seal k", "seal v"), codec
        sketch_triton.make_sketch(at, kinds, layout)
        yield ("sketch",), codec
    rotation_triton.rotate(queries)
    yield ("rotate",), "-"
    codes, scales = torch.empty(8, PAGES, 128, 16, dtype=torch.uint8), torch.empty(8, PAGES, 128, dtype=torch.half)
    sketch_triton.best_scores(queries.view(8, 4, 128), Sketch(codes, scales, scales))
    yield ("best scores",), "-"
    record_copy_triton.gather(torch.empty(PAGES, 1 << 17, dtype=torch.uint8), at, at)
    yield ("gather",), "-"
    made = selection_triton.TritonSketch(torch.empty(4, dtype=INT64), torch.empty(2, dtype=INT64))
    for pages, heads in ((512, 32), (2048, 32), (4096, 32), (8192, 64)):
        at, kinds = torch.empty(pages, dtype=INT64), torch.empty(pages, dtype=torch.uint8)
        selection_triton.choose(torch.empty(8, heads // 8, 128, dtype=BF16), 0.1, made, at, kinds, 1, pages)
        yield ("best scores by address", f"choose of {pages}"), "-"


def layout_of(codec: str) -> records_triton.TritonLayerLayout:
    """As ``Pool`` has it: ordinary pages, and sinks in bf16."""
    formats = [make_codec(name, SHAPE).format for name in (codec, "bf16")]
    bits = tuple((f.k_bits, f.v_bits) for f in formats)
    return records_triton.TritonLayerLayout(
        SHAPE.kv_heads, SHAPE.k_dim, SHAPE.v_dim, bits, torch.empty(2, 6, dtype=INT64)
    )


def used(kernel) -> tuple[int, int, int]:
    """Shared memory, registers a thread, and bytes a thread keeps in local memory."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        told = subprocess.check_output([OBJDUMP, "--dump-resource-usage", file.name], text=True)
    registers, stack, local = (int(re.findall(rf"{what}:(\d+)", told)[-1]) for what in ("REG", "STACK", "LOCAL"))
    return kernel.metadata.shared, registers, stack + local


if __name__ == "__main__":
    main()
