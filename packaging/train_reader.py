"""Train a reader: ``python packaging/train_reader.py DATA OUTPUT [--epochs 1]``.

A reader is an adapter that answers questions from the text before them, in its words, or says that nothing there does.
It acts on question and answer only (activated LoRA, arXiv:2504.12397), so that documents' pages stay the model's own.
DATA is a folder with squad-train.json and fairytale-train.json. An interrupted run goes on where it was last saved. The
documents of an example are read once, without gradient; its questions stand behind them, blind to each other.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import torch
from lora_decoder import KV, LoraDecoder, Rows
from reader_examples import Example, ReaderData
from torch import Tensor
from torch.nn import functional

from localctx.engine.model_loader import ModelLoader
from localctx.engine.prompt import make_prompt
from localctx.engine.prompt_wording import NOT_SAID, READER
from localctx.models.base import Tokenizer
from localctx.models.resolve import resolve_model
from localctx.settings import load_settings

SAVE_EVERY = 600.0  # seconds
WARMUP = 40  # steps
REPORTED = 24  # held-out examples that the figures are of
IGNORED = -100


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
        packed = Packed([], [], [], [], [], [])
        for number, turns in enumerate(example.conversations):
            self._add(packed, example.texts, turns, number)
        return packed

    def _add(self, packed: Packed, texts: Sequence[str], turns: Sequence[tuple[str, str]], number: int) -> None:
        """Append one conversation; answers and the stop tokens after them are learned."""
        tokens, targets, start = list[int](), list[int](), 0
        for i, (question, answer) in enumerate(turns):
            prompt = make_prompt(self._tokenizer, texts, question, turns[:i], READER).tokens
            if i == 0:
                start = self._invoked(prompt)
                packed.prefix = packed.prefix or prompt[:start]
                assert packed.prefix == prompt[:start], "documents are encoded the same whatever follows"
            assert prompt[start : start + len(tokens)] == tokens, "a conversation begins as it did before"
            new = prompt[start + len(tokens) :]
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


class Trainer:
    """Trains the adapters of a decoder; ``work`` is the folder where it saves where it is."""

    def __init__(self, decoder: LoraDecoder, work: Path, *, steps: int, rate: float) -> None:
        self.decoder, self._state, self.steps, self._rate = decoder, work / "state.pt", steps, rate
        self.parameters = [p for p in decoder.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(self.parameters, lr=rate, weight_decay=0.01, betas=(0.9, 0.98))
        self.step = 0

    def resume(self) -> None:
        """Go on where an earlier run was saved, if there is one."""
        if self._state.exists():
            state = torch.load(self._state, weights_only=True)
            for own, saved in zip(self.parameters, state["parameters"], strict=True):
                own.data.copy_(saved)
            self._optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]

    def save(self) -> None:
        """Save adapters, optimizer and step; a kill in between leaves the earlier state."""
        part = self._state.with_suffix(".part")
        parameters = [p.data for p in self.parameters]
        torch.save({"parameters": parameters, "optimizer": self._optimizer.state_dict(), "step": self.step}, part)
        part.replace(self._state)

    def train(self, examples: Sequence[Packed]) -> float:
        """One step; returns the mean loss of an answer's token."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * self._schedule()
        loss, count, _ = evaluate(self.decoder, examples)
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return float(loss.detach()) / count

    def _schedule(self) -> float:
        """A linear warm-up, then a cosine down to a hundredth."""
        if self.step < WARMUP:
            return (self.step + 1) / WARMUP
        done = min(1.0, (self.step - WARMUP) / max(1, self.steps - WARMUP))
        return 0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2


def evaluate(decoder: LoraDecoder, examples: Sequence[Packed]) -> tuple[Tensor, int, list[tuple[bool, bool]]]:
    """Returns the summed loss, the number of predicted tokens and, of each answer, whether it should be NOT_SAID and
    whether all of its tokens are the likeliest ones, so that it would be generated.
    """
    prefixes = read_documents(decoder, [example.prefix for example in examples])
    rows = [
        Rows(tokens, example.segments, prefix)
        for example, prefix, tokens in zip(examples, prefixes, _slices([e.tokens for e in examples]), strict=True)
    ]
    tokens = torch.tensor([t for e in examples for t in e.tokens])
    positions = torch.tensor([p for e in examples for p in e.positions])
    targets = torch.tensor([t for e in examples for t in e.targets])
    hidden, _ = decoder(tokens, positions, rows, adapted=True)
    wanted = targets != IGNORED
    logits = decoder.logits(hidden[wanted])
    loss = functional.cross_entropy(logits, targets[wanted], reduction="sum")
    hits = (logits.detach().argmax(-1) == targets[wanted]).split(_answer_lengths(examples))
    not_said = [kind for example in examples for kind in example.not_said]
    return loss, int(wanted.sum()), list(zip(not_said, (bool(hit.all()) for hit in hits), strict=True))


