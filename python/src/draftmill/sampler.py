"""Batches of rows to a token budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt


class TokenBudgetSampler:
    """Yields lists of rows whose tokens together stay within `max_tokens`; a longer row comes alone.

    Works as `batch_sampler` of torch's DataLoader. The order depends on seed and epoch alone, so every process of a
    distributed run makes the same batches, and takes each `num_replicas`-th of them from `rank` on; left-over batches at the
    end are dropped, so that all processes make the same number of steps.
    """

    def __init__(
        self,
        lengths: Sequence[int] | npt.NDArray[np.int64],
        max_tokens: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        num_replicas: int = 1,
    ) -> None:
        if max_tokens < 1 or not 0 <= rank < num_replicas:
            raise ValueError("max_tokens must be at least 1, and rank one of num_replicas")
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._max_tokens = max_tokens
        self._shuffle = shuffle
        self._seed = seed
        self._rank = rank
        self._num_replicas = num_replicas
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Another epoch has another order."""
        self._epoch = epoch

    def _all_batches(self) -> list[list[int]]:
        order = np.arange(len(self._lengths))
        if self._shuffle:
            order = np.random.default_rng((self._seed, self._epoch)).permutation(order)
        batches: list[list[int]] = []
        tokens = 0
        for row in order.tolist():
            length = int(self._lengths[row])
            if not batches or tokens + length > self._max_tokens:
                batches.append([])
                tokens = 0
            batches[-1].append(row)
            tokens += length
        return batches

    def __iter__(self) -> Iterator[list[int]]:
        batches = self._all_batches()
        whole = len(batches) // self._num_replicas * self._num_replicas
        return iter(batches[self._rank : whole : self._num_replicas])

    def __len__(self) -> int:
        return len(self._all_batches()) // self._num_replicas
