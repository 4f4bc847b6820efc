"""A sample as bytes and back, to the bit, without pickle.

    length of head ─ head (JSON: structure, types, shapes) ─ values, arrays on multiples of 64 bytes

The head holds no values, so samples that differ only in values share it, and what reads them is made
once. A sample read back is one private buffer; its arrays and tensors are writable views of it.
"""

import ast
import functools
import json
import struct
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from stoker.errors import UsageError
from stoker.store._checksums import as_bytes

Buffer: TypeAlias = NDArray[np.uint8]

_ALIGNMENT = 64
_LENGTH = struct.Struct("<Q")
_to_json = json.JSONEncoder(separators=(",", ":")).encode
_NUMBERS = {"int": struct.Struct("<q"), "float": struct.Struct("<d"), "complex": struct.Struct("<dd")}
_MADE_OF = (
    "a cached sample is made of dicts (of text or whole numbers), lists, tuples, CPU tensors, arrays, "
    "numbers, text, bytes and None: convert it in the dataset, or leave that field out"
)


def encode(sample: Any) -> bytes:
    """The sample as bytes.

    Raises:
        UsageError: a value that cannot be told back to the bit; says where in the sample.
    """
    writer = _Writer()
    head = _to_json(writer.node(sample, ())).encode()
    gap = -(_LENGTH.size + len(head)) % _ALIGNMENT
    return b"".join([_LENGTH.pack(len(head)), head, bytes(gap), *writer.pieces])


def decode(encoded: Buffer) -> Any:
    """The sample; its arrays and tensors are views of ``encoded``."""
    view = encoded.data
    (length,) = _LENGTH.unpack_from(view)
    read = _reader_of(bytes(view[_LENGTH.size : _LENGTH.size + length]))
    start = _LENGTH.size + length
    return read(_Cursor(encoded, view, start + -start % _ALIGNMENT))


def copy(sample: Any) -> Any:
    """What a hit would give."""
    return decode(np.frombuffer(bytearray(encode(sample)), np.uint8))


def place(path: tuple[Any, ...]) -> str:
    """Where in a sample, as a user would write it: ``['x'][0]``."""
    return "".join(f"[{step!r}]" for step in path) or "the sample itself"


@dataclass
class _Writer:
    """Collects the values while it describes the structure."""

    pieces: list[bytes | memoryview] = field(default_factory=list)
    position: int = 0

    def node(self, value: Any, path: tuple[Any, ...]) -> list[Any]:
        kind = type(value)
        if value is None:
            return ["none"]
        if kind is dict:
            odd = [key for key in value if type(key) not in {str, int}]
            if odd:
                raise _not_cached(odd[0], path, "as a key of")
            return ["dict", [[key, self.node(item, (*path, key))] for key, item in value.items()]]
        if kind in {list, tuple}:
            return [kind.__name__, [self.node(item, (*path, i)) for i, item in enumerate(value)]]
        if kind is bool:
            self._add(b"\1" if value else b"\0")
            return ["bool"]
        if kind is int and not -(2**63) <= value < 2**63:
            return self._bytes("large", f"{value:x}".encode())
        if kind in {int, float}:
            self._add(_NUMBERS[kind.__name__].pack(value))
            return [kind.__name__]
        if kind is complex:
            self._add(_NUMBERS["complex"].pack(value.real, value.imag))
            return ["complex"]
        if kind in {str, np.str_}:
            return self._bytes(kind.__name__, value.encode("utf-8", "surrogatepass"))
        if kind in {bytes, np.bytes_}:
            return self._bytes(kind.__name__, value)
        if kind in {np.ndarray, np.memmap} or isinstance(value, np.generic):
            return self._array(np.asarray(value), isinstance(value, np.generic), path)
        torch = sys.modules.get("torch")  # a tensor can only be where torch was imported
        if torch is not None and kind is torch.Tensor:
            return self._tensor(value, path)
        raise _not_cached(value, path)

    def _add(self, piece: bytes | memoryview, alignment: int = 8) -> None:
        gap = -self.position % alignment
        self.pieces += [bytes(gap), piece] if gap else [piece]
        self.position += gap + len(piece)

    def _bytes(self, kind: str, value: bytes) -> list[Any]:
        self._add(_LENGTH.pack(len(value)))
        self._add(value)
        return [kind]

    def _array(self, array: NDArray[Any], scalar: bool, path: tuple[Any, ...]) -> list[Any]:  # noqa: FBT001
        described = None if array.dtype.hasobject else _described(array.dtype)
        if described is None:
            raise _not_cached(array, path)
        array = array if array.flags.c_contiguous else array.copy(order="C")
        self._add(as_bytes(array) if array.nbytes else b"", _ALIGNMENT)
        return ["scalar", described] if scalar else ["array", described, list(array.shape)]

    def _tensor(self, tensor: Any, path: tuple[Any, ...]) -> list[Any]:
        import torch

        plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        if not plain or tensor.requires_grad:
            raise _not_cached(tensor, path)
        whole = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
        self._add(whole.view(torch.uint8).numpy().data if whole.numel() else b"", _ALIGNMENT)
        return ["tensor", str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]