def _answer_lengths(examples: Sequence[Packed]) -> list[int]:
    runs = (groupby(example.targets, lambda token: token != IGNORED) for example in examples)
    return [len(list(run)) for of_one in runs for learned, run in of_one if learned]


@torch.no_grad()
def read_documents(decoder: LoraDecoder, prefixes: Sequence[list[int]]) -> list[KV]:
    """The keys and values of documents, computed by the model without its adapter."""
    rows = [Rows(tokens) for tokens in _slices(prefixes)]
    positions = torch.tensor([i for prefix in prefixes for i in range(len(prefix))])
    _, caches = decoder(torch.tensor([t for prefix in prefixes for t in prefix]), positions, rows, adapted=False)
    return caches


def _slices(parts: Sequence[Sequence[int]]) -> Iterator[slice]:
    start = 0
    for part in parts:
        yield slice(start, start + len(part))
        start += len(part)


def main() -> None:
    """Train, and write the adapter whenever progress is saved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", default="smollm2-135m-instruct", help="a plain decoder with tied embeddings")
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rate", type=float, default=5e-4, help="learning rate (5e-4)")
    parser.add_argument("--batch", type=int, default=4, help="examples of a step (4)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--work", type=Path, help="where progress is saved (OUTPUT/../NAME.training)")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    run(given, given.work or given.output.with_suffix(".training"))


def run(given: argparse.Namespace, work: Path) -> None:
    """Train as the command line says."""
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(given.seed)
    tokenizer = load_tokenizer(given.model)
    folder = resolve_model(given.model, load_settings().models, lambda *progress: None)
    decoder = LoraDecoder(folder, given.rank, 2.0 * given.rank)
    packer = Packer(tokenizer)
    data = ReaderData(given.data)
    an_epoch = len(data.epoch(given.seed))
    trainer = Trainer(decoder, work, steps=int(given.epochs * an_epoch / given.batch), rate=given.rate)
    trainer.resume()
    held_out = [packer.pack(example) for example in ReaderData(given.data, held_out=True).epoch(given.seed)[:REPORTED]]
    untrained = islice(data.examples(given.seed), trainer.step * given.batch, None)
    print(f"{an_epoch} examples an epoch, {trainer.steps} steps, from step {trainer.step}", flush=True)
    loop(trainer, held_out, map(packer.pack, untrained), given, packer)


def load_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a model, as the engine uses it."""
    return ModelLoader().load(load_settings(model=model), lambda progress: None)[0].tokenizer


def loop(
    trainer: Trainer, held_out: Sequence[Packed], stream: Iterator[Packed], given: argparse.Namespace, packer: Packer
) -> None:
    """Train to the last step; report every 25 steps, and save every few minutes."""
    saved = began = time.monotonic()
    losses, tokens = list[float](), 0
    while trainer.step < trainer.steps:
        examples = [next(stream) for _ in range(given.batch)]
        losses.append(trainer.train(examples))
        tokens += sum(len(e.prefix) + len(e.tokens) for e in examples)
        if trainer.step % 25 == 0:
            rate = tokens / (time.monotonic() - began)
            print(f"step {trainer.step} loss {sum(losses) / len(losses):.3f}, {rate:.0f} tokens a second", flush=True)
            losses.clear()
        if time.monotonic() - saved > SAVE_EVERY or trainer.step == trainer.steps:
            trainer.save()
            trainer.decoder.save(given.output, given.model, packer.invocation)
            print(json.dumps({"step": trainer.step, **held_out_figures(trainer.decoder, held_out)}), flush=True)
            saved = time.monotonic()


@torch.no_grad()
def held_out_figures(decoder: LoraDecoder, examples: Sequence[Packed]) -> dict[str, float]:
    """The loss, the share of answers generated word for word, and of questions without an answer that are told so."""
    results = [evaluate(decoder, [example]) for example in examples]
    outcomes = [outcome for _, _, some in results for outcome in some]
    answered, unanswered = ([hit for not_said, hit in outcomes if not_said == kind] for kind in (False, True))
    return {
        "loss": round(float(sum(loss for loss, _, _ in results)) / sum(count for _, count, _ in results), 4),
        "word for word": round(sum(answered) / len(answered), 3),
        "told so": round(sum(unanswered) / max(1, len(unanswered)), 3),
    }


if __name__ == "__main__":
    main()
