"""Sixteen numbers as one value in compiled loops, so that they stay in registers.

Channels of a feature node lie side by side, padded to a multiple of `LANES`. What LLVM would have
to prove about arrays before it may use vector instructions (that they do not overlap, that loops
are long) is so by construction.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, extending, types
from numba.core.datamodel import models
from numba.core.extending import overload, register_model
from numba.np.arrayobj import make_array

intrinsic: Any = extending.intrinsic  # the context that it adds is not for callers
LANES = 16
FLAGS = ("reassoc", "contract", "arcp", "nsz")


class Lanes(types.Type):
    """The type of `LANES` numbers of one type."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


def _vector_type(dtype):
    return ir.VectorType(ir.FloatType() if dtype == types.float32 else ir.DoubleType(), LANES)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _vector_type(fe_type.dtype))


def _pointer(context, builder, array_type, array, indices, vector):
    found = make_array(array_type)(context, builder, array)
    item = cgutils.get_item_pointer(context, builder, array_type, found, indices)
    return builder.bitcast(item, vector.as_pointer())


def _splat(builder, scalar):
    vector = ir.VectorType(scalar.type, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, cgutils.int32_t(0))
    zeros = ir.Constant(ir.VectorType(cgutils.int32_t, LANES), [0] * LANES)
    return builder.shuffle_vector(first, first, zeros)


@intrinsic
def load(typingctx, array, row, column):
    """`array[row, column : column + LANES]`."""
    sig = Lanes(array.dtype)(array, types.intp, types.intp)

    def codegen(context, builder, signature, args):
        kind = signature.args[0]
        vector = _vector_type(kind.dtype)
        place = _pointer(context, builder, kind, args[0], args[1:], vector)
        return builder.load(place, align=kind.dtype.bitwidth // 8)

    return sig, codegen


@intrinsic
def store(typingctx, array, row, column, lanes):
    """`array[row, column : column + LANES] = lanes`."""
    sig = types.void(array, types.intp, types.intp, lanes)

    def codegen(context, builder, signature, args):
        kind = signature.args[0]
        place = _pointer(context, builder, kind, args[0], args[1:3], args[3].type)
        builder.store(args[3], place, align=kind.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def store_at(typingctx, array, start, lanes):
    """`array[start : start + LANES] = lanes`, of an array with one dimension."""
    sig = types.void(array, types.intp, lanes)

    def codegen(context, builder, signature, args):
        kind = signature.args[0]
        place = _pointer(context, builder, kind, args[0], args[1:2], args[2].type)
        builder.store(args[2], place, align=kind.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def load_first(typingctx, array, start, count):
    """`array[start : start + count]` of at most `LANES` numbers, then zeros."""
    sig = Lanes(array.dtype)(array, types.intp, types.intp)

    def codegen(context, builder, signature, args):
        kind = signature.args[0]
        vector = _vector_type(kind.dtype)
        place = _pointer(context, builder, kind, args[0], args[1:2], vector)
        count = builder.trunc(args[2], cgutils.int32_t)
        steps = ir.Constant(ir.VectorType(cgutils.int32_t, LANES), list(range(LANES)))
        mask = builder.icmp_signed("<", steps, _splat(builder, count))
        name = f"llvm.masked.load.v{LANES}f{kind.dtype.bitwidth}.p0"
        types_of = [place.type, cgutils.int32_t, mask.type, vector]
        made = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, types_of), name
        )
        align = cgutils.int32_t(kind.dtype.bitwidth // 8)
        return builder.call(made, [place, align, mask, ir.Constant(vector, None)])

    return sig, codegen


@intrinsic
def splat(typingctx, array, number):
    """`LANES` times the same number, of the type of an array."""
    sig = Lanes(array.dtype)(array, number)

    def codegen(context, builder, signature, args):
        kind = signature.return_type.dtype
        return _splat(builder, context.cast(builder, args[1], signature.args[1], kind))

    return sig, codegen


@intrinsic
def magnitude(typingctx, lanes):
    """|lanes|."""

    def codegen(context, builder, signature, args):
        vector = args[0].type
        name = f"llvm.fabs.v{LANES}f{signature.return_type.dtype.bitwidth}"
        made = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), name
        )
        return builder.call(made, args)

    return lanes(lanes), codegen


