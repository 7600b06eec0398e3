"""Machine: what computes here, and how fast it reads its memory and multiplies. Measured once, then remembered."""

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
from localctx.settings import write_whole

FILE = "machine.json"
SECONDS = 0.2  # of each of the three measurements, its buffers apart
PARTS = {"cpu": 32, "cuda": 8}  # that a thread reads in turn: until one comes again, others pushed it out of the caches
BUFFER = {"cpu": 256 << 20, "cuda": 4 << 30}  # bytes, unless an eighth of what is free is less
WIDTH = 4096  # numbers of a row of the weights that are read
PRODUCT = {"cpu": (128, 512), "cuda": (4096, 4096)}  # tokens, and the width of the weights they meet

Works = Sequence[Callable[[], object]]


@dataclass(frozen=True)
class Rates:
    """What a device does in a second: bytes of memory it reads (``bandwidth``), bytes of ``weights`` in the model's
    precision that the product with one token reads, multiplications and additions with many tokens (``arithmetic``).
    """

    bandwidth: float = 0
    weights: float = 0
    arithmetic: float = 0


@dataclass(frozen=True)
class Machine:
    """What computes, by torch's name for it (``cpu``, ``cuda``) and its maker's. ``precision`` is that of the numbers
    it computes with; ``free`` and ``total`` are bytes of its memory.
    """

    device: str
    hardware: str
    precision: str
    free: int
    total: int
    rates: Rates


def look(device: torch.device, precision: torch.dtype, home: Path, *, held: int = 0, anew: bool = False) -> Machine:
    """The machine as it is now. Its rates are those remembered in the data folder ``home``, where they are, unless it
    is to be measured ``anew``, in less than a second; ``held`` bytes in use count as free.
    """
    memory: Measured = measure_device(str(device))
    rates = _rates(device, precision, home, anew)
    name = str(precision).removeprefix("torch.")
    return Machine(device.type, hardware(device), name, min(memory.free + held, memory.total), memory.total, rates)


def hardware(device: torch.device) -> str:
    """What the maker calls the GPU, or the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    told = torch.cpu.get_capabilities().get("cpu_name")
    return str(told or platform.processor() or platform.machine())


def measure_rates(device: torch.device, precision: torch.dtype) -> Rates:
    """Measure a device in less than a second, computing in ``precision``. None of it where the device is full."""
    try:
        buffer = _buffer(device)
        read = {kind: _read(buffer.view(kind)) for kind in (precision, torch.float32)[: 1 + (device.type == "cpu")]}
        del buffer
        return Rates(max(read.values()), read[precision], _multiply(device, precision))
    except torch.OutOfMemoryError:
        return Rates()


def _rates(device: torch.device, precision: torch.dtype, home: Path, anew: bool) -> Rates:
    """Of several measurements the fastest counts: what else runs can only slow one down."""
    threads = f", {torch.get_num_threads()} threads" * (device.type == "cpu")
    key = f"{hardware(device)}{threads}, torch {torch.__version__}, {precision}"
    remembered = _remembered(home)
    before = remembered.get(key, Rates())
    if anew or not all(astuple(before)):
        now = measure_rates(device, precision)
        before = Rates(*map(max, astuple(before), astuple(now)))
        said = {name: asdict(rates) for name, rates in {**remembered, key: before}.items()}
        with suppress(OSError):  # then it is measured again the next time
            write_whole(home / FILE, json.dumps(said, indent=1) + "\n")
    return before


def _remembered(home: Path) -> dict[str, Rates]:
    """By device; nothing where the file is not there, or not as it was written."""
    try:
        said = json.loads((home / FILE).read_text(encoding="utf-8"))
        return {name: Rates(**{what: float(rate) for what, rate in rates.items()}) for name, rates in said.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _buffer(device: torch.device) -> torch.Tensor:
    """Ones, float32, in rows for each thread's parts: more of them than any cache holds."""
    room = min(BUFFER[device.type], measure_device(str(device)).free // 8)
    each = _threads(device) * PARTS[device.type] * WIDTH
    return torch.ones(max(1, room // 4 // each) * each, device=device)


def _read(numbers: torch.Tensor) -> float:
    """Bytes a second of products with one token, whose weights are in no cache."""
    shares = numbers.view(_threads(numbers.device), PARTS[numbers.device.type], -1, WIDTH)
    token = torch.ones(1, WIDTH, dtype=numbers.dtype, device=numbers.device)
    works = [[partial(linear, token, part) for part in share] for share in shares]
    return shares[0, 0].nbytes * _per_second(works, numbers.device)


def _multiply(device: torch.device, precision: torch.dtype) -> float:
    """Operations a second of products with many tokens."""
    rows, width = PRODUCT[device.type]
    tokens, weights = (torch.ones(n, width, dtype=precision, device=device) for n in (rows, width))
    works = [[partial(linear, tokens, weights)]] * _threads(device)
    return 2 * rows * width * width * _per_second(works, device)


def _per_second(works: Sequence[Works], device: torch.device) -> float:
    """How many a second are done by threads that have ``works`` of their own each, and wait for nobody. These are
    short, and most may be interrupted: a machine that is busy with something else seems hardly slower than it is.
    """
    before = torch.get_num_threads()
    with ThreadPoolExecutor(len(works), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        rate = sum(1 / seconds for seconds in pool.map(partial(_seconds, device), works))
        pool.submit(torch.set_num_threads, before).result()  # for threads to come: it was set for these
    return rate


@torch.inference_mode()
def _seconds(device: torch.device, works: Works) -> float:
    """What one of ``works`` takes when they are done over and over: a quarter of them took less."""
    taken, end = list[float](), time.perf_counter() + SECONDS
    for work in cycle(works):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append((now := time.perf_counter()) - start)
        if now > end and len(taken) > len(works):
            break
    return sorted(taken)[len(taken) // 4]


def _threads(device: torch.device) -> int:
    return torch.get_num_threads() if device.type == "cpu" else 1
