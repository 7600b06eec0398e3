"""The command, twice, the second time in a new process: families with a text model inside, heads of several widths,
shared layers, or layers that remember in states.
"""

import json

import pytest
from family_models import FAMILIES, save_family
from tiny_models import KEPT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    return save_family(tmp_path_factory.mktemp("model"), request.param)


def test_what_is_asked_again_is_not_read_again(run, localctx, folder, document):
    def asked(command):
        how = ("--json", "--model", folder, "--kv", "int8", "--dtype", "f32", "--max-tokens", 24)
        done = command("ask", document, "How long is river 3?", *how)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    cold, warm = asked(run), asked(localctx)
    assert cold["tokens"]["reused"] == 0
    assert warm["tokens"]["reused"] >= 0.95 * KEPT
    assert cold["answer"] == warm["answer"]
