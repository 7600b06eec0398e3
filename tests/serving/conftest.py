"""A server in this process with a tiny model, and a client of it."""

import httpx
import pytest
from api_servers import api_server


@pytest.fixture(scope="module")
def serving(tmp_path_factory, sharp_model):
    """A server with a model whose answers hang on every page: where it is, its key, and its data folder."""
    with api_server(tmp_path_factory.mktemp("serve"), sharp_model, max_tokens=24, dtype="f32") as about:
        yield about


@pytest.fixture
def client(serving):
    """A plain HTTP client with the key."""
    url, key, _ = serving
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=120, trust_env=False) as client:
        yield client
