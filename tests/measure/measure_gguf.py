"""A document kept through llama.cpp, asked again after a restart: seconds until the first token, and what was reused.

    python measure_gguf.py MODEL.gguf TEXT [TOKENS] [KV]

Each question is asked in a process of its own, after the model is loaded. The answers of the cold and the reopened
document are compared.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from localctx.session import Session
from localctx.settings import load_settings

QUESTION = "What is this text about?"


def asked(home: str, model: str, text: str, kv: str) -> None:
    """Ask in this process; prints what it cost."""
    settings = load_settings(
        home=Path(home), model=model, engine="llama.cpp", kv=kv, mode="full", embedder="none", max_tokens=24, threads=1
    )
    with Session(settings) as session:
        session.runtime.load()
        answer = session.ask(QUESTION, [text])
    stats = answer.stats
    print(json.dumps({"text": answer.text, "prompt": stats.prompt, "reused": stats.reused, **stats.seconds}))


def main(model: str, text: str, tokens: str = "6000", kv: str = "auto") -> None:
    """Ask the first ``tokens`` of the file ``text`` twice in a new data folder, and print both."""
    with tempfile.TemporaryDirectory() as folder:
        from localctx.models.llama_cpp.model import load_llama_model

        tokenizer = load_llama_model(Path(model), model, Path(folder) / "tried", threads=1).tokenizer
        stream = tokenizer.stream()
        cut = "".join(stream(token) for token in tokenizer.encode(Path(text).read_text())[: int(tokens)])
        document = Path(folder) / "text.txt"
        document.write_text(cut)
        runs = []
        for _ in range(3):
            command = [sys.executable, __file__, "--ask", folder, model, str(document), kv]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout))
            print(runs[-1], flush=True)
    cold, warm = runs[0]["first_token"], min(run["first_token"] for run in runs[1:])
    share = runs[1]["reused"] / runs[1]["prompt"]
    same = len({run["text"] for run in runs}) == 1
    print(f"first token {cold:.2f} s cold, {warm:.3f} s reopened: {cold / warm:.0f} times sooner")
    print(f"reused {share:.1%}; the same answers: {same}")


if __name__ == "__main__":
    asked(*sys.argv[2:]) if sys.argv[1] == "--ask" else main(*sys.argv[1:])