@intrinsic
def keep(typingctx, lanes, bits):
    """Zero where the bit of a lane is 0."""
    sig = lanes(lanes, types.uint16)

    def codegen(context, builder, signature, args):
        mask = builder.bitcast(args[1], ir.VectorType(ir.IntType(1), LANES))
        return builder.select(mask, args[0], ir.Constant(args[0].type, None))

    return sig, codegen


@intrinsic
def bits_from(typingctx, array, row, limit):
    """Which of the `LANES` numbers `array[row]` are not below a limit, as bits."""
    sig = types.uint16(array, types.intp, types.uint16)

    def codegen(context, builder, signature, args):
        kind = signature.args[0]
        vector = ir.VectorType(ir.IntType(16), LANES)
        place = _pointer(context, builder, kind, args[0], [args[1], args[1].type(0)], vector)
        found = builder.icmp_unsigned(">=", builder.load(place, align=2), _splat(builder, args[2]))
        return builder.bitcast(found, ir.IntType(LANES))

    return sig, codegen


def _operation(name):
    """An intrinsic for a binary operation, in which one of the two may be a number."""

    @intrinsic
    def binary(typingctx, a, b):
        lanes = a if isinstance(a, Lanes) else b

        def codegen(context, builder, signature, args):
            made = []
            for value, kind in zip(args, signature.args, strict=True):
                if not isinstance(kind, Lanes):
                    value = _splat(builder, context.cast(builder, value, kind, lanes.dtype))
                made.append(value)
            return getattr(builder, name)(*made, flags=FLAGS)

        return lanes(a, b), codegen

    return binary


_ADD, _SUB, _MUL, _DIV = map(_operation, ("fadd", "fsub", "fmul", "fdiv"))


def _takes(a, b):
    return isinstance(a, Lanes) or isinstance(b, Lanes)


@overload(operator.add)
def _add(a, b):
    return (lambda a, b: _ADD(a, b)) if _takes(a, b) else None


@overload(operator.iadd)
def _iadd(a, b):
    return (lambda a, b: _ADD(a, b)) if _takes(a, b) else None


@overload(operator.sub)
def _sub(a, b):
    return (lambda a, b: _SUB(a, b)) if _takes(a, b) else None


@overload(operator.mul)
def _mul(a, b):
    return (lambda a, b: _MUL(a, b)) if _takes(a, b) else None


@overload(operator.truediv)
def _div(a, b):
    return (lambda a, b: _DIV(a, b)) if _takes(a, b) else None


@intrinsic
def total(typingctx, lanes):
    """The sum of all lanes."""

    def codegen(context, builder, signature, args):
        scalar, vector = args[0].type.element, args[0].type
        name = f"llvm.vector.reduce.fadd.v{LANES}f{signature.return_type.bitwidth}"
        made = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(scalar, [scalar, vector]), name
        )
        return builder.call(made, [scalar(0), args[0]], fastmath=FLAGS)

    return lanes.dtype(lanes), codegen


@intrinsic
def prefetch(typingctx, array, row, column):
    """Fetch `array[row, column]` into the cache, to be read or written soon."""
    sig = types.void(array, types.intp, types.intp)

    def codegen(context, builder, signature, args):
        kind = signature.args[0]
        place = _pointer(context, builder, kind, args[0], args[1:], ir.IntType(8))
        number = cgutils.int32_t
        made = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [place.type, number, number, number]),
            "llvm.prefetch.p0",
        )
        builder.call(made, [place, number(1), number(3), number(1)])
        return context.get_dummy_value()

    return sig, codegen
