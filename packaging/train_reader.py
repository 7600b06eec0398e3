"""Train a reader: ``python packaging/train_reader.py DATA OUTPUT [--hours 2]``.

A reader is an adapter that answers questions from the text before them, in its words, or says that nothing there does.
It acts on question and answer only (activated LoRA, arXiv:2504.12397), so that documents' pages stay the model's own.
DATA is a folder with squad-train.json and fairytale-train.json. An interrupted run goes on where it was last saved, and
a new one from the adapter in OUTPUT, if there is one. Documents are read without gradient: on a processor by the
engine, as they are in use, on a GPU (--device cuda) by the decoder that is trained. The questions of an example stand
behind them, blind to each other.
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
from reader_examples import Example, ReaderData
from torch import Tensor
from torch.nn import functional

from localctx.engine.model_loader import ModelLoader
from localctx.engine.prompt import make_prompt
from localctx.engine.prompt_wording import NOT_SAID, READER
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.adapter_folders import WEIGHTS
from localctx.models.base import PagedModel, Tokenizer
from localctx.models.hub.resolve import resolve_model
from localctx.settings import load_settings

SAVE_EVERY = 600.0  # seconds
REPORT_EVERY = 10  # steps
WARMUP = 20  # steps
CHUNK = 512  # tokens of a document that are read at a time
REPORTED = 16  # held-out examples that the figures are of
IGNORED = -100
TOGETHER = 12_000_000  # pairs of a token and one that it attends to, that are computed at once on a GPU


@dataclass
class Packed:
    """An example as tokens: those of the documents and, behind them, those of all conversations with the numbers of
    their conversations, their positions, and the tokens to be predicted (IGNORED where nothing is learned);
    ``not_said`` tells of each answer whether it says that there is none.
    """

    prefix: list[int]
    tokens: list[int]
    segments: list[int]
    positions: list[int]
    targets: list[int]
    not_said: list[bool]


class Packer:
    """Makes tokens of examples, in the form that the engine's prompts have."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.invocation = tokenizer.encode(READER.split(" {")[0])
        conversation = make_prompt(tokenizer, ["A."], "B", [("C", "D")]).tokens
        self._stop = next(token for token in sorted(tokenizer.stop_ids) if token in conversation)

    def pack(self, example: Example) -> Packed:
        """The tokens of an example."""
        question = example.conversations[0][0][0]
        prompt = make_prompt(self._tokenizer, example.texts, question, (), READER).tokens
        packed = Packed(prompt[: self._invoked(prompt)], [], [], [], [], [])
        assert prompt[len(packed.prefix) :] == self._behind(question, ()), "it does not depend on the documents"
        for number, turns in enumerate(example.conversations):
            self._add(packed, turns, number)
        return packed

    def _behind(self, question: str, history: Sequence[tuple[str, str]]) -> list[int]:
        """The tokens behind documents, whatever these are."""
        prompt = make_prompt(self._tokenizer, ["A."], question, history, READER).tokens
        return prompt[self._invoked(prompt) :]

    def _add(self, packed: Packed, turns: Sequence[tuple[str, str]], number: int) -> None:
        """Append one conversation; answers and the stop tokens after them are learned."""
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
        """The index in ``prompt`` where the question's invocation tokens begin."""
        size = len(self.invocation)
        starts = (i for i in range(len(prompt) - size, -1, -1) if list(prompt[i : i + size]) == self.invocation)
        return next(starts)


class DocumentReader:
    """Reads documents with the engine: keys and values are those of its pages in ``codec``."""

    def __init__(self, model: PagedModel, codec: str = "int8") -> None:
        self._model, self._codec = model, codec

    def read(self, texts: Sequence[Sequence[int]]) -> list[KV]:
        """The keys and values [1, kv_heads, T, D] of each of ``texts``, bf16, by layer."""
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
        """The keys and values [1, kv_heads, T, D] of each of ``texts``, bf16, by layer."""


class Trainer:
    """Trains the adapters of a decoder for so many ``steps`` (0: for ``hours``); ``work`` is the folder where it saves
    where it is.
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
        """Go on where an earlier run was saved, if there is one."""
        if not self._state.exists():
            return False
        state = torch.load(self._state, weights_only=True)
        for own, saved in zip(self.parameters, state["parameters"], strict=True):
            own.data.copy_(saved)
        self._optimizer.load_state_dict(state["optimizer"])
        self.step, self._seconds = state["step"], state["seconds"]
        return True

    def save(self) -> None:
        """Save adapters, optimizer, step and time; a kill in between leaves the earlier state."""
        part = self._state.with_suffix(".part")
        where = {"step": self.step, "seconds": self._seconds + time.monotonic() - self._resumed}
        parameters = [p.data for p in self.parameters]
        torch.save({"parameters": parameters, "optimizer": self._optimizer.state_dict(), **where}, part)
        part.replace(self._state)

    @property
    def done(self) -> float:
        """The share of the steps, or of the time, that is over."""
        if self._steps:
            return self.step / self._steps
        return (self._seconds + time.monotonic() - self._resumed) / (3600 * self._hours)

    def train(self, examples: Sequence[Packed]) -> float:
        """One step; returns the mean loss of an answer's token."""
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
        """A linear warm-up, then a cosine down to a hundredth."""
        if self.step < WARMUP:
            return (self.step + 1) / WARMUP
        return 0.01 + 0.99 * (1 + math.cos(math.pi * min(1.0, self.done))) / 2


