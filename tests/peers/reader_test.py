"""The Python reader beside speculators' own dataset class: the same samples in the same run, and how long each takes to load them."""

import time

import pytest
import torch
from conftest import SAMPLES, WORK
from draftmill import Dataset
from draftmill.torch_data import TorchDataset

ROUNDS = 15


@pytest.fixture(scope="module")
def both(export):
    """(speculators' dataset of the export, the reader on the work folder)."""
    from speculators.train.data import ArrowDataset

    theirs = ArrowDataset(max_len=1 << 20, datapath=str(export("speculators")), on_missing="raise")
    return theirs, TorchDataset(Dataset(WORK))


def loaded_by_them(rows, i):
    return rows[i]


def loaded_by_us(rows, i):
    """Every byte is taken out of the file: a view alone costs nothing."""
    return {name: value.clone() for name, value in rows[i].items()}


def seconds_a_pass(load, rows):
    """The least of some passes, so that what else the machine does is left out."""
    passes = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for i in range(SAMPLES):
            load(rows, i)
        passes.append(time.perf_counter() - start)
    return min(passes)


def test_both_give_the_same_samples(both):
    theirs, ours = both
    for i in range(SAMPLES):
        their_sample, our_sample = loaded_by_them(theirs, i), loaded_by_us(ours, i)
        assert torch.equal(their_sample["input_ids"], our_sample["input_ids"])
        assert torch.equal(their_sample["loss_mask"].bool(), our_sample["loss_mask"])
        assert torch.equal(their_sample["hidden_states"], our_sample["aux"])
        assert torch.equal(their_sample["verifier_last_hidden_states"], our_sample["final"])


def test_the_reader_is_as_fast_as_speculators_own_class(both):
    theirs, ours = both
    their_seconds, our_seconds = seconds_a_pass(loaded_by_them, theirs), seconds_a_pass(loaded_by_us, ours)
    tokens = sum(ours.lengths()[:SAMPLES])
    print(f"{SAMPLES} samples, {tokens} tokens: speculators {their_seconds * 1e3:.2f} ms, draftmill {our_seconds * 1e3:.2f} ms, "
          f"{their_seconds / our_seconds:.1f} times as fast")
    assert our_seconds <= their_seconds
