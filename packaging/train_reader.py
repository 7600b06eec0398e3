"""Train a reader: ``python packaging/train_reader.py DATA OUTPUT [--epochs 1]``.

A reader is an adapter that answers questions from the text before them, in its words, or says that it does not say. It
acts on question and answer only (activated LoRA, arXiv:2504.12397), so that the pages of documents stay the model's own.
DATA is a folder with squad-train.json and fairytale-train.json. An interrupted run goes on where it was last saved. The
documents of an example are read once, without gradient; all its questions stand behind them, blind to each other.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch
from lora_decoder import KV, LoraDecoder, Rows
from reader_examples import Example, make_examples
from torch import Tensor
from torch.nn import functional

from localctx.engine.model_loader import ModelLoader
from localctx.engine.prompt import make_prompt
from localctx.engine.prompt_wording import NOT_SAID, READER
from localctx.models.base import Tokenizer
from localctx.models.resolve import resolve_model
from localctx.settings import load_settings

MODEL = "smollm2-135m-instruct"
HELD_OUT = 40  # examples of the first epoch that are never trained on
SAVE_EVERY = 300.0  # seconds
WARMUP = 40  # steps
IGNORED = -100


@dataclass
class Packed:
    """An example as tokens: those of the documents and, behind them, those of all conversations with the numbers of
    their conversations, their positions, and the tokens to be predicted (IGNORED where nothing is learned).
    """

    prefix: list[int]
    tokens: list[int]
    segments: list[int]
    positions: list[int]
    targets: list[int]

    def mask(self) -> Tensor:
        """[tokens, prefix + tokens]: a token attends to the documents and to those before it in its conversation."""
        segments = torch.tensor(self.segments)
        causal = torch.ones(len(segments), len(segments), dtype=torch.bool).tril()
        own = causal & (segments[:, None] == segments)
        return torch.cat([torch.ones(len(segments), len(self.prefix), dtype=torch.bool), own], 1)


class Packer:
    """Makes tokens of examples, in the form that the engine's prompts have."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        probe = make_prompt(tokenizer, ["A."], "B", (), READER).tokens
        self.invocation = tokenizer.encode("Question:")
        self._stop = next(
            t for t in sorted(tokenizer.stop_ids) if t in make_prompt(tokenizer, ["A."], "B", [("C", "D")]).tokens
        )
        assert self._invoked(probe)

    def pack(self, example: Example) -> Packed:
        """The tokens of an example."""
        packed = Packed([], [], [], [], [])
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
            targets += [IGNORED] * (len(new) - 1) + reply
            targets += [IGNORED]
            tokens += [*new, *reply]
        packed.tokens += tokens
        packed.targets += targets[: len(tokens)]
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
    whether all of its tokens are the likeliest ones, which is when it would be generated so.
    """
    prefixes = read_documents(decoder, [example.prefix for example in examples])
    rows = [
        Rows(tokens, example.mask(), prefix)
        for example, prefix, tokens in zip(examples, prefixes, _slices([e.tokens for e in examples]), strict=True)
    ]
    tokens = torch.tensor([t for e in examples for t in e.tokens])
    positions = torch.tensor([p for e in examples for p in e.positions])
    targets = torch.tensor([t for e in examples for t in e.targets])
    hidden, _ = decoder(tokens, positions, rows, adapted=True)
    wanted = targets != IGNORED
    logits = decoder.logits(hidden[wanted])
    loss = functional.cross_entropy(logits, targets[wanted], reduction="sum")
    return loss, int(wanted.sum()), _outcomes(examples, logits.detach().argmax(-1) == targets[wanted], decoder)


def _outcomes(examples: Sequence[Packed], hits: Tensor, decoder: LoraDecoder) -> list[tuple[bool, bool]]:
    outcomes, at = list[tuple[bool, bool]](), 0
    for example in examples:
        runs = [list(run) for learned, run in groupby(example.targets, lambda t: t != IGNORED) if learned]
        for run in runs:
            outcomes.append((run[: len(decoder.not_said)] == decoder.not_said, bool(hits[at : at + len(run)].all())))
            at += len(run)
    return outcomes


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
    settings = load_settings(model=MODEL)
    tokenizer = ModelLoader().load(settings, lambda progress: None)[0].tokenizer
    folder = resolve_model(MODEL, settings.models, lambda *progress: None)
    decoder = LoraDecoder(folder, given.rank, 2.0 * given.rank)
    packer = Packer(tokenizer)
    decoder.not_said = tokenizer.encode(NOT_SAID)
    an_epoch = count_examples(given.data, given.seed)
    trainer = Trainer(decoder, work, steps=int(given.epochs * an_epoch / given.batch), rate=given.rate)
    trainer.resume()
    stream = (packer.pack(example) for _, example in make_examples(given.data, given.seed))
    held_out = [next(stream) for _ in range(HELD_OUT)]
    for _ in range(trainer.step * given.batch):  # those an earlier run was trained on
        next(stream)
    print(f"{an_epoch} examples an epoch, {trainer.steps} steps, from step {trainer.step}", flush=True)
    loop(trainer, held_out, stream, given, packer)


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
            trainer.decoder.save(given.output, MODEL, packer.invocation)
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


def count_examples(data: Path, seed: int) -> int:
    """The number of examples of the first epoch."""
    return sum(1 for _ in _first_epoch(data, seed))


def _first_epoch(data: Path, seed: int) -> Iterator[Example]:
    for epoch, example in make_examples(data, seed):
        if epoch:
            return
        yield example


if __name__ == "__main__":
    main()
