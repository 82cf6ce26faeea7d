"""The map between the vocabularies of target and drafter (docs/formats.md, "Vocabulary map")."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from draftmill.errors import FormatError


@dataclass(frozen=True)
class Vocabulary:
    """`d2t` and `t2d` are None where the drafter has the whole vocabulary."""

    d2t: npt.NDArray[np.int64] | None  # target id of draft id i is i + d2t[i]
    t2d: npt.NDArray[np.bool_] | None  # true where the target id has a draft id
    token_freq: npt.NDArray[np.int64]
    report: dict[str, Any]

    @classmethod
    def read(cls, work: Path) -> Vocabulary:
        folder = work / "vocab"
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        if report.get("format") != "draftmill.vocab_report" or report.get("format_version") != 1:
            raise FormatError(f"{folder / 'report.json'}: it is no report of version 1 of a vocabulary map")
        has_map = bool(report["map"])
        return cls(
            d2t=np.load(folder / "d2t.npy") if has_map else None,
            t2d=np.load(folder / "t2d.npy") if has_map else None,
            token_freq=np.load(folder / "token_freq.npy"),
            report=report,
        )
