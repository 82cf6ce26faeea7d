"""torch reads archives whose sizes and offsets stand in zip64 fields, as those from 4 GiB on do.

Every run reads a small file in that form; with DRAFTMILL_THOROUGH=1 also one of more than 4 GiB, which is sparse and takes no disk.
"""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parent.parent
WRITER = Path(os.environ.get("DRAFTMILL_TORCH_ARCHIVE_WRITER", ROOT / "build" / "write_torch_archive"))
GIB = 1 << 30
LIMIT = 0xFFFFFFFF
pytestmark = pytest.mark.skipif(not WRITER.is_file(), reason=f"{WRITER} is not built")


def check(path, size, mmap):
    data = torch.load(path, weights_only=True, mmap=mmap)
    assert list(data) == ["large", "far", "name"] and data["name"] == "x"
    assert data["large"].shape == (size,) and data["large"].dtype == torch.uint8
    assert data["large"][-4:].tolist() == [0, 0, 0, 7]
    assert data["far"].tolist() == [10, 20, 30]


@pytest.mark.parametrize("zip64_from", [0, 100, 70_000, LIMIT])
def test_a_small_file_in_the_form_of_a_large_one(tmp_path, zip64_from):
    """Nothing, the large tensor, what stands behind it, or all of it in zip64 fields."""
    path, size = tmp_path / "small.pt", 70_000
    subprocess.run([WRITER, path, str(size), str(zip64_from)], check=True)
    assert (b"PK\x06\x06" in path.read_bytes()) == (zip64_from < LIMIT)
    for mmap in (True, False):
        check(path, size, mmap)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert {info.filename: info.file_size for info in archive.infolist()}["archive/data/0"] == size


@pytest.mark.skipif("DRAFTMILL_THOROUGH" not in os.environ, reason="reads 4 GiB: DRAFTMILL_THOROUGH=1")
def test_a_file_of_more_than_four_gibibytes(tmp_path):
    path, size = tmp_path / "large.pt", 4 * GIB + 12_345
    subprocess.run([WRITER, path, str(size), str(LIMIT)], check=True)
    assert path.stat().st_size > 4 * GIB > path.stat().st_blocks * 512
    check(path, size, mmap=True)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
