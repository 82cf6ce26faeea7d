"""Which position of a sample goes with which: the alignments of the trainers (docs/python.md has the table).

A sample has the ids t, the mask m, the auxiliary states a and the final state f of the positions 0 to T-1. An EAGLE-3
drafter sees a[p] and the embedding of t[p+1], and learns the distribution head(f[p+1]), which is that of t[p+2].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Aligned:
    """Arrays whose i-th entries belong together."""

    input_ids: Array
    loss_mask: Array
    aux: Array
    final: Array | None
    position_ids: npt.NDArray[np.int64]


def _shifted_left(values: Array) -> Array:
    """values[1:], and zeros in the last place."""
    shifted = np.zeros_like(values)
    shifted[:-1] = values[1:]
    return shifted


def _none(ids: Array, mask: Array, aux: Array, final: Array | None) -> Aligned:
    return Aligned(ids, mask, aux, final, np.arange(len(ids)))


def _specforge(ids: Array, mask: Array, aux: Array, final: Array | None) -> Aligned:
    # The mask is not shifted: m[p] weighs the prediction of t[p+2]. Its last place is cleared.
    kept = mask.copy()
    kept[-1:] = 0
    return Aligned(
        _shifted_left(ids), kept, aux, None if final is None else _shifted_left(final), np.arange(len(ids))
    )


def _speculators(ids: Array, mask: Array, aux: Array, final: Array | None) -> Aligned:
    # m[p+1] weighs the prediction of t[p+2]; positions count from 1.
    return Aligned(ids[1:], mask[1:], aux[:-1], None if final is None else final[1:], np.arange(1, len(ids)))


def _modelopt(ids: Array, mask: Array, aux: Array, final: Array | None) -> Aligned:
    # As speculators; positions count from 0.
    return Aligned(ids[1:], mask[1:], aux[:-1], None if final is None else final[1:], np.arange(len(ids) - 1))


SHIFTS: dict[str, Callable[[Array, Array, Array, Array | None], Aligned]] = {
    "none": _none,
    "specforge": _specforge,
    "speculators": _speculators,
    "modelopt": _modelopt,
}
