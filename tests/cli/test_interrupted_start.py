"""Ctrl-C while the command starts: whatever it is importing, it ends in one line."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

INTERRUPTED = """
import os, signal, sys
from localctx.__main__ import main

module, sys.argv[1:] = sys.argv[1], sys.argv[2:]

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
main()
"""


@pytest.mark.parametrize(
    "module", ["localctx.cli", "click", "localctx.session", "numpy", "torch", "numba", "localctx.engine.model_loader"]
)
def test_ctrl_c_during_an_import_ends_the_command_in_one_line(module, home, tmp_path, tiny_model):
    text = tmp_path / "a.txt"
    text.write_text("The keeper is Oda.\n")
    command = [sys.executable, "-c", INTERRUPTED, module, "ask", str(text), "Who is the keeper?"]
    ended = subprocess.run(
        [*command, "--model", str(tiny_model)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout) == (130, ""), ended.stderr
    assert ended.stderr.strip() == "localctx: stopped"
