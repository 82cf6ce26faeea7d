"""The target's final norm: post-norm states from the stored pre-norm ones (docs/formats.md, "Final norm")."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from draftmill import bfloat16
from draftmill.bfloat16 import Bits, Floats
from draftmill.errors import ConventionError, FormatError
from draftmill.tensor_file import TensorFile


@dataclass(frozen=True)
class FinalNorm:
    """Weight, epsilon, kind and rounding order, as the run kept them."""

    weight: Floats
    epsilon: float
    kind: str  # "w", or Gemma's "1+w"
    rounding: str  # "hf": before and after the weight; "fused": after it alone
    model_fingerprint: str

    @classmethod
    def read(cls, work: Path) -> FinalNorm:
        path = work / "final_norm.safetensors"
        if not path.exists():
            raise ConventionError(
                f"{work} keeps no final_norm.safetensors, so post-norm states cannot be made. "
                "`draftmill run` on this work folder writes it; no state is computed again"
            )
        file = TensorFile(path, "draftmill.final_norm")
        norm = cls(
            weight=np.array(file.tensor("weight", "F32", 1)),
            epsilon=float(file.require("epsilon")),
            kind=file.require("kind"),
            rounding=file.require("rounding"),
            model_fingerprint=file.require("model_fingerprint"),
        )
        if norm.kind not in ("w", "1+w") or norm.rounding not in ("hf", "fused"):
            raise FormatError(f"{path}: kind {norm.kind!r} with rounding {norm.rounding!r} is not known")
        return norm

    def apply(self, states: Bits) -> Bits:
        """The post-norm states of rows of H values, as bfloat16 bits."""
        values = bfloat16.to_float32(states)
        wide = values.astype(np.float64)
        mean = (np.einsum("...i,...i->...", wide, wide) / states.shape[-1]).astype(np.float32)
        inverse = np.float32(1.0) / np.sqrt(mean + np.float32(self.epsilon))
        normalised = values * inverse[..., None]
        factor = bfloat16.rounded(self.weight)
        if self.kind == "1+w":
            factor = factor + np.float32(1.0)
        if self.rounding == "hf":
            normalised = bfloat16.rounded(normalised)
        return bfloat16.from_float32(normalised * factor)
