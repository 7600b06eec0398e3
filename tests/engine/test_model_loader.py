"""Loading a model: the processor is prepared while the model is downloaded, and a wait for that is told."""

from threading import Event
from types import SimpleNamespace

from localctx.engine import model_loader
from localctx.engine.events import PREPARING
from localctx.settings import Settings


def test_loading_downloads_first_then_tells_of_the_processor(monkeypatch, tmp_path):
    phases, compiling = [], Event()
    monkeypatch.setattr(model_loader, "compiled", lambda: False)
    monkeypatch.setattr(model_loader, "warm", lambda: compiling.wait(60))

    def download(name, models, progress):
        progress("fetching", 1, 2)
        return tmp_path

    def progress(event):
        phases.append(event.phase)
        if event.phase == PREPARING:
            compiling.set()

    monkeypatch.setattr(model_loader, "resolve_model", download)
    monkeypatch.setattr(model_loader, "refuse_too_big", lambda folder, settings: None)
    model = SimpleNamespace(with_prefill_loss=lambda loss: f"read with {loss}")
    monkeypatch.setattr(model_loader, "warm_sparse_prefill", lambda: phases.append("sparse"))
    monkeypatch.setattr(model_loader, "load_model", lambda *settings: model)
    settings = Settings(tmp_path, model=str(tmp_path), engine="torch", device="cpu", reading="sparse:0.2")
    assert model_loader._load(settings, progress) == "read with 0.2"
    assert phases == ["fetching", PREPARING, "loading", "sparse"]
