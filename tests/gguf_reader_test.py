"""The GGUF reader against the gguf package: values of every supported type, and files that lie about themselves."""

import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from gguf_reader import GgufError, GgufFile

Q4_1 = gguf.GGMLQuantizationType.Q4_1
Q8_0 = gguf.GGMLQuantizationType.Q8_0


def write_sample(path):
    generator = np.random.default_rng(7)
    values = generator.normal(size=(6, 64)).astype(np.float32)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_array("words", ["a", "\u00e9t\u00e9", ""])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_tensor("plain", values)
    writer.add_tensor("half", values.astype(np.float16))
    expected = {"plain": values, "half": values.astype(np.float16).astype(np.float32)}
    for name, kind in (("q4", Q4_1), ("q8", Q8_0)):
        packed = gguf.quants.quantize(values, kind)
        writer.add_tensor(name, packed, raw_dtype=kind)
        expected[name] = gguf.quants.dequantize(packed, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def test_reads_what_the_gguf_package_wrote(tmp_path):
    expected = write_sample(tmp_path / "a.gguf")
    with GgufFile(tmp_path / "a.gguf") as sample:
        assert sample.metadata["llama.block_count"] == 3
        assert sample.metadata["words"] == ["a", "\u00e9t\u00e9", ""]
        assert sample.metadata["numbers"] == [1, -2, 3]
        assert set(sample.tensors) == set(expected)
        for name, values in expected.items():
            assert np.array_equal(sample.tensor(name), values), name
        with pytest.raises(GgufError, match="no tensor absent"):
            sample.tensor("absent")


def test_a_file_cut_anywhere_is_refused(tmp_path):
    write_sample(tmp_path / "a.gguf")
    whole = (tmp_path / "a.gguf").read_bytes()
    for length in [0, 3, 4, 7, 8, 15, 23, 24, 31, *range(40, len(whole) - 64, 97)]:
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(GgufError):
            GgufFile(tmp_path / "cut.gguf")


def test_files_that_are_wrong_in_random_ways_are_refused_or_read():
    command = [sys.executable, Path(__file__).parent / "gguf_fuzz.py", "--files", "1000", "--seed", "1"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def header(tensors=0, entries=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGML" + bytes(20), "does not start with GGUF"),
        (header(version=2), "version 2"),
        (header(tensors=1 << 60), "tensor count is"),
        (header(entries=1 << 60), "metadata count is"),
        (header(entries=1) + struct.pack("<Q", 1 << 62), "length of a metadata key"),
        (header(entries=1) + struct.pack("<Q", 1 << 20), "are left"),
        (header(entries=1) + struct.pack("<Q", 1) + b"k" + struct.pack("<I", 99), "unknown value type 99"),
        (header(entries=1) + struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 9, 1), "unsupported type 9"),
        (header(entries=1) + struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 8, 1 << 61), "item count of k"),
        (header(entries=1) + struct.pack("<Q", 1) + b"\xff" + bytes(8), "not UTF-8"),
        (header(tensors=1) + struct.pack("<Q", 1) + b"t" + struct.pack("<I", 9), "9 dimensions"),
        (header(tensors=1) + struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 1 << 62, 0, 0), "ends at byte"),
        (header(tensors=1) + struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 4, 2, 0), "type number 2"),
        (header(tensors=1) + struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 33, 8, 0), "does not fit blocks"),
    ],
)
def test_lies_are_named(tmp_path, content, message):
    (tmp_path / "bad.gguf").write_bytes(content)
    with pytest.raises(GgufError, match=message):
        GgufFile(tmp_path / "bad.gguf")
