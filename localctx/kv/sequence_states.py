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
    """The recurrent states of one sequence on ``device``. ``shapes`` are the shapes of the model's states, and
    ``dtype`` is the precision in which the model computes.

    ``now`` holds the states after the last committed token, None before the first token. ``ends`` holds the states
    after some pages, by the number of tokens up to there.
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
        """Returns the state [1, ...] of the layer that ``key`` names, which the step may overwrite with the next state.
        Returns None before the first token.
        """
        if self.now is None:
            return None
        if key not in self._next:
            self._next[key] = self.now[key].clone()
        return self._next[key]

    def put(self, key: StateKey, state: Tensor) -> None:
        """Set the state of the layer that ``key`` names, as it is after the open step, to ``state`` [1, ...]."""
        self._next[key] = state

    def put_end(self, length: int, key: StateKey, state: Tensor) -> None:
        """Set the state of the layer that ``key`` names, as it is at a page end inside the open step, to ``state`` [1,
        ...]. ``length`` is the number of tokens up to that page end.
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
        """Returns the greatest length, up to ``length`` tokens, after which the states are held (0 if there is none).
        ``now`` is the current length of the sequence.
        """
        if not self._shapes or length == now:
            return length
        return max((end for end in self.ends if end <= length), default=0)

    def restore(self, length: int, now: int) -> None:
        """Go back to the states after ``length`` tokens, a length that ``restorable`` returned. ``now`` is the current
        length of the sequence.
        """
        if self._shapes and length != now:
            self.now = self.ends[length] if length else None
        self.ends = {end: states for end, states in self.ends.items() if end <= length}

    def fork(self) -> "SequenceStates":
        """Returns a copy for a forked sequence; the tensors are shared."""
        twin = SequenceStates(self._shapes, self._dtype, self._device)
        twin.now, twin.ends = self.now, dict(self.ends)
        return twin

    def share(self, states: States | None, length: int) -> None:
        """Start this empty sequence with the ``states`` of another sequence after its first ``length`` tokens, which
        are whole pages.
        """
        self.now = states
        if states is not None:
            self.ends[length] = states

    # Snapshots

    def snapshot(self, states: States) -> np.ndarray:
        """Returns ``states`` as bytes (uint8), in the order in which the model's shape lists them."""
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
    """Returns a dict with the state of a convolution at each page end in a step. A key is the number of tokens up to a
    page end; a value is the state: the last ``width`` inputs [1, channels, width]. ``state_inputs`` [1, channels, n]
    are the remembered inputs followed by the inputs of the step. The step has ``tokens`` tokens, after ``length``
    earlier ones.
    """
    ends = range((length // PAGE + 1) * PAGE, length + tokens, PAGE)
    padded = torch.nn.functional.pad(state_inputs, (max(0, width + tokens - state_inputs.shape[-1]), 0))
    stops = {end: padded.shape[-1] - (length + tokens - end) for end in ends}
    return {end: padded[..., stop - width : stop].clone() for end, stop in stops.items()}
