"""Sizes as people write them, and the limits they put on what is measured."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx import budget
from localctx.budget import Measured, TierLimits, measure_device, measure_limits
from localctx.errors import UsageError
from localctx.settings import load_settings, parse_size

UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "M": 1 << 20, "G": 1 << 30}
sizes = st.integers(0, 1 << 50)
caps = st.none() | sizes


@given(st.integers(0, 1 << 40), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "]), st.booleans())
def test_a_size_is_its_number_times_its_unit(number, unit, space, lower):
    text = f"{number}{space}{unit}"
    assert parse_size(text.lower() if lower else text) == number * UNITS[unit]


@given(st.integers(0, 10**6), st.integers(0, 999))
def test_a_fraction_is_rounded_down_to_bytes(whole, thousandths):
    assert parse_size(f"{whole}.{thousandths:03}GB") == whole * 10**9 + thousandths * 10**6


@pytest.mark.parametrize(
    "text", ["", "lots", "-1GiB", "1e9", "4 Gi B", "GiB", "1,5GB", "1.GB", "4XB", "nan", "٤GiB", "i"]
)
def test_what_is_no_size_is_said_in_one_line(text):
    with pytest.raises(UsageError, match=r"^ram = .* is not valid; use a size such as 512MiB"):
        parse_size(text, "ram")


@pytest.mark.slow
def test_caps_come_from_flags_and_the_environment(home, monkeypatch):
    monkeypatch.setenv("LOCALCTX_RAM", "1.5GB")
    assert load_settings(memory="2GiB").caps == {"memory": 2 << 30, "ram": 1_500_000_000, "disk": None}
    monkeypatch.setenv("LOCALCTX_DISK", "much")
    with pytest.raises(UsageError, match="disk = 'much'"):
        load_settings()


def limits(monkeypatch, device, free: tuple[int, int, int], reserve=0, **caps) -> TierLimits:
    """Of a machine with so much free on its device, in its RAM and on its disk."""
    for name, nbytes in zip(("device", "ram", "disk"), free, strict=True):
        monkeypatch.setattr(budget, f"measure_{name}", lambda *_, n=nbytes: Measured(n, n))
    return measure_limits(device, None, reserve, **caps)


@given(st.sampled_from(["cpu", "cuda", "cuda:1"]), sizes, sizes, sizes, sizes, caps, caps, caps)
def test_no_limit_is_more_than_is_free_or_than_its_cap(device, free, ram, disk, reserve, memory, beside, most):
    with pytest.MonkeyPatch.context() as patch:
        got = limits(patch, device, (free, ram, disk), reserve, memory=memory, ram=beside, disk=most)
    for value, cap in ((got.device, memory), (got.host, beside), (got.disk, most)):
        assert 0 <= value <= (1 << 50 if cap is None else cap)
    on_device = got.device + (got.host if device == "cpu" else 0)
    assert on_device <= max(0, free - reserve)
    assert got.host <= (free if device == "cpu" else ram)
    assert got.disk <= max(0, disk - budget.SPARE_DISK)


def test_host_is_half_of_the_ram_beside_a_gpu_and_nothing_on_a_cpu_unless_asked(monkeypatch):
    g = 1 << 30
    assert limits(monkeypatch, "cuda", (10 * g, 8 * g, 40 * g), 2 * g) == TierLimits(8 * g, 4 * g, 38 * g)
    assert limits(monkeypatch, "cpu", (10 * g, 8 * g, 5 * g), 2 * g) == TierLimits(8 * g, 0, 4 * g)
    assert limits(monkeypatch, "cpu", (10 * g, 8 * g, 5 * g), 2 * g, ram=3 * g) == TierLimits(5 * g, 3 * g, 4 * g)


def test_a_given_size_stands_in_for_the_devices(tmp_path):
    assert measure_limits("cpu", tmp_path, 1 << 20, free=3 << 20).device == 2 << 20
    assert measure_limits("cpu", tmp_path, memory=7).device == 7
    now = measure_limits("cpu", tmp_path)
    assert now.device > 0
    assert now.host == 0


def test_what_torch_keeps_of_a_gpu_for_later_is_free(monkeypatch):
    import torch

    sizes = {"mem_get_info": (100, 1000), "memory_reserved": 60, "memory_allocated": 45}
    for name, size in sizes.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, size=size: size)
    assert measure_device("cuda") == Measured(115, 1000)


@pytest.mark.parametrize(
    ("own", "groups", "expected"),
    [
        ("0::/", {"": ("max", 0, 0)}, None),
        ("0::/", {"": (4000, 1500, 500)}, (3000, 4000)),
        ("0::/user/app", {"user": (3000, 100, 0), "user/app": (4000, 100, 0)}, (2900, 3000)),
        ("0::/user/app", {"user": (9000, 8000, 0), "user/app": (4000, 100, 0)}, (1000, 4000)),
        ("0::/docker/elsewhere", {"": (4000, 100, 0)}, (3900, 4000)),
        ("5:cpu:/app\n4:memory:/app", {"memory/app": (5000, 5100, 0), "app": (10, 10, 0)}, (0, 5000)),
    ],
)
def test_memory_is_limited_by_every_control_group_around_the_process(own, groups, expected, tmp_path, monkeypatch):
    """Each has a limit, what is used of it, and how much of that is file cache that the system frees on demand."""
    machine = SimpleNamespace(available=8000, total=10_000)
    monkeypatch.setattr(budget.psutil, "virtual_memory", lambda: machine)
    monkeypatch.setattr(budget, "_CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(budget, "_OWN_CGROUPS", tmp_path / "own")
    (tmp_path / "own").write_text(own)
    for path, (limit, used, cached) in groups.items():
        (folder := tmp_path / "groups" / path).mkdir(parents=True, exist_ok=True)
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if "memory" in path else ("memory.max", "memory.current")
        )
        for name, value in zip(names, (limit, used), strict=True):
            (folder / name).write_text(f"{value}\n")
        (folder / "memory.stat").write_text(f"anon 7\ninactive_file {cached}\n")
    assert budget.measure_ram() == Measured(*(expected or (8000, 10_000)))


def test_a_machine_without_control_groups_has_all_its_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "_OWN_CGROUPS", tmp_path / "absent")
    assert budget.measure_ram().total == budget.psutil.virtual_memory().total
