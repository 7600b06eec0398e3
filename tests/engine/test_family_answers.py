"""The command, twice: families with a text model inside, heads of several widths, shared layers, or layers that
remember in states. Of those with states and of those without, one is asked by a new process the second time.
"""

import json

import pytest
from family_models import FAMILIES, save_family
from tiny_models import KEPT

pytestmark = pytest.mark.slow


NEW_PROCESS = {"falcon_h1", "gemma4 with shared layers"}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_asked_again_is_not_read_again(run, localctx, family, tmp_path, document):
    folder = save_family(tmp_path / "model", family)

    def asked(command):
        how = ("--json", "--model", folder, "--kv", "int8", "--dtype", "f32", "--max-tokens", 24)
        done = command("ask", document, "How long is river 3?", *how)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    cold, warm = asked(run), asked(localctx if family in NEW_PROCESS else run)
    assert cold["tokens"]["reused"] == 0
    assert warm["tokens"]["reused"] >= 0.95 * KEPT
    assert cold["answer"] == warm["answer"]
