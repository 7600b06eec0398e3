"""What the flags of ``localctx bench`` ask for."""

import pytest

from localctx.cli.bench_options import bench_options
from localctx.errors import UserError
from localctx.settings import Settings

UNSAID = dict.fromkeys(("what", "context", "engines", "codecs", "keeps", "gguf")) | {"repeat": 1}


@pytest.mark.parametrize(
    ("said", "keeps"),
    [
        (None, ["select:2048"]),
        ("full", []),
        ("full,select:1/8", ["select:1/8"]),
        ("select:512,select:1/4", ["select:512", "select:1/4"]),
    ],
)
def test_keepers_are_measured_beside_full_attention(tmp_path, said, keeps):
    assert bench_options(Settings(tmp_path), UNSAID | {"keeps": said}).keeps == keeps


@pytest.mark.parametrize(
    ("said", "problem"), [("h2o", "--keep h2o is not measured"), ("full,none", "there is no keeper 'none'")]
)
def test_a_keeper_that_is_not_measured_is_refused(tmp_path, said, problem):
    with pytest.raises(UserError, match=problem):
        bench_options(Settings(tmp_path), UNSAID | {"keeps": said})