def together(examples: Sequence[Packed], on_gpu: bool) -> list[Sequence[Packed]]:
    """The examples that are computed at once: on a GPU, which wants much to do, all that fit; else one by one."""
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
    """Returns the summed loss, the number of predicted tokens and, of each answer, whether it should be NOT_SAID and
    whether all of its tokens are the likeliest ones, so that it would be generated.
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
    """Train, and write the adapter whenever progress is saved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-instruct", help="a plain decoder")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=0, help="train for so many steps instead")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rate", type=float, default=4e-4, help="learning rate (4e-4)")
    parser.add_argument("--questions", type=int, default=28, help="questions of a step, at least (28)")
    parser.add_argument("--seed", type=int, default=1, help="another one has other examples and another order")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--work", type=Path, help="where progress is saved (OUTPUT/../NAME.training)")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    run(given, given.work or given.output.with_suffix(".training"))


def run(given: argparse.Namespace, work: Path) -> None:
    """Train as the command line says."""
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(given.seed)
    settings = load_settings(model=given.model, weights="int4", threads=given.threads)
    model = ModelLoader().load(settings, lambda progress: None)[0]
    folder = resolve_model(given.model, settings.models, lambda *progress: None)
    decoder = LoraDecoder(folder, given.rank, 2.0 * given.rank).to(given.device)
    packer, reader = Packer(model.tokenizer), DocumentReader(model) if given.device == "cpu" else decoder
    data = ReaderData(given.data)
    trainer = Trainer(decoder, reader, work, steps=given.steps, hours=given.hours, rate=given.rate)
    if not trainer.resume() and (given.output / WEIGHTS).exists():
        decoder.load(given.output)
    held_out = [packer.pack(example) for example in ReaderData(given.data, held_out=True).epoch(1)[:REPORTED]]
    print(f"{len(data.epoch(given.seed))} examples an epoch, from step {trainer.step}", flush=True)
    loop(trainer, held_out, batches(data.examples(given.seed), given.questions, trainer.step), given, packer)


def batches(examples: Iterator[Example], questions: int, skipped: int) -> Iterator[list[Example]]:
    """Yield the examples of each step, of ``questions`` or more, after the first ``skipped`` steps."""
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
    """Train to the end; report often, and save every few minutes."""
    saved = began = time.monotonic()
    losses, tokens = list[float](), 0
    while True:
        examples = [packer.pack(example) for example in next(steps)]
        losses.append(trainer.train(examples))
        tokens += sum(len(e.prefix) + len(e.tokens) for e in examples)
        if trainer.step % REPORT_EVERY == 0:
            rate = tokens / (time.monotonic() - began)
            mean = sum(losses) / len(losses)
            print(f"step {trainer.step} loss {mean:.3f}, {rate:.0f} tokens/s, {trainer.done:.1%}", flush=True)
            losses.clear()
        if time.monotonic() - saved > SAVE_EVERY or trainer.done >= 1:
            trainer.save()
            trainer.decoder.save(given.output, given.model, packer.invocation)
            figures = held_out_figures(trainer.decoder, trainer.reader, held_out)
            print(json.dumps({"step": trainer.step, **figures}), flush=True)
            saved = time.monotonic()
        if trainer.done >= 1:
            return


@torch.no_grad()
def held_out_figures(decoder: LoraDecoder, reader: DocumentReader, held_out: Sequence[Packed]) -> dict[str, float]:
    """The loss, the share of answers generated word for word, and of questions without an answer that are told so."""
    results = [evaluate(decoder, reader, some) for some in together(held_out, decoder.norm.is_cuda)]
    outcomes = [outcome for _, _, some in results for outcome in some]
    answered, unanswered = ([hit for not_said, hit in outcomes if not_said == kind] for kind in (False, True))
    return {
        "loss": round(float(sum(loss for loss, _, _ in results)) / sum(count for _, count, _ in results), 4),
        "word for word": round(sum(answered) / len(answered), 3),
        "told so": round(sum(unanswered) / max(1, len(unanswered)), 3),
    }


if __name__ == "__main__":
    main()
