"""Measures the machine: device, memory bandwidth and arithmetic rate. The rates are measured once and saved in the data
folder.
"""

import json
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

import torch
from torch.nn.functional import linear

from localctx.budget import Measured, measure_device
from localctx.settings import write_atomically

FILE = "machine.json"
SECONDS = 0.25  # length of each of the two measurements, without buffer allocation
PARTS = {"cpu": 32, "cuda": 8}  # parts of the buffer that a thread cycles through, to defeat caches
BUFFER = {"cpu": 256 << 20, "cuda": 4 << 30}  # bytes, or an eighth of the free memory if less
WIDTH = 4096  # elements in a row of the weights that are read
PRODUCT = {"cpu": (128, 512), "cuda": (4096, 4096)}  # tokens, and the width of the square weight matrix

Tasks = Sequence[Callable[[], object]]


@dataclass(frozen=True)
class Rates:
    """The speed of a device. ``bandwidth`` is the bytes read per second. ``arithmetic`` is the multiplications and
    additions per second in a matrix product with many tokens. A rate is 0 if it could not be measured.
    """

    bandwidth: float = 0
    arithmetic: float = 0


@dataclass(frozen=True)
class Machine:
    """The measurement of a device. ``device`` is torch's name (``cpu``, ``cuda``), ``hardware`` the vendor's name, and
    ``precision`` the dtype it computes in. ``free`` and ``total`` are the bytes of its memory.
    """

    device: str
    hardware: str
    precision: str
    free: int
    total: int
    rates: Rates


def measure_machine(
    device: torch.device, precision: torch.dtype, home: Path, *, own_bytes: int = 0, remeasure: bool = False
) -> Machine:
    """Measures this machine as it is now, and returns the measurement.

    The rates are read from a file in the data folder ``home``. They are measured, in less than a second, if the file
    does not have them or ``remeasure`` is True. ``own_bytes``, which this process uses, count as free.
    """
    memory: Measured = measure_device(str(device))
    rates = _rates(device, precision, home, remeasure)
    name = str(precision).removeprefix("torch.")
    return Machine(device.type, hardware(device), name, min(memory.free + own_bytes, memory.total), memory.total, rates)


def hardware(device: torch.device) -> str:
    """Returns the name of the GPU or the processor, as the vendor gives it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = torch.cpu.get_capabilities().get("cpu_name")
    return str(name or platform.processor() or platform.machine())


def measure_rates(device: torch.device, precision: torch.dtype) -> Rates:
    """Measure the rates of a device that computes in ``precision``, in less than a second. They are 0 if the device's
    memory is full.
    """
    try:
        return Rates(_bandwidth(_buffer(device)), _arithmetic(device, precision))
    except torch.OutOfMemoryError:
        return Rates()


def _rates(device: torch.device, precision: torch.dtype, home: Path, remeasure: bool) -> Rates:
    """Returns the rates, saved or measured. Each rate is the fastest one of all measurements so far, because other
    programs can only slow a measurement down.
    """
    threads = f", {torch.get_num_threads()} threads" * (device.type == "cpu")
    key = f"{hardware(device)}{threads}, torch {torch.__version__}, {precision}"
    saved = _saved_rates(home)
    best = saved.get(key, Rates())
    if remeasure or not all(astuple(best)):
        now = measure_rates(device, precision)
        best = Rates(*map(max, astuple(best), astuple(now)))
        content = {name: asdict(rates) for name, rates in {**saved, key: best}.items()}
        with suppress(OSError):  # then the next run measures again
            write_atomically(home / FILE, json.dumps(content, indent=1) + "\n")
    return best


def _saved_rates(home: Path) -> dict[str, Rates]:
    """Returns the saved rates by device and precision; empty if the file is missing or damaged."""
    try:
        content = json.loads((home / FILE).read_text(encoding="utf-8"))
        return {name: Rates(**{kind: float(rate) for kind, rate in rates.items()}) for name, rates in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _buffer(device: torch.device) -> torch.Tensor:
    """Returns a tensor of float32 ones for ``_bandwidth``, larger than any CPU or GPU cache. It can be divided into
    rows of WIDTH for each part of each thread.
    """
    nbytes = min(BUFFER[device.type], measure_device(str(device)).free // 8)
    unit = _threads(device) * PARTS[device.type] * WIDTH
    return torch.ones(max(1, nbytes // 4 // unit) * unit, device=device)


def _bandwidth(weights: torch.Tensor) -> float:
    """Returns the bytes of ``weights`` read per second in matrix products with one token. The weights are too large for
    caches, so on a CPU this is the speed of the memory.
    """
    shares = weights.view(_threads(weights.device), PARTS[weights.device.type], -1, WIDTH)
    token = torch.ones(1, WIDTH, dtype=weights.dtype, device=weights.device)
    tasks = [[partial(linear, token, part) for part in share] for share in shares]
    return shares[0, 0].nbytes * _tasks_per_second(tasks, weights.device)


def _arithmetic(device: torch.device, precision: torch.dtype) -> float:
    """Returns the multiplications and additions per second in matrix products with many tokens."""
    rows, width = PRODUCT[device.type]
    tokens, weights = (torch.ones(n, width, dtype=precision, device=device) for n in (rows, width))
    tasks = [[partial(linear, tokens, weights)]] * _threads(device)
    return 2 * rows * width * width * _tasks_per_second(tasks, device)


def _tasks_per_second(tasks: Sequence[Tasks], device: torch.device) -> float:
    """Returns how many tasks per second a group of threads finishes, one thread for each item of ``tasks``. Tasks are
    so short that other programs interrupt only some of them, so the result hardly depends on the load.
    """
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(len(tasks), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        rate = sum(1 / seconds for seconds in pool.map(partial(_seconds_per_task, device), tasks))
        pool.submit(torch.set_num_threads, threads).result()  # threads started later inherit the last value set
    return rate


@torch.inference_mode()
def _seconds_per_task(device: torch.device, tasks: Tasks) -> float:
    """Run ``tasks`` in turn for SECONDS. Returns the lower quartile of their durations."""
    durations, end = list[float](), time.perf_counter() + SECONDS
    for task in cycle(tasks):
        start = time.perf_counter()
        task()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        durations.append((now := time.perf_counter()) - start)
        if now > end and len(durations) > len(tasks):
            break
    return sorted(durations)[len(durations) // 4]


def _threads(device: torch.device) -> int:
    return torch.get_num_threads() if device.type == "cpu" else 1
