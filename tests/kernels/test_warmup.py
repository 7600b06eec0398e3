"""What is compiled where: in this process, and by a helper on another core."""

import os
import subprocess
import sys
from functools import partial

import pytest
from processes import opened

from localctx.kernels.cpu import warmup

PARTS = "warm_layer", "warm_selection", "warm_prefill", "warm_decoding"


@pytest.fixture
def done(monkeypatch):
    """The names of what ``warm`` does, in order."""
    names = []
    for name in PARTS:
        monkeypatch.setattr(warmup, name, partial(names.append, name))
    monkeypatch.setattr(warmup, "threading_layer", lambda: "workqueue")
    return names


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(warmup, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def started(monkeypatch):
    """The commands of processes that would start."""
    commands = []
    monkeypatch.setattr(warmup.subprocess, "Popen", lambda command, **how: commands.append(command))
    monkeypatch.setattr(warmup, "get_num_threads", lambda: 2)
    return commands


@pytest.mark.usefixtures("empty_cache")
def test_a_helper_compiles_beside_this_process_which_then_loads_all(monkeypatch, done):
    class Helper:
        def wait(self):
            done.append("helper ended")

    monkeypatch.setattr(warmup, "_start_helper", Helper)
    warmup.warm()
    assert done == ["warm_layer", "warm_selection", "helper ended", "warm_prefill", "warm_decoding"]


def test_nothing_is_helped_where_all_was_compiled(done, empty_cache, started):
    empty_cache.mkdir()
    assert not warmup.compiled()
    python = "".join(map(str, sys.version_info[:2]))
    (empty_cache / "decode_layers.decode_layers-69.py2.nbi").touch()
    assert not warmup.compiled(), "by another Python"
    (empty_cache / f"decode_layers.decode_layers-69.py{python}.nbi").touch()
    assert warmup.compiled()
    warmup.warm()
    assert done == ["warm_prefill", "warm_decoding"]
    assert not started


@pytest.mark.usefixtures("empty_cache")
def test_a_helper_is_this_interpreter(started):
    warmup._start_helper()
    assert started == [[sys.executable, "-P", "-m", "localctx.kernels.cpu.warmup"]]


def test_without_a_second_thread_or_files_or_an_interpreter_there_is_no_helper(monkeypatch, empty_cache, started):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert warmup._start_helper() is None
    monkeypatch.delattr(sys, "frozen")
    monkeypatch.setattr(warmup, "get_num_threads", lambda: 1)
    assert warmup._start_helper() is None
    monkeypatch.setattr(warmup, "get_num_threads", lambda: 2)
    empty_cache.write_text("a file where the folder would be")
    assert warmup._start_helper() is None
    assert not started


@pytest.mark.usefixtures("empty_cache")
def test_a_helper_that_does_not_start_is_done_without(monkeypatch, done, started):
    def refuse(command, **how):
        raise OSError("no more processes")

    monkeypatch.setattr(warmup.subprocess, "Popen", refuse)
    warmup.warm()
    assert done == ["warm_prefill", "warm_decoding"]


@pytest.mark.slow
def test_a_helper_ends_with_the_process_that_started_it(tmp_path):
    """Closing its standard input, as the end of that process does, ends it long before it has compiled anything."""
    helper = [sys.executable, "-c", "from localctx.kernels.cpu.warmup import help_parent as run; run()"]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    with opened(helper, stdin=subprocess.PIPE, env=environment) as process:
        process.communicate(timeout=60)
    assert process.returncode == 1
