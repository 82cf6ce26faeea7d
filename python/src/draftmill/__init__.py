"""Reads what draftmill wrote.

    from draftmill import Dataset

    dataset = Dataset("work/demo", final_norm="post", shift="speculators")
    sample = dataset[0]                       # by row
    sample = dataset.get(1234, variant=0)     # by the key of a sample
    sample.input_ids, sample.loss_mask, sample.aux, sample.final

Needs numpy and safetensors. `draftmill.torch_data` (a map-style dataset, a packed collator) needs torch, `verify=True`
needs xxhash. docs/python.md describes all of it.
"""

from draftmill.conventions import SHIFTS
from draftmill.dataset import Dataset, Sample, SampleKey
from draftmill.errors import ConventionError, DamageError, DraftmillError, FormatError
from draftmill.norm import FinalNorm
from draftmill.sampler import TokenBudgetSampler
from draftmill.vocabulary import Vocabulary

__all__ = [
    "SHIFTS",
    "ConventionError",
    "DamageError",
    "Dataset",
    "DraftmillError",
    "FinalNorm",
    "FormatError",
    "Sample",
    "SampleKey",
    "TokenBudgetSampler",
    "Vocabulary",
]
__version__ = "0.1.0"