@dataclass(slots=True)
class _Cursor:
    buffer: Buffer
    view: memoryview
    position: int

    def take(self, num_bytes: int, alignment: int = 8) -> int:
        """Go past that many bytes; where they begin."""
        start = self.position + -self.position % alignment
        self.position = start + num_bytes
        return start

    def take_bytes(self) -> bytes:
        (length,) = _LENGTH.unpack_from(self.view, self.take(_LENGTH.size))
        start = self.take(length)
        return bytes(self.view[start : start + length])


_Read: TypeAlias = Callable[[_Cursor], Any]


@functools.lru_cache(maxsize=4096)
def _reader_of(head: bytes) -> _Read:
    return _reader(json.loads(head))


def _reader(node: list[Any]) -> _Read:
    kind = node[0]
    if kind == "dict":
        items = [(key, _reader(item)) for key, item in node[1]]
        return lambda cursor: {key: read(cursor) for key, read in items}
    if kind in {"list", "tuple"}:
        reads = [_reader(item) for item in node[1]]
        if kind == "list":
            return lambda cursor: [read(cursor) for read in reads]
        return lambda cursor: tuple([read(cursor) for read in reads])
    if kind == "array":
        return functools.partial(_read_array, _dtype(node[1]), tuple(node[2]))
    if kind == "tensor":
        return _tensor_reader(node[1], tuple(node[2]))
    if kind == "scalar":
        return functools.partial(_read_scalar, _dtype(node[1]))
    return _SIMPLE[kind]


def _read_number(numbers: struct.Struct, cursor: _Cursor) -> Any:
    return numbers.unpack_from(cursor.view, cursor.take(numbers.size))[0]


def _read_complex(cursor: _Cursor) -> complex:
    return complex(*_NUMBERS["complex"].unpack_from(cursor.view, cursor.take(16)))


_SIMPLE: dict[str, _Read] = {
    "none": lambda _: None,
    "bool": lambda cursor: cursor.view[cursor.take(1)] == 1,
    "int": functools.partial(_read_number, _NUMBERS["int"]),
    "float": functools.partial(_read_number, _NUMBERS["float"]),
    "complex": _read_complex,
    "large": lambda cursor: int(cursor.take_bytes(), 16),
    "str": lambda cursor: cursor.take_bytes().decode("utf-8", "surrogatepass"),
    "str_": lambda cursor: np.str_(cursor.take_bytes().decode("utf-8", "surrogatepass")),
    "bytes": _Cursor.take_bytes,
    "bytes_": lambda cursor: np.bytes_(cursor.take_bytes()),
}


def _read_array(dtype: np.dtype[Any], shape: tuple[int, ...], cursor: _Cursor) -> NDArray[Any]:
    array: NDArray[Any] = np.ndarray(shape, dtype, cursor.buffer, cursor.take(0, _ALIGNMENT))
    cursor.position += array.nbytes
    return array


def _read_scalar(dtype: np.dtype[Any], cursor: _Cursor) -> Any:
    return _read_array(dtype, (), cursor)[()]


def _tensor_reader(name: str, shape: tuple[int, ...]) -> _Read:
    import torch

    dtype = getattr(torch, name)
    try:
        same = torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:  # bfloat16 and its like, which NumPy lacks
        num_bytes = torch.empty(0, dtype=dtype).element_size() * int(np.prod(shape, dtype=np.int64))
        raw = functools.partial(_read_array, np.dtype(np.uint8), (num_bytes,))
        return lambda cursor: torch.from_numpy(raw(cursor)).view(dtype).reshape(shape)
    return lambda cursor: torch.from_numpy(_read_array(same, shape, cursor))


@functools.lru_cache(maxsize=256)
def _described(dtype: np.dtype[Any]) -> str | None:
    """The type as text, or None if it would come back as another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that metadata is lost: such a type is not equal, or does not matter
        text = repr(npy.dtype_to_descr(dtype))
    return text if dtype.itemsize and _dtype(text) == dtype else None


def _dtype(text: str) -> np.dtype[Any]:
    return npy.descr_to_dtype(ast.literal_eval(text))


def _not_cached(value: Any, path: tuple[Any, ...], what: str = "at") -> UsageError:
    kind = type(value).__name__
    details = [str(getattr(value, name)) for name in ("dtype", "device") if hasattr(value, name)]
    if getattr(value, "requires_grad", False):
        details.append("requires_grad")
    described = f"{kind} ({', '.join(details)})" if details else kind
    return UsageError(f"{described} {what} {place(path)} cannot be cached: {_MADE_OF}")
