"""Copying rows of memory by address, around the caches; needs numba, so import it only where that is.

Only stores that say so ("nontemporal") leave the caches alone, and do not first read what they replace.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stoker.config import kernel

PIECE_BYTES = 128  # rows are multiples of it
ALIGNED_BYTES = 32  # such a store fails where its place is no multiple of this

_VECTOR = ir.VectorType(ir.IntType(64), ALIGNED_BYTES // 8)
_ADDRESS, _NUMBER = ir.IntType(64), ir.IntType(32)


def _copied_piece(_context: Any, _to: Any, _from: Any) -> Any:
    """Copies one piece from the second address to the first."""

    def generate(context: Any, builder: Any, _signature: Any, addresses: Any) -> Any:
        to, source = (
            builder.inttoptr(builder.zext(address, _ADDRESS), _VECTOR.as_pointer()) for address in addresses
        )
        places = [ir.Constant(_NUMBER, number) for number in range(PIECE_BYTES // ALIGNED_BYTES)]
        vectors = [
            builder.load(builder.gep(source, [place], source_etype=_VECTOR), align=1, typ=_VECTOR)
            for place in places
        ]
        for place, vector in zip(places, vectors, strict=True):
            target = builder.gep(to, [place], source_etype=_VECTOR)
            store = builder.store(vector, target, align=ALIGNED_BYTES)
            store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(_NUMBER, 1)]))
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp), generate


def _fence(_context: Any) -> Any:
    """Makes what went around the caches visible to other threads before anything that follows."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


_copy_piece: Callable[..., None] = intrinsic(_copied_piece)
_finish_stores: Callable[..., None] = intrinsic(_fence)


@kernel
def copy_rows(to: Any, source: Any, rows: Any, row_bytes: Any) -> None:
    """Copy rows, which nobody checks, one behind the other.

    Args:
        to: address of memory for so many rows, a multiple of `ALIGNED_BYTES`, as np.uintp.
        source: address of row 0, as np.uintp.
        rows: their numbers, int64 [n].
        row_bytes: of each, a multiple of `PIECE_BYTES`, as np.uintp.
    """
    piece = np.uintp(PIECE_BYTES)
    for place in range(len(rows)):
        read, write = source + np.uintp(rows[place]) * row_bytes, to + np.uintp(place) * row_bytes
        end = read + row_bytes
        while read < end:
            _copy_piece(write, read)
            read += piece
            write += piece
    _finish_stores()
