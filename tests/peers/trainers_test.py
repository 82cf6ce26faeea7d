"""Each trainer's own collate function and first loss: from our export, and from features made by transformers.

A planted fault is a sample that was made wrong on purpose and then written, read and collated like the others; the comparison
that passes for the export has to fail for it.
"""

import numpy as np
import pytest
import torch
from conftest import MODEL, SAMPLES, WORK
from features import FAULTS
from trainers import MAX_LENGTH, ModelOpt, SpecForge, Speculators

LOSS_TOLERANCE = 1e-3
# Two bfloat16 runs of one model differ by their order of summing; per token, over the hidden extent.
MEDIAN_ERROR, WORST_ERROR = 0.02, 0.25
# Of the predictions, those that one bfloat16 run counts and another does not (trainers.py).
COUNT_TOLERANCE = 5e-3


@pytest.fixture(scope="module", params=["speculators", "specforge", "modelopt"])
def trainer(request, tmp_path_factory):
    if request.param == "specforge":
        return SpecForge(MODEL, tmp_path_factory.mktemp("indexed") / "model")
    return {"speculators": Speculators, "modelopt": ModelOpt}[request.param](MODEL)


@pytest.fixture(scope="module")
def vocab():
    return {name: torch.from_numpy(np.load(WORK / "vocab" / f"{name}.npy")) for name in ("d2t", "t2d")}


@pytest.fixture(scope="module")
def expected(trainer, reference, vocab, tmp_path_factory):
    """What the trainer makes of features by transformers: (batch, loss, counted)."""
    folder = tmp_path_factory.mktemp("reference") / trainer.form
    trainer.write(folder, _in_file_order(trainer, reference))
    batch = trainer.collate(folder, SAMPLES)
    loss = trainer.loss(batch, vocab)
    return batch, loss, trainer.counted


def _in_file_order(trainer, samples):
    """SpecForge takes files in the order of their names as text; the reference is written under the same names."""
    return samples


def relative_errors(ours, theirs):
    """Per token, where there is one."""
    ours, theirs = ours.float().flatten(0, -2), theirs.float().flatten(0, -2)
    size = theirs.norm(dim=-1)
    return ((ours - theirs).norm(dim=-1) / size.clamp_min(1e-6))[size > 0]


def differences(trainer, batch, loss, expected):
    """Everything in which a batch and its loss, the trainer's last one, are not what is expected."""
    theirs, their_loss, their_counted = expected
    found = []
    for name, value in theirs.items():
        if name not in trainer.states:
            found += [] if torch.equal(batch[name], value) else [name]
            continue
        parts = value.shape[-1] // 576
        for part in range(parts):
            columns = slice(576 * part, 576 * (part + 1))
            errors = relative_errors(batch[name][..., columns], value[..., columns])
            if batch[name].shape != value.shape or errors.median() > MEDIAN_ERROR or errors.max() > WORST_ERROR:
                found.append(f"{name}[{part}]: median {errors.median():.4f}, worst {errors.max():.4f}")
    if abs(loss - their_loss) > LOSS_TOLERANCE * abs(their_loss):
        found.append(f"loss {loss:.5f} for {their_loss:.5f}")
    if their_counted is not None and abs(trainer.counted - their_counted) > COUNT_TOLERANCE * their_counted:
        found.append(f"{trainer.counted} predictions counted for {their_counted}")
    return found


def test_the_export_is_what_transformers_gives(trainer, export, expected, reference, vocab):
    assert max(len(sample.ids) for sample in reference) <= MAX_LENGTH
    batch = trainer.collate(export(trainer.form), SAMPLES)
    assert set(batch) == set(expected[0])
    loss = trainer.loss(batch, vocab)
    print(f"{trainer.form}: loss {loss:.5f} from the export, {expected[1]:.5f} from transformers; "
          f"predictions counted {trainer.counted}, {expected[2]}")
    assert differences(trainer, batch, loss, expected) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(trainer, fault, reference, expected, vocab, tmp_path):
    trainer.write(tmp_path / "faulty", [FAULTS[fault](sample) for sample in reference])
    batch = trainer.collate(tmp_path / "faulty", SAMPLES)
    found = differences(trainer, batch, trainer.loss(batch, vocab), expected)
    print(f"{trainer.form}, {fault}: {'; '.join(found)}")
    assert found
