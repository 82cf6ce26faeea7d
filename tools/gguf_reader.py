"""A small reader of GGUF files (version 3, little-endian) that needs numpy alone.

The file is untrusted: every count and length is compared with what the file can hold before it is used, nesting of
arrays is refused, and a tensor of a type that is not known here is refused by name. Follows the public description of
the format in ggml's docs/gguf.md; the block layouts are those of ggml's block_q4_1 and block_q8_0.
"""

import mmap
import struct

import numpy as np

MAGIC = b"GGUF"
MAX_METADATA_ENTRIES = 4096
MAX_TENSORS = 65536
MAX_STRING_BYTES = 1 << 24
MAX_ARRAY_ITEMS = 1 << 22
MAX_DIMENSIONS = 4

SCALAR_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING_TYPE = 8
ARRAY_TYPE = 9

# Type number: (name, values in a block, bytes of a block).
TENSOR_TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34)}


class GgufError(Exception):
    """The file is not what it says it is; the message names the place."""


class _Cursor:
    """Reads forward through the header and never past the end of the file."""

    def __init__(self, data):
        self._data = data
        self.position = 0

    def take(self, length, what):
        if length > len(self._data) - self.position:
            raise GgufError(f"byte {self.position}: {what} needs {length} bytes, {len(self._data) - self.position} are left")
        start = self.position
        self.position += length
        return self._data[start : self.position]

    def scalar(self, value_type, what):
        if value_type not in SCALAR_FORMATS:
            raise GgufError(f"byte {self.position}: {what} has the unknown value type {value_type}")
        layout = SCALAR_FORMATS[value_type]
        return struct.unpack(layout, self.take(struct.calcsize(layout), what))[0]

    def count(self, limit, what):
        value = self.scalar(10, what)
        if value > limit:
            raise GgufError(f"byte {self.position - 8}: {what} is {value}, at most {limit} are accepted")
        return value

    def string(self, what):
        raw = self.take(self.count(MAX_STRING_BYTES, f"length of {what}"), what)
        try:
            return bytes(raw).decode("utf-8")
        except UnicodeDecodeError as error:
            raise GgufError(f"byte {self.position}: {what} is not UTF-8: {error}") from error

    def value(self, what):
        value_type = self.scalar(4, f"type of {what}")
        if value_type == STRING_TYPE:
            return self.string(what)
        if value_type != ARRAY_TYPE:
            return self.scalar(value_type, what)
        item_type = self.scalar(4, f"item type of {what}")
        item_count = self.count(MAX_ARRAY_ITEMS, f"item count of {what}")
        if item_type == STRING_TYPE:
            return [self.string(what) for _ in range(item_count)]
        if item_type not in SCALAR_FORMATS:
            raise GgufError(f"byte {self.position}: {what} is an array of the unsupported type {item_type}")
        layout = SCALAR_FORMATS[item_type]
        raw = self.take(item_count * struct.calcsize(layout), what)
        return [item[0] for item in struct.iter_unpack(layout, raw)]


def _dequantize_q4_1(blocks):
    """20 bytes: scale f16, minimum f16, then 16 bytes whose low nibbles are values 0-15 and high nibbles 16-31."""
    scale = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    minimum = blocks[:, 2:4].copy().view("<f2").astype(np.float32)
    packed = blocks[:, 4:20]
    quants = np.concatenate([packed & 0x0F, packed >> 4], axis=1).astype(np.float32)
    return scale * quants + minimum


def _dequantize_q8_0(blocks):
    """34 bytes: scale f16, then 32 signed bytes."""
    scale = blocks[:, 0:2].copy().view("<f2").astype(np.float32)
    return scale * blocks[:, 2:34].copy().view(np.int8).astype(np.float32)


class GgufFile:
    """An open GGUF file: `metadata` (name -> value) and the names of `tensors`; `tensor(name)` gives float32."""

    def __init__(self, path):
        self._file = open(path, "rb")  # noqa: SIM115 - for as long as this object
        try:
            self._data = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            self._file.close()
            raise GgufError(f"{path}: the file is empty") from error
        self.metadata = {}
        self.tensors = {}
        self._read_header(_Cursor(self._data))

    def close(self):
        self._data.close()
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def _read_header(self, cursor):
        if cursor.take(4, "magic") != MAGIC:
            raise GgufError("byte 0: the file does not start with GGUF")
        version = cursor.scalar(4, "version")
        if version != 3:
            raise GgufError(f"byte 4: GGUF version {version}; version 3 is supported")
        tensor_count = cursor.count(MAX_TENSORS, "tensor count")
        entry_count = cursor.count(MAX_METADATA_ENTRIES, "metadata count")
        for _ in range(entry_count):
            key = cursor.string("a metadata key")
            self.metadata[key] = cursor.value(key)
        placed = [self._read_tensor_entry(cursor) for _ in range(tensor_count)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 8 <= alignment <= 65536:
            raise GgufError(f"general.alignment is {alignment!r}, 8 to 65536 are accepted")
        data_start = -(-cursor.position // alignment) * alignment
        for name, shape, type_number, offset in placed:
            self._place_tensor(name, shape, type_number, data_start + offset)

    @staticmethod
    def _read_tensor_entry(cursor):
        name = cursor.string("a tensor name")
        dimension_count = cursor.scalar(4, f"dimension count of {name}")
        if not 1 <= dimension_count <= MAX_DIMENSIONS:
            raise GgufError(f"tensor {name} has {dimension_count} dimensions, 1 to {MAX_DIMENSIONS} are accepted")
        dimensions = [cursor.scalar(10, f"shape of {name}") for _ in range(dimension_count)]
        type_number = cursor.scalar(4, f"type of {name}")
        offset = cursor.scalar(10, f"offset of {name}")
        return name, tuple(reversed(dimensions)), type_number, offset  # GGUF names the fastest dimension first

    def _place_tensor(self, name, shape, type_number, start):
        if name in self.tensors:
            raise GgufError(f"tensor {name} stands in the file twice")
        if type_number not in TENSOR_TYPES:
            raise GgufError(f"tensor {name} has the type number {type_number}; F32, F16, Q4_1 and Q8_0 are supported")
        type_name, block_values, block_bytes = TENSOR_TYPES[type_number]
        value_count = 1
        for dimension in shape:
            value_count *= dimension
        if value_count == 0 or shape[-1] % block_values != 0:
            raise GgufError(f"tensor {name}: shape {shape} does not fit blocks of {block_values} values")
        byte_count = value_count // block_values * block_bytes
        if start + byte_count > len(self._data):
            raise GgufError(f"tensor {name} ends at byte {start + byte_count}, the file has {len(self._data)}")
        self.tensors[name] = (shape, type_name, start, byte_count)

    def tensor(self, name):
        """The tensor's values as float32, in row-major shape."""
        if name not in self.tensors:
            raise GgufError(f"the file has no tensor {name}")
        shape, type_name, start, byte_count = self.tensors[name]
        raw = np.frombuffer(self._data, dtype=np.uint8, count=byte_count, offset=start).copy()
        if type_name == "F32":
            return raw.view("<f4").reshape(shape)
        if type_name == "F16":
            return raw.view("<f2").astype(np.float32).reshape(shape)
        if type_name == "Q4_1":
            return _dequantize_q4_1(raw.reshape(-1, 20)).reshape(shape)
        return _dequantize_q8_0(raw.reshape(-1, 34)).reshape(shape)
