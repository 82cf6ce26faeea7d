"""torch's view of a dataset: a map-style dataset of tensors, and a collator that packs samples into one row.

    dataset = TorchDataset(Dataset("work/demo", shift="speculators"))
    sampler = TokenBudgetSampler(dataset.lengths(), max_tokens=8192)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=PackedCollator())
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset as _TorchDatasetBase

from draftmill.bfloat16 import Bits
from draftmill.dataset import Dataset

Tensors = dict[str, torch.Tensor]


def bfloat16_tensor(bits: Bits) -> torch.Tensor:
    """bfloat16 bits as a tensor that shares their memory."""
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)


class TorchDataset(_TorchDatasetBase[Tensors]):
    """Samples as dicts of tensors.

    input_ids int64 [T], loss_mask bool [T], position_ids int64 [T], aux bfloat16 [T, A*H] and, where the run kept it, final
    bfloat16 [T, H], all under the convention of the dataset.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: int) -> Tensors:
        sample = self.dataset[row]
        tensors = {
            "input_ids": torch.from_numpy(sample.input_ids).long(),
            "loss_mask": torch.from_numpy(sample.loss_mask).bool(),
            "position_ids": torch.from_numpy(sample.position_ids),
            "aux": bfloat16_tensor(sample.aux).flatten(1),
        }
        if sample.final is not None:
            tensors["final"] = bfloat16_tensor(sample.final)
        return tensors

    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of every row, for TokenBudgetSampler."""
        return self.dataset.lengths()


@dataclass(frozen=True)
class PackedCollator:
    """Packs samples into one row, back to back.

    All tensors get a first extent of 1. `document_ids` int64 [1, T] numbers the samples and is -1 on padding; `cu_seqlens`
    int32 [N+1] says where each begins. With `pad_to` the row is filled up with zeros to a multiple of so many tokens.
    """

    pad_to: int = 1

    def __call__(self, samples: list[Tensors]) -> Tensors:
        lengths = torch.tensor([len(sample["input_ids"]) for sample in samples])
        total = int(lengths.sum())
        padding = -total % self.pad_to
        batch = {name: self._packed([sample[name] for sample in samples], padding, 0) for name in samples[0]}
        document_ids = torch.repeat_interleave(torch.arange(len(samples)), lengths)
        batch["document_ids"] = self._packed([document_ids], padding, -1)
        batch["cu_seqlens"] = torch.nn.functional.pad(torch.cumsum(lengths, 0), (1, 0)).int()
        return batch

    @staticmethod
    def _packed(parts: list[torch.Tensor], padding: int, fill: int) -> torch.Tensor:
        if padding > 0:
            parts = [*parts, parts[0].new_full((padding, *parts[0].shape[1:]), fill)]
        return torch.cat(parts).unsqueeze(0)
