"""Trains a reader: ``python packaging/train_reader.py DATA OUTPUT [--hours 2]``.

A reader is an adapter that answers a question in the words of the text before it, or says that the text has no answer.
It changes only the question and the answer (activated LoRA, arXiv:2504.12397), so the pages of documents are the base
model's own. DATA is a folder with squad-train.json and fairytale-train.json. An interrupted run continues where it was
last saved. A new run starts from the adapter in OUTPUT, if there is one.

Documents are computed without gradient: on a CPU by the engine, as in use; on a GPU (--device cuda) by the decoder that
is trained. All conversations of an example follow its documents and do not attend to each other.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Protocol

import torch
from lora_decoder import KV, LoraDecoder, Rows
from reader_examples import LENGTHS, Example, ReaderData
from torch import Tensor
from torch.nn import functional

from localctx.engine.model_loader import ModelLoader
from localctx.engine.prompt import make_prompt
from localctx.engine.prompt_wording import NOT_SAID, READER
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.adapter_folders import WEIGHTS
from localctx.models.base import PagedModel, Tokenizer
from localctx.models.choice.device_choice import pick_device, pick_dtype
from localctx.models.hub.resolve import resolve_model
from localctx.settings import load_settings

SAVE_EVERY = 600.0  # seconds
REPORT_EVERY = 10  # steps
WARMUP = 20  # steps
CHUNK = 512  # tokens of a document in one forward pass
REPORTED = 16  # held-out examples from which figures are computed
IGNORED = -100
TOGETHER = 12_000_000  # pairs of a token and a token that it attends to, computed at once on a GPU


@dataclass
class Packed:
    """An example as tokens. ``prefix`` has the tokens of the documents, and ``tokens`` those of all conversations after
    them. For each of ``tokens``, ``segments`` has the number of its conversation, ``positions`` its position, and
    ``targets`` the token to predict (IGNORED: none). ``not_said`` has a flag for each answer: True if it says that
    there is no answer.
    """

    prefix: list[int]
    tokens: list[int]
    segments: list[int]
    positions: list[int]
    targets: list[int]
    not_said: list[bool]


class Packer:
    """Converts examples to tokens, in the same form as the engine's prompts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.invocation = tokenizer.encode(READER.split(" {")[0])
        conversation = make_prompt(tokenizer, ["A."], "B", [("C", "D")]).tokens
        self._stop = next(token for token in sorted(tokenizer.stop_ids) if token in conversation)

    def pack(self, example: Example) -> Packed:
        """Returns an example as tokens."""
        question = example.conversations[0][0][0]
        prompt = make_prompt(self._tokenizer, example.texts, question, (), READER).tokens
        packed = Packed(prompt[: self._invoked(prompt)], [], [], [], [], [])
        assert prompt[len(packed.prefix) :] == self._behind(question, ()), "it does not depend on the documents"
        for number, turns in enumerate(example.conversations):
            self._add(packed, turns, number)
        return packed

    def _behind(self, question: str, history: Sequence[tuple[str, str]]) -> list[int]:
        """Returns the tokens that follow the documents in a prompt. They do not depend on the documents."""
        prompt = make_prompt(self._tokenizer, ["A."], question, history, READER).tokens
        return prompt[self._invoked(prompt) :]

    def _add(self, packed: Packed, turns: Sequence[tuple[str, str]], number: int) -> None:
        """Append one conversation to ``packed``. Only answers and the stop tokens after them are to be predicted."""
        tokens, targets = list[int](), list[int]()
        for i, (question, answer) in enumerate(turns):
            prompt = self._behind(question, turns[:i])
            assert prompt[: len(tokens)] == tokens, "a conversation begins as it did before"
            new = prompt[len(tokens) :]
            reply = [*self._tokenizer.encode(answer), self._stop]
            targets += [*[IGNORED] * (len(new) - 1), *reply, IGNORED]  # each token has the next one as its target
            tokens += [*new, *reply]
            packed.not_said.append(answer == NOT_SAID)
        packed.tokens += tokens
        packed.targets += targets
        packed.segments += [number] * len(tokens)
        packed.positions += range(len(packed.prefix), len(packed.prefix) + len(tokens))

    def _invoked(self, prompt: Sequence[int]) -> int:
        """Returns the index in ``prompt`` where the last invocation tokens, those of the question, begin."""
        size = len(self.invocation)
        starts = (i for i in range(len(prompt) - size, -1, -1) if list(prompt[i : i + size]) == self.invocation)
        return next(starts)


