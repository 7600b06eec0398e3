"""Prefetcher: copies records of lower tiers to the device, one layer ahead of attention."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Prefetcher:
    """Stacks records on ``device``, and meanwhile copies what the next layer will want, on a stream of its own.

    The next layer is expected to want the pages that it wanted last, or else those of this layer if its records lie in
    the same of ``parts`` [layers]; a wrong guess costs only time. On a CPU there is nothing to overlap: records are
    read where they are mapped.
    """

    def __init__(self, record: Callable[[int, int], Tensor], parts: Sequence[int], device: torch.device) -> None:
        self._record, self._parts, self._device = record, parts, device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._wanted: dict[tuple[int, int], list[int]] = {}  # by layer and which run of it
        self._ahead: dict[tuple[int, int], Tensor] = {}  # by page and layer
        self._run = 0
        self._layer = -1

    def take(self, pages: Sequence[int], layer: int) -> Tensor:
        """The records of ``pages`` of a layer, all of one size: [pages, total] uint8 on the device."""
        if self._stream:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
        records = torch.stack([self._at(page, layer) for page in pages])
        if self._stream:
            self._prefetch_next(list(pages), layer)
        return records

    def _at(self, page: int, layer: int) -> Tensor:
        ahead = self._ahead.pop((page, layer), None)
        return self._record(page, layer).to(self._device, non_blocking=True) if ahead is None else ahead

    def _prefetch_next(self, pages: list[int], layer: int) -> None:
        self._run = self._run + 1 if layer == self._layer else 0
        self._layer, following = layer, (layer + 1) % len(self._parts)
        self._wanted[layer, self._run] = pages
        if self._run == 0:
            self._ahead = {k: r for k, r in self._ahead.items() if k[1] == layer}
        guess = pages if self._parts[following] == self._parts[layer] else []
        with torch.cuda.stream(self._stream):
            for page in self._wanted.get((following, self._run), guess):
                self._copy(page, following)

    def _copy(self, page: int, layer: int) -> None:
        try:
            record = self._record(page, layer)
        except KeyError:  # released since it was wanted
            return
        if record.device.type != self._device.type and (page, layer) not in self._ahead:
            copy = record.to(self._device, non_blocking=True)
            copy.record_stream(torch.cuda.current_stream(self._device))
            self._ahead[page, layer] = copy
