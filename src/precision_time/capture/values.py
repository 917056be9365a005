"""Where the tensors of a running forward pass come from, distinguished by their storage.

Views share a storage, so they need no rule of their own; an operator that writes in place becomes the
producer of the storage it wrote to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GRAPH_INPUT = -1
NO_PRODUCER = -2


@dataclass(slots=True)
class Value:
    """One storage: who wrote it last, and what is known of it."""

    producer: int = NO_PRODUCER
    scales: bool = False
    """The storage grows with the batch."""
    needs_grad: bool = False
    from_model: bool = False
    """Depends on the inputs or the parameters (constants do not)."""
    param: str | None = None
    elems: int = 0
    kept: float = 0.0
    """Elements of it already kept for the backward pass."""
    kept_views: set[tuple[int, int]] = field(default_factory=set)


class ValueTable:
    """All storages seen, kept alive so that an address is never used twice."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self._values: dict[int, Value] = {}
        self._alive: list[Any] = []

    @staticmethod
    def key(tensor: Any) -> int:
        """The storage of `tensor`."""
        return int(tensor.untyped_storage()._cdata)

    def of(self, tensor: Any) -> Value:
        """The value behind `tensor`; an unseen tensor is a constant."""
        key = self.key(tensor)
        value = self._values.get(key)
        if value is None:
            elems = tensor.numel()
            value = Value(elems=elems, scales=elems > 0 and elems % self.batch == 0)
            self.put(tensor, value)
        return value

    def known(self, tensor: Any) -> bool:
        """Whether the storage was seen before."""
        return self.key(tensor) in self._values

    def put(self, tensor: Any, value: Value) -> None:
        """Registers what stands behind the storage of `tensor`."""
        self._values[self.key(tensor)] = value
        self._alive.append(tensor)

    def scales(self, tensor: Any) -> bool:
        """Whether `tensor` grows with the batch."""
        numel = tensor.numel()
        return numel > 0 and numel % self.batch == 0 and self.of(tensor).scales

    def spread(self, tensor: Any) -> bool:
        """Whether `tensor` is something fixed, expanded over the batch."""
        numel, value = tensor.numel(), self.of(tensor)
        return not value.scales and numel > value.elems > 0 and numel % self.batch == 0

    def grows(self, tensor: Any) -> bool:
        """Whether the batch is in the shape of `tensor`, by its content or by expansion."""
        return self.scales(tensor) or self.spread(tensor)

    def elems(self, tensor: Any) -> float:
        """Elements `tensor` stands for, not counting what `expand` repeats [per sample if it scales]."""
        numel = min(tensor.numel(), max(self.of(tensor).elems, 1))
        return numel / self.batch if self.scales(tensor) else float(numel)

    def keep(self, tensor: Any) -> float:
        """Marks `tensor` as kept for the backward pass: how many elements that adds [per sample]."""
        value = self.of(tensor)
        if value.param is not None or not value.from_model:
            return 0.0
        view = (tensor.storage_offset(), tensor.numel())
        if view in value.kept_views:
            return 0.0
        value.kept_views.add(view)
        whole = value.elems / self.batch if value.scales else float(value.elems)
        added = min(whole - value.kept, self.elems(tensor))
        value.kept += max(added, 0.0)
        return max(added, 0.0)

    def forget_kept(self, tensor: Any) -> None:
        """The storage was overwritten: what was kept of it belongs to the old content."""
        value = self.of(tensor)
        value.kept = 0.0
        value.kept_views.clear()
