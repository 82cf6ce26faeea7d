"""A finished run as a sequence of samples."""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from draftmill.bfloat16 import Bits
from draftmill.conventions import SHIFTS
from draftmill.errors import ConventionError, FormatError
from draftmill.norm import FinalNorm
from draftmill.shard import Shard
from draftmill.vocabulary import Vocabulary

_OPEN_SHARDS = 512


class SampleKey(NamedTuple):
    """What names a sample everywhere: the number of its conversation, and which of its samples this is."""

    sample_id: int
    variant: int


@dataclass(frozen=True)
class Sample:
    """One sample under the dataset's convention. States are bfloat16 as bits (uint16).

    Arrays are views of the file wherever the convention asks for no other values: writing into them changes memory only.
    """

    row: int
    key: SampleKey
    input_ids: npt.NDArray[np.int32]
    loss_mask: npt.NDArray[np.uint8]
    position_ids: npt.NDArray[np.int64]
    aux: Bits  # [T, A, H]: the auxiliary layers, in the order of `Dataset.layers`
    final: Bits | None  # [T, H]: x_n, before or after the final norm; None where the run did not keep it


@dataclass(frozen=True)
class _Chunk:
    """The samples of one chunk that the dataset takes, in the order of their keys."""

    shard: npt.NDArray[np.int64]  # index into the dataset's list of shards
    place: npt.NDArray[np.int64]  # in the shard
    sample_id: npt.NDArray[np.int64]
    variant: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.int64]


