import itertools
from pathlib import Path

import numpy as np
import pytest
from conftest import HIDDEN_SIZE, Truth

from draftmill import Dataset, TokenBudgetSampler

torch = pytest.importorskip("torch")
from draftmill.torch_data import PackedCollator, TorchDataset, bfloat16_tensor  # noqa: E402


def test_tensors_share_the_mapped_memory(work: Path, truth: Truth) -> None:
    sample = Dataset(work)[0]
    tensor = bfloat16_tensor(sample.aux)
    assert tensor.dtype == torch.bfloat16 and tensor.data_ptr() == sample.aux.ctypes.data
    assert np.array_equal(tensor.view(torch.int16).numpy().view(np.uint16), truth.states[truth.keys[0]][:, :3])


def test_packed_batches(work: Path, truth: Truth) -> None:
    dataset = TorchDataset(Dataset(work))
    sampler = TokenBudgetSampler(dataset.lengths(), 16, shuffle=False)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=PackedCollator(pad_to=16))
    row = 0
    for batch in loader:
        bounds = batch["cu_seqlens"].tolist()
        assert batch["input_ids"].shape[1] % 16 == 0
        for begin, end in itertools.pairwise(bounds):
            key = truth.keys[row]
            assert batch["input_ids"][0, begin:end].tolist() == truth.ids[key].tolist()
            assert batch["loss_mask"][0, begin:end].tolist() == truth.mask[key].astype(bool).tolist()
            assert batch["position_ids"][0, begin:end].tolist() == list(range(end - begin))
            assert batch["aux"].shape[2] == 3 * HIDDEN_SIZE and batch["final"].shape[2] == HIDDEN_SIZE
            row += 1
        assert (batch["document_ids"][0, bounds[-1] :] == -1).all()
        assert batch["document_ids"][0, : bounds[-1]].bincount().tolist() == np.diff(bounds).tolist()
    assert row == len(truth.keys)
