// The three products of which a step is made. Vectors lie [column][feature]: a column is a token of LANES samples.
#pragma once
#include <algorithm>

#include "lanes.h"

constexpr bool MANY = BYTES == 64;  // registers: 32, or 16

// Keeps a factor in its register: a compiler that is short of them would load it again for every product.
static inline void hold(vec& x) {
#if defined(__AVX__)
    if (!MANY) asm("" : "+x"(x));
#endif
}

// out = plus + bias + matrix * in, column by column; then relu, or only where the gate is positive, or times a factor.
struct Map {
    const real* matrix;  // [inputs][outputs]
    int outputs, inputs, step;  // step: from one input to the next
    const real* bias = nullptr;
    const vec* plus = nullptr;
    int plus_step = 0;
    bool relu = false;
    const vec* gate = nullptr;
    int gate_step = 0;
    const vec* times = nullptr;
    int times_step = 0;
};

template <int R, int C>
static inline void map_block(const Map& f, int row, int column, const vec* in, int in_step, vec* out, int out_step) {
    vec acc[R][C];
    const real* w = f.matrix + row;
    const vec* x = in + column * in_step;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
            acc[r][c] = f.bias ? all(f.bias[row + r]) : vec{};
            if (f.plus) acc[r][c] += f.plus[(column + c) * f.plus_step + row + r];
        }
    for (int k = 0; k < f.inputs; ++k, w += f.step, ++x) {
        vec v[C];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
            v[c] = x[c * in_step];
            if (R > 1) hold(v[c]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) acc[r][c] += w[r] * v[c];
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
            vec y = acc[r][c];
            if (f.relu) y = positive(y);
            if (f.gate) y = f.gate[(column + c) * f.gate_step + row + r] > 0 ? y : vec{};
            if (f.times) y *= f.times[(column + c) * f.times_step + row + r];
            out[(column + c) * out_step + row + r] = y;
        }
}

template <int C>
static void map_rows(const Map& f, int column, const vec* in, int in_step, vec* out, int out_step) {
    constexpr int most = MANY ? 8 : 4;
    int row = 0;
    for (; row + most <= f.outputs; row += most) map_block<most, C>(f, row, column, in, in_step, out, out_step);
    if (MANY && row + 4 <= f.outputs) map_block<4, C>(f, row, column, in, in_step, out, out_step), row += 4;
    if (row + 2 <= f.outputs) map_block<2, C>(f, row, column, in, in_step, out, out_step), row += 2;
    if (row < f.outputs) map_block<1, C>(f, row, column, in, in_step, out, out_step);
}

static void map(const Map& f, int columns, const vec* in, int in_step, vec* out, int out_step) {
    constexpr int most = MANY ? 3 : 2;
    int column = 0;
    for (; column + most <= columns; column += most) map_rows<most>(f, column, in, in_step, out, out_step);
    if (most == 3 && column + 2 <= columns) map_rows<2>(f, column, in, in_step, out, out_step), column += 2;
    if (column < columns) map_rows<1>(f, column, in, in_step, out, out_step);
}

// out[i][j] += sum over columns and lanes of a[column][i] b[column][j]: a gradient with respect to a matrix.
template <int R, int C>
static void gram_block(int columns, const vec* a, int a_step, const vec* b, int b_step, real* out, int out_step) {
    constexpr int count = R * C, filled = (count + LANES - 1) / LANES * LANES;
    vec acc[filled];
#pragma GCC unroll 32
    for (int i = 0; i < filled; ++i) acc[i] = vec{};
    for (int column = 0; column < columns; ++column, a += a_step, b += b_step) {
        vec v[C];
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) v[c] = b[c];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int c = 0; c < C; ++c) acc[r * C + c] += a[r] * v[c];
    }
#pragma GCC unroll 8
    for (int part = 0; part < filled; part += LANES) {
        alignas(BYTES) real total[LANES];
        *(vec*)total = sums(acc + part);
        for (int i = 0; i < LANES && part + i < count; ++i) out[(part + i) / C * out_step + (part + i) % C] += total[i];
    }
}

template <int R>
static void gram_row(int columns, const vec* a, int a_step, const vec* b, int b_step, int wide, real* out, int step) {
    int j = 0;
    for (; j + 4 <= wide && !(MANY && j + 5 == wide); j += 4)
        gram_block<R, 4>(columns, a, a_step, b + j, b_step, out + j, step);
    if (MANY && j + 5 == wide) gram_block<R, 5>(columns, a, a_step, b + j, b_step, out + j, step), j += 5;
    if (j + 2 <= wide) gram_block<R, 2>(columns, a, a_step, b + j, b_step, out + j, step), j += 2;
    if (j < wide) gram_block<R, 1>(columns, a, a_step, b + j, b_step, out + j, step);
}

static void gram(int columns, const vec* a, int a_step, int tall, const vec* b, int b_step, int wide, real* out,
                 int step) {
    constexpr int most = MANY ? 4 : 2;
    int i = 0;
    for (; i + most <= tall; i += most) gram_row<most>(columns, a + i, a_step, b, b_step, wide, out + i * step, step);
    for (; i < tall; ++i) gram_row<1>(columns, a + i, a_step, b, b_step, wide, out + i * step, step);
}

