"""SequenceStates: the recurrent states of one sequence's layers, now and at some earlier lengths.

Committed tensors are never written to: a step gets clones, and forks share the tensors.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from localctx.shape import PAGE, StateKind, StateShape

StateKey = tuple[int, StateKind, int]
"""The model's layer, the kind of state, and its index among that kind."""
States = Mapping[StateKey, Tensor]

KEPT_BYTES = 32 << 20
"""Bytes that states at page ends may take. The last one is kept, whatever its size."""


class SequenceStates:
    """The recurrent states of one sequence, with the given ``shapes``, on ``device``, for a model that computes in
    ``dtype``.

    ``now`` holds the states after the last committed token, None before the first token. ``ends`` holds the states at
    some page ends, by the number of tokens before.
    """

    def __init__(self, shapes: tuple[StateShape, ...], dtype: torch.dtype, device: torch.device) -> None:
        self._shapes, self._dtype, self._device = shapes, dtype, device
        self.now: States | None = None
        self.ends: dict[int, States] = {}
        self._next: dict[StateKey, Tensor] = {}
        self._next_ends: dict[int, dict[StateKey, Tensor]] = {}

    @property
    def nbytes(self) -> int:
        """The size in bytes of all states held."""
        held = {id(x): x.nbytes for states in (self.now or {}, *self.ends.values()) for x in states.values()}
        return sum(held.values())

    def get(self, key: StateKey) -> Tensor | None:
        """Returns the state [1, ...] named ``key``, which the step reads and overwrites with the next one. None in the
        first step.
        """
        if self.now is None:
            return None
        if key not in self._next:
            self._next[key] = self.now[key].clone()
        return self._next[key]

    def put(self, key: StateKey, state: Tensor) -> None:
        """Store ``state`` [1, ...] under the name ``key``, as the state after the open step."""
        self._next[key] = state

    def put_end(self, length: int, key: StateKey, state: Tensor) -> None:
        """Store ``state`` [1, ...] under the name ``key``, as the state at a page end inside the open step, after
        ``length`` tokens in total.
        """
        self._next_ends.setdefault(length, {})[key] = state

    @property
    def put_keys(self) -> frozenset[StateKey]:
        """The keys of the states that the open step has computed."""
        return frozenset(self._next)

    def commit(self, length: int) -> None:
        """Make the states of the open step the current ones; the sequence then has ``length`` tokens."""
        if not self._shapes:
            return
        self.now = dict(self._next)
        self.ends |= {end: states for end, states in self._next_ends.items() if len(states) == len(self._shapes)}
        if length % PAGE == 0:
            self.ends[length] = self.now
        self.rollback()
        self._forget_early_ends()

    def rollback(self) -> None:
        """Discard the states of the open step."""
        self._next, self._next_ends = {}, {}

    def restorable(self, length: int, now: int) -> int:
        """Returns the longest length, up to ``length`` tokens, after which the states are held (0 if none are). ``now``
        is the current length.
        """
        if not self._shapes or length == now:
            return length
        return max((end for end in self.ends if end <= length), default=0)

    def restore(self, length: int, now: int) -> None:
        """Go back to the states after ``length`` tokens. ``now`` is the current length."""
        if self._shapes and length != now:
            self.now = self.ends[length] if length else None
        self.ends = {end: states for end, states in self.ends.items() if end <= length}

    def fork(self) -> "SequenceStates":
        """Returns the states of another sequence with the same past."""
        twin = SequenceStates(self._shapes, self._dtype, self._device)
        twin.now, twin.ends = self.now, dict(self.ends)
        return twin

    def share(self, states: States | None, length: int) -> None:
        """Begin with the ``states`` of another sequence, which has the same first ``length`` tokens. These are whole
        pages.
        """
        self.now = states
        if states is not None:
            self.ends[length] = states

    # Snapshots

    def snapshot(self, states: States) -> np.ndarray:
        """Returns ``states`` as bytes (uint8), in the order of the model's shape."""
        parts = [states[_key(s)].contiguous().view(torch.uint8).flatten() for s in self._shapes]
        return torch.cat(parts).cpu().numpy()

    def adopt(self, snapshot: np.ndarray, length: int) -> None:
        """Load the output of ``snapshot`` as the states after ``length`` tokens."""
        flat, states = torch.from_numpy(snapshot.copy()).to(self._device), dict[StateKey, Tensor]()
        for shape in self._shapes:
            own, flat = flat.tensor_split([shape.nbytes(self._dtype.itemsize)])
            states[_key(shape)] = own.clone().view(self._element(shape)).view(1, *shape.size)
        assert not len(flat), "a snapshot has the bytes that its shape says"
        self.now = states
        if length % PAGE == 0:
            self.ends[length] = states

    def _element(self, shape: StateShape) -> torch.dtype:
        assert shape.bits in (None, 32)
        return torch.float32 if shape.bits else self._dtype

    def _forget_early_ends(self) -> None:
        size = sum(shape.nbytes(self._dtype.itemsize) for shape in self._shapes)
        for end in sorted(self.ends)[: -max(1, KEPT_BYTES // size)]:
            del self.ends[end]


def _key(shape: StateShape) -> StateKey:
    return shape.layer, shape.kind, shape.index


def page_ends(state_inputs: Tensor, width: int, length: int, tokens: int) -> dict[int, Tensor]:
    """Returns the last ``width`` inputs of a convolution [1, channels, width] at each page end in a step, by the number
    of tokens at that end. ``state_inputs`` [1, channels, n] are all inputs that matter so far, and end with the inputs
    of the step. The step has ``tokens`` tokens, after ``length`` earlier ones.
    """
    ends = range((length // PAGE + 1) * PAGE, length + tokens, PAGE)
    padded = torch.nn.functional.pad(state_inputs, (max(0, width + tokens - state_inputs.shape[-1]), 0))
    stops = {end: padded.shape[-1] - (length + tokens - end) for end in ends}
    return {end: padded[..., stop - width : stop].clone() for end, stop in stops.items()}
