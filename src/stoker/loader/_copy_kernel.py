"""Copying rows of memory by address; needs numba, so import it only where that is.

LLVM's own memcpy leaves large copies to the C library, which takes the processor's copy instruction: by
``benchmarks/copying.py`` slower here than plain loads and stores of 32 bytes. And only stores that say so
go around the caches ("nontemporal"), without first reading what they replace.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stoker.config import kernel

PIECE_BYTES = 128  # rows are multiples of it

_VECTOR_BYTES = 32
_VECTOR = ir.VectorType(ir.IntType(64), _VECTOR_BYTES // 8)
_ADDRESS = ir.IntType(64)


def _piece_copier(*, around_caches: bool) -> Callable[..., None]:
    """Copies one piece from the second address to the first."""

    def copy_piece(_context: Any, _to: Any, _from: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, addresses: Any) -> Any:
            to, source = (
                builder.inttoptr(builder.zext(address, _ADDRESS), _VECTOR.as_pointer())
                for address in addresses
            )
            places = [ir.Constant(ir.IntType(32), number) for number in range(PIECE_BYTES // _VECTOR_BYTES)]
            vectors = [
                builder.load(builder.gep(source, [place], source_etype=_VECTOR), align=1, typ=_VECTOR)
                for place in places
            ]
            for place, vector in zip(places, vectors, strict=True):
                target = builder.gep(to, [place], source_etype=_VECTOR)
                store = builder.store(vector, target, align=_VECTOR_BYTES if around_caches else 1)
                if around_caches:
                    one = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
                    store.set_metadata("nontemporal", one)
            return context.get_dummy_value()

        return types.void(types.uintp, types.uintp), generate

    made: Callable[..., None] = intrinsic(copy_piece)
    return made


_copy_piece = _piece_copier(around_caches=False)
_stream_piece = _piece_copier(around_caches=True)


def _fence(_context: Any) -> Any:
    """Makes what went around the caches visible to other threads before anything that follows."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


_finish_stores: Callable[..., None] = intrinsic(_fence)


@kernel
def copy_rows(to: Any, source: Any, rows: Any, row_bytes: Any, around_caches: Any) -> None:
    """Copy rows, which nobody checks, one behind the other.

    Args:
        to: address of memory for so many rows, as np.uintp.
        source: address of row 0, as np.uintp.
        rows: their numbers, int64 [n].
        row_bytes: of each, a multiple of `PIECE_BYTES`, as np.uintp.
        around_caches: whether to store around them; then `to` is a multiple of 32.
    """
    piece = np.uintp(PIECE_BYTES)
    for place in range(len(rows)):
        read, write = source + np.uintp(rows[place]) * row_bytes, to + np.uintp(place) * row_bytes
        end = read + row_bytes
        if around_caches:
            while read < end:
                _stream_piece(write, read)
                read += piece
                write += piece
        else:
            while read < end:
                _copy_piece(write, read)
                read += piece
                write += piece
    _finish_stores()