// The same where columns are few: b is transposed first, so that nothing need be added across lanes.
template <int R, int C>
__attribute__((noinline)) static void few_block(int columns, const vec* a, int a_step, const vec* b, int b_step,
                                                real* out, int step) {  // inlined, it would lack registers
    vec acc[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
        for (int c = 0; c < C; ++c) acc[r][c] = *(const vec*)(out + r * step + c * LANES);
    for (int column = 0; column < columns; ++column, a += a_step) {
        const real* lane = (const real*)a;
        for (int i = 0; i < LANES; ++i, ++lane, b += b_step) {
            vec v[C];
#pragma GCC unroll 3
            for (int c = 0; c < C; ++c) v[c] = b[c], hold(v[c]);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
                for (int c = 0; c < C; ++c) acc[r][c] += lane[r * LANES] * v[c];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
        for (int c = 0; c < C; ++c) *(vec*)(out + r * step + c * LANES) = acc[r][c];
}

template <int R>
static void few_row(int columns, const vec* a, int a_step, const vec* b, int b_step, real* out, int step) {
    if (b_step == 3) return few_block<R, 3>(columns, a, a_step, b, b_step, out, step);
    int j = 0;
    for (; j + 2 <= b_step; j += 2) few_block<R, 2>(columns, a, a_step, b + j, b_step, out + j * LANES, step);
    if (j < b_step) few_block<R, 1>(columns, a, a_step, b + j, b_step, out + j * LANES, step);
}

// A panel of b at a time, of up to 4 vectors and so many columns that it stays in the first cache.
static void few_gram(int columns, const vec* a, int a_step, int tall, const vec* b, int b_step, int wide, real* out,
                     int step) {
    constexpr int most = MANY ? 8 : 4, panel = 4, room = 4 * panel;
    alignas(BYTES) vec turned[room * LANES];
    for (int left = 0; left < wide; left += panel * LANES) {
        const int vectors = std::min(panel, (wide - left + LANES - 1) / LANES), some = room / vectors;
        for (int from = 0; from < columns; from += some) {
            const int count = std::min(some, columns - from);
            for (int column = 0; column < count; ++column)
                for (int j = 0; j < vectors; ++j) {
                    vec v[LANES];
                    const int at = left + j * LANES;
                    for (int i = 0; i < LANES; ++i) v[i] = at + i < wide ? b[(from + column) * b_step + at + i] : vec{};
                    transpose(v);
                    for (int i = 0; i < LANES; ++i) turned[(column * LANES + i) * vectors + j] = v[i];
                }
            const vec* here = a + from * a_step;
            int i = 0;
            for (; i + most <= tall; i += most)
                few_row<most>(count, here + i, a_step, turned, vectors, out + i * step + left, step);
            for (; i < tall; ++i) few_row<1>(count, here + i, a_step, turned, vectors, out + i * step + left, step);
        }
    }
}

// out[i] += sum over columns and lanes of a[column][i], times a factor of the column where there are `times`: a gradient
// with respect to a bias. Lanes are added in order.
__attribute__((always_inline)) static inline void totals_block(int columns, const vec* a, int a_step, int some,
                                                               real* out, const vec* times) {
    vec acc[LANES] = {}, total{};
    for (int c = 0; c < columns; ++c, a += a_step)
#pragma GCC unroll 16
        for (int i = 0; i < LANES; ++i)
            if (i < some) acc[i] += times ? times[c] * a[i] : a[i];
    transpose(acc);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) total += acc[i];
    for (int i = 0; i < some; ++i) out[i] += total[i];
}

static void totals(int columns, const vec* a, int a_step, int tall, real* out, const vec* times = nullptr) {
    int i = 0;
    for (; i + LANES <= tall; i += LANES) totals_block(columns, a + i, a_step, LANES, out + i, times);
    if (i < tall) totals_block(columns, a + i, a_step, tall - i, out + i, times);
}

// Where the entries of a matrix of vectors lie: by row and by column.
struct View {
    const vec* at;
    int row, column;
};

// out[i][j] (+)= sum_k a[i][k] b[k][j], lane by lane: every sample has matrices of its own.
template <int R, int C>
static void each_block(int inner, View a, View b, vec* out, int row, int column, bool add) {
    vec acc[R][C];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) acc[r][c] = add ? out[r * row + c * column] : vec{};
    const vec *x = a.at, *y = b.at;
    for (int k = 0; k < inner; ++k, x += a.column, y += b.row) {
        vec v[C];
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) v[c] = y[c * b.column];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) acc[r][c] += x[r * a.row] * v[c];
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) out[r * row + c * column] = acc[r][c];
}

template <int R>
static void each_row(int wide, int inner, View a, View b, vec* out, int row, int column, bool add) {
    int j = 0;
    for (; j + 4 <= wide; j += 4, b.at += 4 * b.column)
        each_block<R, 4>(inner, a, b, out + j * column, row, column, add);
    if (j + 2 <= wide) each_block<R, 2>(inner, a, b, out + j * column, row, column, add), j += 2, b.at += 2 * b.column;
    if (j < wide) each_block<R, 1>(inner, a, b, out + j * column, row, column, add);
}

static void each(int tall, int wide, int inner, View a, View b, vec* out, int row, int column, bool add = false) {
    constexpr int most = MANY ? 4 : 2;
    int i = 0;
    for (; i + most <= tall; i += most, a.at += most * a.row)
        each_row<most>(wide, inner, a, b, out + i * row, row, column, add);
    if (MANY && i + 2 <= tall)
        each_row<2>(wide, inner, a, b, out + i * row, row, column, add), i += 2, a.at += 2 * a.row;
    if (i < tall) each_row<1>(wide, inner, a, b, out + i * row, row, column, add);
}