class DocumentReader:
    """Computes the keys and values of documents with the engine. They are read back from its pages in ``codec``, so the
    codec's error is included.
    """

    def __init__(self, model: PagedModel, codec: str = "int8") -> None:
        self._model, self._codec = model, codec

    def read(self, texts: Sequence[Sequence[int]]) -> list[KV]:
        """Returns the keys and values [1, kv_heads, T, D] bf16 of each of ``texts``, by layer."""
        return [self._read(tokens) for tokens in texts]

    def _read(self, tokens: Sequence[int]) -> KV:
        cache = Cache(Pool(self._model.shape, self._codec, rope=self._model.rope), self._model.dtype)
        for start in range(0, len(tokens), CHUNK):
            self._model.forward(tokens[start : start + CHUNK], cache)
        return [self._layer(cache, layer) for layer in range(len(self._model.shape.layers))]

    @staticmethod
    def _layer(cache: Cache, layer: int) -> tuple[Tensor, Tensor]:
        runs = cache.table.runs(layer, 0, max(1, cache.num_pages))
        parts = [cache.read(layer, start, stop, torch.bfloat16) for start, stop in runs]
        parts.append(cache.open_tail(layer))
        key, value = (torch.cat([part.bfloat16() for part in some], 1)[None] for some in zip(*parts, strict=True))
        return key.clone(), value.clone()  # not inference tensors


class Reader(Protocol):
    """Computes the keys and values of documents: a DocumentReader, or the decoder itself."""

    def read(self, texts: Sequence[Sequence[int]]) -> list[KV]:
        """Returns the keys and values [1, kv_heads, T, D] bf16 of each of ``texts``, by layer."""


