"""StatePass: implements transformers' cache interface for recurrent layers, with the states of our Cache."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from localctx.kv.sequence_states import SequenceStates, page_ends
from localctx.models.architecture.unsupported import UnsupportedModel
from localctx.shape import KVShape


class StatePass:
    """One forward pass over one sequence, in which layers read and update the recurrent states that ``shape`` lists.
    transformers calls the methods of this class as those of its cache.
    """

    def __init__(self, shape: KVShape) -> None:
        self.shape = shape
        self._widths = {(s.layer, s.index): s.size[-1] for s in shape.states if s.kind == "convolution"}

    @property
    def states(self) -> SequenceStates:
        """The recurrent states of the sequence."""
        raise NotImplementedError

    @property
    def span(self) -> tuple[int, int]:
        """The number of tokens before this pass, and the number of tokens in it."""
        raise NotImplementedError

    def check_states(self) -> None:
        """Check that every state was updated. Raises UnsupportedModel."""
        wanted = {(s.layer, s.kind, s.index) for s in self.shape.states}
        if wanted and self.states.put_keys != wanted:
            raise UnsupportedModel("states")

    def get_conv_state(self, layer: int, state_idx: int = 0) -> Tensor | None:
        """Returns the inputs [1, channels, width] that convolution number ``state_idx`` of a layer remembers from
        earlier tokens; None before the first token.
        """
        return self.states.get((layer, "convolution", state_idx))

    def update_conv_state(self, inputs: Tensor, layer: int, state_idx: int = 0, **how: Any) -> Tensor:
        """Add the new ``inputs`` [1, channels, n] of convolution number ``state_idx`` of a layer, which then remembers
        the last ones. Returns the inputs that it remembered before, followed by the new ones.
        """
        known, width = (
            self.states.get((layer, "convolution", state_idx)),
            self.conv_width(inputs, layer, state_idx, **how),
        )
        seen = inputs if known is None else torch.cat((known, inputs), -1)
        seen = pad(seen, (max(0, width - seen.shape[-1]), 0))
        self.states.put((layer, "convolution", state_idx), seen[..., -width:].clone())
        length, tokens = self.span
        if not self.shape.recurrent and inputs.shape[-1] == tokens:
            for end, state in page_ends(seen, width, length, tokens).items():
                self.states.put_end(end, (layer, "convolution", state_idx), state)
        return seen

    def conv_width(self, inputs: Tensor, layer: int, state_idx: int, **_: Any) -> int:
        """Returns the number of inputs that a convolution remembers. Raises UnsupportedModel."""
        if (layer, state_idx) not in self._widths:
            raise UnsupportedModel("states")
        return self._widths[layer, state_idx]

    def get_recurrent_state(self, layer: int, state_idx: int = 0) -> Tensor | None:
        """Returns the state [1, ...] of recurrence number ``state_idx`` of a layer; None before the first token."""
        return self.states.get((layer, "recurrent", state_idx))

    def update_recurrent_state(self, state: Tensor, layer_idx: int, state_idx: int = 0, **_: Any) -> Tensor:
        """Store ``state`` [1, ...], the state of recurrence number ``state_idx`` of a layer after this pass, and return
        it.
        """
        self.states.put((layer_idx, "recurrent", state_idx), state.clone())  # it may be a view of a larger tensor
        return state

    def has_previous_state(self, layer: int | None = None, state_idx: int = 0) -> bool:
        """Returns True if there are tokens before this pass."""
        return self.states.now is not None

    def is_recording_past(self, layer: int | None = None) -> bool:
        """Returns False: a pass keeps states only after its last token or at page ends."""
        return False

    def get_seq_length(self, layer: int = 0) -> int:
        """Returns the number of tokens before this pass."""
        return self.span[0]
