"""One shard: its convention, checked, and its samples as views (docs/formats.md, "Shard")."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from draftmill.errors import DamageError, FormatError
from draftmill.tensor_file import TensorFile

# What every shard of version 1 says, and this package relies on.
_EXPECTED = {"dtype": "bfloat16", "codec": "none", "layer_index": "hf", "final_norm": "pre", "shift": "none"}


class Shard:
    """A mapped shard. All arrays are views of the file."""

    def __init__(self, path: Path) -> None:
        self.file = TensorFile(path, "draftmill.shard")
        for key, expected in _EXPECTED.items():
            if self.file.require(key) != expected:
                raise FormatError(f"{path}: its {key} is {self.file.require(key)!r}; this package reads {expected!r}")
        self.layers: list[int] = json.loads(self.file.require("layers"))
        self.extract_fingerprint = self.file.require("extract_fingerprint")
        self.states = self.file.tensor("hidden_states", "BF16", 3)
        self.cu_seqlens = self.file.tensor("cu_seqlens", "I64", 1)
        self.sample_id = self.file.tensor("sample_id", "I64", 1)
        self.variant = self.file.tensor("variant", "I32", 1)
        self.input_ids = self.file.tensor("input_ids", "I32", 1)
        self.loss_mask = self.file.tensor("loss_mask", "U8", 1)
        self.content_hash = self.file.tensor("content_hash", "U8", 2)
        self.sample_state = self.file.tensor("sample_state", "U8", 1)
        self._checksum = self.file.tensor("checksum", "U64", 1)
        fits = len(self.layers) == self.states.shape[1] and int(self.cu_seqlens[-1]) == len(self.input_ids)
        if not fits or len(self.states) != len(self.input_ids):
            raise FormatError(f"{path}: its tensors do not fit each other")

    def verify(self, place: int) -> None:
        """Holds a sample against its checksum."""
        try:
            import xxhash
        except ImportError as error:
            raise ImportError("verify=True needs the package xxhash: pip install 'draftmill[verify]'") from error
        begin, end = int(self.cu_seqlens[place]), int(self.cu_seqlens[place + 1])
        digest = xxhash.xxh3_64()
        for part in (self.input_ids[begin:end], self.loss_mask[begin:end], self.states[begin:end]):
            digest.update(np.ascontiguousarray(part).data)
        if digest.intdigest() != int(self._checksum[place]):
            raise DamageError(
                f"{self.file.path}: sample {int(self.sample_id[place])}/{int(self.variant[place])} does not match its "
                "checksum. `draftmill verify --repair` marks it as work, and the next run makes it again"
            )