class Trainer:
    """Trains the adapters of ``decoder`` for ``steps`` steps, or for ``hours`` hours if ``steps`` is 0. Progress is
    saved in the folder ``work``. ``rate`` is the learning rate.
    """

    def __init__(
        self, decoder: LoraDecoder, reader: Reader, work: Path, *, steps: int, hours: float, rate: float
    ) -> None:
        self.decoder, self.reader, self._state = decoder, reader, work / "state.pt"
        self._steps, self._hours, self._rate = steps, hours, rate
        self.parameters = [p for p in decoder.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(self.parameters, lr=rate, weight_decay=0.01, betas=(0.9, 0.98))
        self.step, self._seconds, self._resumed = 0, 0.0, time.monotonic()

    def resume(self) -> bool:
        """Continue from the saved progress of an earlier run. Returns False if there is none."""
        if not self._state.exists():
            return False
        state = torch.load(self._state, weights_only=True)
        for own, saved in zip(self.parameters, state["parameters"], strict=True):
            own.data.copy_(saved)
        self._optimizer.load_state_dict(state["optimizer"])
        self.step, self._seconds = state["step"], state["seconds"]
        return True

    def save(self) -> None:
        """Save the adapters, the optimizer, the step and the time. If the process is killed meanwhile, the earlier file
        remains.
        """
        part = self._state.with_suffix(".part")
        where = {"step": self.step, "seconds": self._seconds + time.monotonic() - self._resumed}
        parameters = [p.data for p in self.parameters]
        torch.save({"parameters": parameters, "optimizer": self._optimizer.state_dict(), **where}, part)
        part.replace(self._state)

    @property
    def done(self) -> float:
        """The finished share of the steps, or of the time."""
        if self._steps:
            return self.step / self._steps
        return (self._seconds + time.monotonic() - self._resumed) / (3600 * self._hours)

    def train(self, examples: Sequence[Packed]) -> float:
        """Run one optimizer step on ``examples``. Returns the mean loss per predicted token."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * self._schedule()
        count, total = sum(t != IGNORED for e in examples for t in e.targets), 0.0
        for some in together(examples, self.decoder.norm.is_cuda):
            loss, _, _ = evaluate(self.decoder, self.reader, some)
            (loss / count).backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return total / count

    def _schedule(self) -> float:
        """Returns the factor of the learning rate: a linear warm-up, then a cosine decay to 0.01."""
        if self.step < WARMUP:
            return (self.step + 1) / WARMUP
        return 0.01 + 0.99 * (1 + math.cos(math.pi * min(1.0, self.done))) / 2


def together(examples: Sequence[Packed], on_gpu: bool) -> list[Sequence[Packed]]:
    """Group the examples that are computed in one pass. On a GPU, which is faster with large passes, a group has as
    many examples as fit; else a group is one example.
    """
    groups, tokens = list[list[Packed]](), TOGETHER
    for example in examples:
        cost = len(example.tokens) * (len(example.prefix) + len(example.tokens))
        if not on_gpu or tokens + cost > TOGETHER:
            groups, tokens = [*groups, []], 0
        groups[-1].append(example)
        tokens += cost
    return list(groups)


def evaluate(
    decoder: LoraDecoder, reader: Reader, examples: Sequence[Packed]
) -> tuple[Tensor, int, list[tuple[bool, bool]]]:
    """Returns the summed loss, the number of predicted tokens, and two flags for each answer: whether the right answer
    is NOT_SAID, and whether greedy decoding would generate the right answer.
    """
    ends = accumulate(len(e.tokens) for e in examples)
    prefixes = reader.read([e.prefix for e in examples])
    rows = [
        Rows(slice(end - len(e.tokens), end), e.segments, prefix)
        for e, end, prefix in zip(examples, ends, prefixes, strict=True)
    ]
    tokens, positions, targets = (
        torch.tensor([n for e in examples for n in getattr(e, what)], device=decoder.norm.device)
        for what in ("tokens", "positions", "targets")
    )
    hidden, _ = decoder(tokens, positions, rows, adapted=True)
    wanted = targets != IGNORED
    logits = decoder.logits(hidden[wanted])
    loss = functional.cross_entropy(logits, targets[wanted], reduction="sum")
    lengths = [n for e in examples for n in _answer_lengths(e)]
    hits = (logits.detach().argmax(-1) == targets[wanted]).cpu().split(lengths)
    not_said = [one for e in examples for one in e.not_said]
    return loss, int(wanted.sum()), list(zip(not_said, (bool(hit.all()) for hit in hits), strict=True))


def _answer_lengths(example: Packed) -> list[int]:
    runs = groupby(example.targets, lambda token: token != IGNORED)
    return [len(list(run)) for learned, run in runs if learned]


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-instruct", help="a plain decoder")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=0, help="train for so many steps instead")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rate", type=float, default=4e-4, help="learning rate (4e-4)")
    parser.add_argument("--questions", type=int, default=28, help="questions of a step, at least (28)")
    parser.add_argument("--longest", type=int, default=max(LENGTHS), help="words of an example's documents, about")
    parser.add_argument("--seed", type=int, default=1, help="another one has other examples and another order")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--work", type=Path, help="where progress is saved (OUTPUT/../NAME.training)")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    run(given, given.work or given.output.with_suffix(".training"))


def run(given: argparse.Namespace, work: Path) -> None:
    """Train with the command line arguments ``given``. Progress is saved in the folder ``work``."""
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(given.seed)
    settings = load_settings(model=given.model, weights="int4", threads=given.threads)
    model = ModelLoader().load(settings, lambda progress: None)[0]
    folder = resolve_model(given.model, settings.models, lambda *progress: None)
    device = pick_device(given.device)
    decoder = LoraDecoder(folder, given.rank, 2.0 * given.rank).to(device)
    if pick_dtype("auto", device) == torch.float32:  # there products in bf16 are emulated
        decoder.float()
    packer, reader = Packer(model.tokenizer), DocumentReader(model) if given.device == "cpu" else decoder
    data = ReaderData(given.data, longest=given.longest)
    trainer = Trainer(decoder, reader, work, steps=given.steps, hours=given.hours, rate=given.rate)
    if not trainer.resume() and (given.output / WEIGHTS).exists():
        decoder.load(given.output)
    held_out = [packer.pack(example) for example in ReaderData(given.data, True, given.longest).epoch(1)[:REPORTED]]
    print(f"{len(data.epoch(given.seed))} examples an epoch, from step {trainer.step}", flush=True)
    loop(trainer, held_out, batches(data.examples(given.seed), given.questions, trainer.step), given, packer)


def batches(examples: Iterator[Example], questions: int, skipped: int) -> Iterator[list[Example]]:
    """Yield the examples of each step. A step has at least ``questions`` conversations. The first ``skipped`` steps are
    left out.
    """
    batch = list[Example]()
    for example in examples:
        batch.append(example)
        if sum(len(one.conversations) for one in batch) >= questions:
            if skipped <= 0:
                yield batch
            skipped, batch = skipped - 1, []


def loop(
    trainer: Trainer,
    held_out: Sequence[Packed],
    steps: Iterator[list[Example]],
    given: argparse.Namespace,
    packer: Packer,
) -> None:
    """Train until done. Prints the loss every REPORT_EVERY steps. Every SAVE_EVERY seconds and at the end, saves
    progress and the adapter and prints figures on ``held_out``.
    """
    saved = began = time.monotonic()
    losses, tokens = list[float](), 0
    while True:
        examples = [packer.pack(example) for example in next(steps)]
        losses.append(trainer.train(examples))
        tokens += sum(len(e.prefix) + len(e.tokens) for e in examples)
        done = trainer.done >= 1
        if trainer.step % REPORT_EVERY == 0:
            rate = tokens / (time.monotonic() - began)
            mean = sum(losses) / len(losses)
            print(f"step {trainer.step} loss {mean:.3f}, {rate:.0f} tokens/s, {trainer.done:.1%}", flush=True)
            losses.clear()
        if time.monotonic() - saved > SAVE_EVERY or done:
            trainer.save()
            trainer.decoder.save(given.output, given.model, packer.invocation)
            figures = held_out_figures(trainer.decoder, trainer.reader, held_out)
            print(json.dumps({"step": trainer.step, **figures}), flush=True)
            saved = time.monotonic()
        if done:
            return


@torch.no_grad()
def held_out_figures(decoder: LoraDecoder, reader: Reader, held_out: Sequence[Packed]) -> dict[str, float]:
    """Returns figures on the held-out examples: the loss, the share of answers generated word for word, and the share
    of questions without an answer for which the decoder says so.
    """
    results = [evaluate(decoder, reader, some) for some in together(held_out, decoder.norm.is_cuda)]
    outcomes = [outcome for _, _, some in results for outcome in some]
    answered, unanswered = ([hit for not_said, hit in outcomes if not_said == kind] for kind in (False, True))
    return {
        "loss": round(float(sum(loss for loss, _, _ in results)) / sum(count for _, count, _ in results), 4),
        "word for word": round(sum(answered) / max(1, len(answered)), 3),
        "told so": round(sum(unanswered) / max(1, len(unanswered)), 3),
    }


if __name__ == "__main__":
    main()
