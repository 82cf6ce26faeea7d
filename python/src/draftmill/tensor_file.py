"""Safetensors files, mapped: tensors are views of the file, nothing is copied.

The safetensors package copies a tensor when it is read; one sample of a shard is a part of a tensor, and reading it should
cost the pages that it stands on and no more.
"""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from draftmill.errors import FormatError

_DTYPES = {
    "BF16": np.dtype("<u2"),  # bits: numpy has no bfloat16
    "BOOL": np.dtype("?"),
    "F32": np.dtype("<f4"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
    "U8": np.dtype("u1"),
}
_MAX_HEADER_BYTES = 100_000_000


class TensorFile:
    """A safetensors file of draftmill's own. Changes to its arrays stay in memory and never reach the file."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                # A private mapping is writable, which torch wants of memory it shares, and leaves the file as it is.
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise FormatError(f"{path}: it cannot be mapped: {error}") from error
        self.header, self._data_start = self._read_header()
        self.metadata: dict[str, str] = self.header.pop("__metadata__", {})
        if self.metadata.get("format") != kind:
            raise FormatError(f"{path}: it says it is {self.metadata.get('format')!r}, expected {kind!r}")
        if self.metadata.get("format_version") != "1":
            raise FormatError(
                f"{path}: {kind} of version {self.metadata.get('format_version')!r}; this package reads version 1. "
                "A later draftmill package may read it"
            )

    def _read_header(self) -> tuple[dict[str, Any], int]:
        length = int.from_bytes(self._bytes[:8], "little")
        if len(self._bytes) < 8 or length > min(len(self._bytes) - 8, _MAX_HEADER_BYTES):
            raise FormatError(f"{self.path}: it is no safetensors file")
        try:
            header = json.loads(self._bytes[8 : 8 + length])
        except ValueError as error:
            raise FormatError(f"{self.path}: its header is damaged: {error}") from error
        if not isinstance(header, dict):
            raise FormatError(f"{self.path}: its header is no object")
        return header, 8 + length

    def require(self, key: str) -> str:
        """A value of the metadata that has to be there."""
        if key not in self.metadata:
            raise FormatError(f"{self.path}: its metadata lacks {key!r}")
        return self.metadata[key]

    def tensor(self, name: str, dtype: str, extents: int) -> npt.NDArray[Any]:
        """A view of a tensor with this type and number of extents."""
        info = self.header.get(name)
        if info is None or info["dtype"] != dtype or len(info["shape"]) != extents:
            raise FormatError(f"{self.path}: it lacks a tensor {name!r} of {dtype} with {extents} extents")
        begin, end = info["data_offsets"]
        count = 1
        for extent in info["shape"]:
            count *= extent
        kind = _DTYPES[dtype]
        if end - begin != count * kind.itemsize or self._data_start + end > len(self._bytes):
            raise FormatError(f"{self.path}: the bytes of tensor {name!r} do not fit its shape")
        shape: list[int] = info["shape"]
        values: npt.NDArray[Any] = np.frombuffer(self._bytes, kind, count, self._data_start + begin)
        return values.reshape(shape)
