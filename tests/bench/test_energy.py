"""Joules a token, by a powercap folder as Linux has it: counted where it can be read, and left out where it cannot."""

import json
from pathlib import Path

import pytest
from bench_fakes import Fake, FakePeer, Fakes

from localctx.bench.energy import EnergyCounter, per_token
from localctx.bench.measure import DECODE_TOKENS
from localctx.bench.peer_state import SavedPeerStates
from localctx.bench.time_left import LONG

RANGE = 1_000_000_000  # microjoules after which a counter begins again


class Powercap:
    """A powercap folder: a package with its cores, and memory; ``spend`` adds joules to the counters."""

    def __init__(self, folder: Path, **joules: float) -> None:
        self.folder, self.files = folder, dict[str, Path]()
        zones = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram"}
        for zone, name in {**zones, "intel-rapl:1": "psys"}.items():
            (folder / zone).mkdir(parents=True)
            (folder / zone / "name").write_text(f"{name}\n")
            (folder / zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
            self.files[name] = folder / zone / "energy_uj"
            self.files[name].write_text("0\n")
        self.spend(**joules)

    def spend(self, **joules: float) -> None:
        for name, count in joules.items():
            file = self.files["package-0" if name == "package" else name]
            file.write_text(f"{(int(file.read_text()) + round(count * 1e6)) % RANGE}\n")


def test_packages_and_memory_are_summed_and_cores_are_part_of_a_package(tmp_path):
    powercap = Powercap(tmp_path)
    counter = EnergyCounter(tmp_path)
    before = counter.read()
    powercap.spend(package=3.0, core=2.0, dram=0.5, psys=9.0)
    assert counter.readable
    assert counter.joules_since(before) == pytest.approx(3.5)


def test_a_counter_that_begins_again_is_followed(tmp_path):
    powercap = Powercap(tmp_path, package=999.0)
    counter = EnergyCounter(tmp_path)
    before = counter.read()
    powercap.spend(package=3.0, dram=1.0)
    assert int(powercap.files["package-0"].read_text()) < 3e6
    assert counter.joules_since(before) == pytest.approx(4.0)


@pytest.mark.parametrize("harm", ["absent", "empty", "no number", "a folder"])
def test_what_cannot_be_read_counts_nothing(tmp_path, harm):
    powercap = Powercap(tmp_path / "powercap")
    file = powercap.files["package-0"]
    if harm == "absent":
        file.unlink()
    elif harm == "a folder":
        file.unlink()
        file.mkdir()  # the superuser may read any file, but no folder
    else:
        file.write_text("" if harm == "empty" else "n/a")
    counter = EnergyCounter(tmp_path / "powercap")
    assert not counter.readable
    assert counter.read() == []
    assert counter.joules_since([]) is None
    assert not EnergyCounter(tmp_path / "nowhere").readable


def test_a_counter_that_ends_while_it_is_used_is_not_known(tmp_path):
    powercap = Powercap(tmp_path)
    counter = EnergyCounter(tmp_path)
    before = counter.read()
    powercap.files["dram"].unlink()
    assert counter.joules_since(before) is None
    assert per_token(counter.joules_since(before), 8) == {}


class Hot(Fake):
    """An engine that uses 2 joules a turn of decoding, and 50 to read."""

    powercap: Powercap

    def read(self, tokens: list[int]) -> int:
        self.powercap.spend(package=50.0)
        return super().read(tokens)

    def decode(self, tokens: list[int]) -> list[int]:
        self.powercap.spend(package=2.0 if len(tokens) > 1 else 100.0)
        return super().decode(tokens)


def test_rows_say_how_much_a_token_takes(tmp_path):
    fakes, Hot.powercap = Fakes(), Powercap(tmp_path)
    fakes.engines = [Hot("hot", fakes, [1.0] * 9, 2.0)]
    samples = fakes.measure("decode,prefill", 3, energy=EnergyCounter(tmp_path)).samples
    (decode,), (prefill,) = samples.rows("decode"), samples.rows("prefill")
    assert decode["joules_per_token"] == 2.0 / DECODE_TOKENS, "not of the token that is not timed"
    assert prefill["joules_per_token"] == 50.0 / 100
    assert decode["spread"] == prefill["spread"] == 0


def test_rows_have_no_column_where_it_cannot_be_read(tmp_path):
    fakes = Fakes()
    fakes.engines = [Fake("a", fakes, [1.0] * 9)]
    samples = fakes.measure("decode,prefill", 2, energy=EnergyCounter(tmp_path)).samples
    assert [*samples.rows("decode")[0]] == ["engine", "kv", "context", "ms_per_token", "spread"]
    assert "joules_per_token" not in samples.rows("prefill")[0]


class HotPeer(FakePeer, Hot):
    """A peer that is kept, and uses energy."""


def test_what_a_reading_took_is_kept_with_it_and_an_older_one_is_of_unknown_energy(tmp_path):
    Hot.powercap = Powercap(tmp_path / "powercap")
    kept = SavedPeerStates(tmp_path / "kept")

    def run() -> dict[str, object]:
        fakes = Fakes()
        fakes.engines = [HotPeer("hot", fakes, [1.0] * 9, LONG + 1)]
        energy = EnergyCounter(tmp_path / "powercap")
        return fakes.measure("prefill", 1, kept=kept, energy=energy).samples.rows("prefill")[0]

    first, second = run(), run()
    assert first["joules_per_token"] == second["joules_per_token"] == 0.5
    assert "day" in second
    (facts,) = (tmp_path / "kept").glob("*.json")
    told = json.loads(facts.read_text())
    del told["joules"]
    facts.write_text(json.dumps(told))
    assert "joules_per_token" not in run()
