# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""Sums over the middle of three axes: partial gradients, and slopes of what all samples have in common."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("rows", "factor"))
def add_rows(
    x, out, filled, rows, columns, factor, ROWS: tl.constexpr, COLUMNS: tl.constexpr, FILLED: tl.constexpr
):  # fmt: skip
    """out[model] = factor sum_row x[model, row], for some columns, `ROWS` rows at a time: always in the same order.

    `filled`: for each column the first row that is not zero and the one after the last; others are not read.
    """
    model, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    x += model * rows * columns
    begin, end = tl.zeros((COLUMNS,), tl.int32), tl.zeros((COLUMNS,), tl.int32) + rows
    if FILLED:
        begin = tl.load(filled + column, mask=column < columns, other=0)
        end = tl.load(filled + columns + column, mask=column < columns, other=0)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        real = (row[:, None] >= begin[None, :]) & (row[:, None] < end[None, :]) & (column < columns)[None, :]
        total += tl.load(x + row[:, None] * columns + column[None, :], mask=real, other=0.0)
    tl.store(out + model * columns + column, tl.sum(total, 0) * factor, mask=column < columns)