class Dataset:
    """Random access to the good samples of a finished run.

    Rows are dense, in the order of (sample_id, variant), as `draftmill export` numbers them without a split. Opening reads
    manifest.json alone, unless a filter is asked for; shards are mapped when a sample of their chunk is first asked for.

    work          the work folder of a finished run
    verify        hold every sample against its checksum when it is read (needs xxhash)
    sources       names of source files, whole or their last part: only samples that came from them
    split         "train" or "eval", with eval_fraction: the same sides as `--select eval=FRACTION`
    final_norm    "pre": the final state as stored; "post": after the target's final norm
    shift         "none", or the alignment of "specforge", "speculators" or "modelopt"
    """

    def __init__(
        self,
        work: str | Path,
        *,
        verify: bool = False,
        sources: Sequence[str] | None = None,
        split: Literal["train", "eval"] | None = None,
        eval_fraction: float = 0.0,
        final_norm: Literal["pre", "post"] = "pre",
        shift: str = "none",
    ) -> None:
        self.work = Path(work)
        self._verify = verify
        self._sources = sources
        self._split = split
        self._eval_fraction = eval_fraction
        facts = self._read_manifest()
        self.layers: list[int] = facts["layers"]
        self.num_layers: int = facts["model"]["num_layers"]
        self.hidden_size: int = facts["model"]["hidden_size"]
        self.vocab_rows: int = facts["model"]["vocab_rows"]
        self._extract_fingerprint: str = facts["fingerprints"]["extract"]
        self._check_arguments(final_norm, shift)
        self.shift = shift
        self._align = SHIFTS[shift]
        self.norm = FinalNorm.read(self.work) if final_norm == "post" else None
        if self.norm is not None and self.norm.model_fingerprint != facts["model"]["fingerprint"]:
            raise ConventionError(f"{self.work}: final_norm.safetensors is the norm of another model")
        self._open: OrderedDict[int, Shard] = OrderedDict()
        self._chunks: dict[int, _Chunk] = {}
        self._starts = self._count_rows()

    # --- What holds for all samples --------------------------------------------------------------------------------

    @property
    def has_final_state(self) -> bool:
        """Whether x_n was kept: it then stands last."""
        return bool(self.layers) and self.layers[-1] == self.num_layers

    @property
    def aux_layers(self) -> list[int]:
        """k of the auxiliary layers x_k."""
        return self.layers[:-1] if self.has_final_state else self.layers

    def vocabulary(self) -> Vocabulary:
        """The map between the vocabularies of target and drafter."""
        return Vocabulary.read(self.work)

    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of every row as `__getitem__` gives it. Maps all shards once."""
        stored = [self._chunk(chunk).tokens for chunk in range(len(self._shards_of))]
        lengths = np.concatenate(stored) if stored else np.zeros(0, dtype=np.int64)
        return lengths - 1 if self.shift in ("speculators", "modelopt") else lengths

    def keys(self) -> Iterator[SampleKey]:
        """The keys of all rows in their order."""
        for chunk in range(len(self._shards_of)):
            index = self._chunk(chunk)
            for sample_id, variant in zip(index.sample_id.tolist(), index.variant.tolist(), strict=True):
                yield SampleKey(sample_id, variant)

    # --- Samples ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, row: int) -> Sample:
        row = int(row)
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        chunk = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self._sample(row, self._chunk(chunk), row - int(self._starts[chunk]))

    def __iter__(self) -> Iterator[Sample]:
        return (self[row] for row in range(len(self)))

    def get(self, sample_id: int, variant: int = 0) -> Sample:
        """The sample of that key. KeyError where the dataset does not hold it."""
        chunk = self._chunk_of(sample_id)
        if chunk is not None:
            index = self._chunk(chunk)
            first, end = np.searchsorted(index.sample_id, [sample_id, sample_id + 1])
            for i in range(int(first), int(end)):
                if index.variant[i] == variant:
                    return self._sample(int(self._starts[chunk]) + i, index, i)
        raise KeyError(SampleKey(sample_id, variant))

    def _sample(self, row: int, index: _Chunk, i: int) -> Sample:
        place = int(index.place[i])
        shard = self._shard(int(index.shard[i]))
        if self._verify:
            shard.verify(place)
        begin, end = int(shard.cu_seqlens[place]), int(shard.cu_seqlens[place + 1])
        states = shard.states[begin:end]
        aux_extent = len(self.aux_layers)
        final: Bits | None = states[:, -1] if self.has_final_state else None
        if self.norm is not None and final is not None:
            final = self.norm.apply(final)
        aligned = self._align(shard.input_ids[begin:end], shard.loss_mask[begin:end], states[:, :aux_extent], final)
        return Sample(
            row=row,
            key=SampleKey(int(index.sample_id[i]), int(index.variant[i])),
            input_ids=aligned.input_ids,
            loss_mask=aligned.loss_mask,
            position_ids=aligned.position_ids,
            aux=aligned.aux,
            final=aligned.final,
        )

    # --- Opening ---------------------------------------------------------------------------------------------------

    def _read_manifest(self) -> dict[str, Any]:
        path = self.work / "manifest.json"
        if not path.is_file():
            raise FormatError(f"{self.work} has no manifest.json: it holds no finished run. `draftmill run` finishes one")
        manifest = json.loads(path.read_bytes())
        if manifest.get("format") != "draftmill.manifest" or manifest.get("format_version") != 1:
            raise FormatError(
                f"{path}: {manifest.get('format')!r} of version {manifest.get('format_version')!r}; this package reads "
                "'draftmill.manifest' of version 1"
            )
        if discarded := len(manifest.get("discarded_shards", ())):
            raise FormatError(
                f"{path}: {discarded} shards were deleted after their publication (write.discard_after_publish): this work "
                "folder is a benchmark's and no data set"
            )
        self._shard_paths: list[str] = [shard["path"] for shard in manifest["shards"]]
        for name in self._shard_paths:
            if name.startswith("/") or ".." in name.split("/"):
                raise FormatError(f"{path}: {name!r} leads out of the work folder")
        self._good: list[int] = [shard["samples"] - shard["quarantined"] for shard in manifest["shards"]]
        self._shards_of: list[list[int]] = []  # by chunk, the indices of its shards
        names: list[str] = []
        for i, shard_path in enumerate(self._shard_paths):
            name = shard_path.split("/")[1]  # shards/000012/c000012-s003.safetensors
            if not names or names[-1] != name:
                names.append(name)
                self._shards_of.append([])
            self._shards_of[-1].append(i)
        facts: dict[str, Any] = manifest["facts"]
        if facts.get("final_norm") != "pre":
            raise FormatError(f"{path}: states with final_norm {facts.get('final_norm')!r}; this package reads 'pre'")
        return facts

    def _check_arguments(self, final_norm: str, shift: str) -> None:
        if shift not in SHIFTS:
            raise ConventionError(f"there is no shift {shift!r}; there are {', '.join(SHIFTS)}")
        if final_norm not in ("pre", "post"):
            raise ConventionError(f"final_norm is 'pre' or 'post', not {final_norm!r}")
        if final_norm == "post" and not self.has_final_state:
            raise ConventionError(
                f"{self.work} keeps the layers {self.layers} of {self.num_layers}: without x_{self.num_layers} there is no "
                "final state. `extract.layers` chooses them"
            )
        if self._split is not None and not 0 < self._eval_fraction < 1:
            raise ConventionError("split needs eval_fraction between 0 and 1, which says how conversations are split")

    def _count_rows(self) -> npt.NDArray[np.int64]:
        filtered = self._sources is not None or self._split is not None
        if filtered:
            counts = [len(self._chunk(chunk).place) for chunk in range(len(self._shards_of))]
        else:
            counts = [sum(self._good[i] for i in shards) for shards in self._shards_of]
        return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)

    def _shard(self, i: int) -> Shard:
        shard = self._open.get(i)
        if shard is None:
            path = self.work / self._shard_paths[i]
            shard = Shard(path)
            if shard.layers != self.layers or shard.extract_fingerprint != self._extract_fingerprint:
                raise ConventionError(
                    f"{path}: it keeps the layers {shard.layers} under fingerprint {shard.extract_fingerprint}, the run's "
                    f"manifest says {self.layers} under {self._extract_fingerprint}"
                )
            self._open[i] = shard
            if len(self._open) > _OPEN_SHARDS:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(i)
        return shard

    def _chunk(self, chunk: int) -> _Chunk:
        if chunk not in self._chunks:
            self._chunks[chunk] = self._index(chunk)
        return self._chunks[chunk]

    def _index(self, chunk: int) -> _Chunk:
        parts = []
        for i in self._shards_of[chunk]:
            shard = self._shard(i)
            taken = shard.sample_state == 0
            if self._split is not None:
                taken &= self._side(shard.content_hash) == (self._split == "eval")
            places = np.flatnonzero(taken)
            tokens = np.diff(shard.cu_seqlens)[places]
            parts.append((np.full(len(places), i), places, shard.sample_id[places], shard.variant[places], tokens))
        shards, places, sample_id, variant, tokens = (np.concatenate(column) for column in zip(*parts, strict=True))
        if self._sources is not None and len(places) > 0:
            kept = np.isin(sample_id, self._conversations(int(sample_id.min()), int(sample_id.max())))
            shards, places, sample_id, variant, tokens = (
                column[kept] for column in (shards, places, sample_id, variant, tokens)
            )
        order = np.lexsort((variant, sample_id))
        return _Chunk(shards[order], places[order], sample_id[order], variant[order], tokens[order])

    def _side(self, content_hash: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """True for conversations on the eval side (exports/selection.h)."""
        numbers = np.ascontiguousarray(content_hash[:, :8]).view("<u8")[:, 0]
        side: npt.NDArray[np.bool_] = numbers.astype(np.float64) < np.ldexp(self._eval_fraction, 64)
        return side

    def _conversations(self, first: int, last: int) -> npt.NDArray[np.int64]:
        """Numbers of the conversations in this range that came from the wanted sources, from state.db."""
        path = self.work / "state.db"
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            known = dict(database.execute("SELECT source, path FROM sources").fetchall())
            wanted = [
                number for number, name in known.items() if any(("/" + name).endswith("/" + s) for s in self._sources or ())
            ]
            if not wanted:
                raise ConventionError(f"the run has none of the sources {self._sources}; it has {sorted(known.values())}")
            marks = ",".join("?" * len(wanted))
            rows = database.execute(
                f"SELECT sample_id FROM conversations WHERE sample_id BETWEEN ? AND ? AND source IN ({marks})",
                (first, last, *wanted),
            )
            return np.array([row[0] for row in rows], dtype=np.int64)

    def _chunk_of(self, sample_id: int) -> int | None:
        """The chunk that would hold this conversation: chunks ascend in the numbers of their conversations."""
        low, high = 0, len(self._shards_of)
        while low < high:
            middle = (low + high) // 2
            ids = self._chunk(middle).sample_id
            if len(ids) == 0:  # a chunk without samples says nothing about where to look
                return self._scan(sample_id, low, high)
            if sample_id < ids[0]:
                high = middle
            elif sample_id > ids[-1]:
                low = middle + 1
            else:
                return middle
        return None

    def _scan(self, sample_id: int, low: int, high: int) -> int | None:
        for chunk in range(low, high):
            ids = self._chunk(chunk).sample_id
            if len(ids) > 0 and ids[0] <= sample_id <= ids[-1]:
                return chunk
        return None
