"""Where tests run Triton's kernels: on a GPU if there is one that runs them, else by Triton's interpreter."""

import pytest
import torch

from localctx.kernels.device import has_triton

triton = pytest.importorskip("triton", reason="Triton is not installed")

GPU = torch.cuda.is_available() and has_triton(torch.device("cuda"))
DEVICE = torch.device("cuda" if GPU and not triton.knobs.runtime.interpret else "cpu")

if DEVICE.type == "cpu" and not triton.knobs.runtime.interpret:
    pytest.skip("TRITON_INTERPRET=1 runs the kernels without a GPU", allow_module_level=True)

if DEVICE.type == "cpu":
    from interpreted_kernels import patch_once_per_launch

    patch_once_per_launch()
