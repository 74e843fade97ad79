// Heads side by side: HEADS heads of DIM, GROUP of them at a time, are COLUMNS columns; a member's matrices in shared
// memory, one head's scores and what it mixes, and the rows of all heads at once.
#pragma once
#include "sequences.cuh"

#ifndef GROUP
#define GROUP HEADS
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#ifndef RESIDUAL
#define RESIDUAL 1
#endif
#ifndef NORM
#define NORM 0
#endif
#ifndef HEAD_STEP  // from one head's output matrix to the next, and from one of its rows to the next
#define HEAD_STEP (EMBED * DIM)
#define ROW_STEP DIM
#endif
constexpr int DEEP = DIM <= 8 ? 8 : 16;                              // a head's dimension
constexpr int COLUMNS = padded(GROUP * DEEP, 16), CS = COLUMNS + 8;  // of all heads of a group
constexpr int TILES = TOKENS / 16, ROWS = SAMPLES * TOKENS, WARPS = SAMPLES * TILES;
constexpr int NC = COLUMNS / 8, ND = DEEP / 8;  // tiles of eight columns
constexpr int SCRATCH = padded(WARPS, 4);

// A member's heads of one group in shared memory: queries (with the scale), keys, values by rows of heads' coordinates,
// outputs by rows of states.
struct Weights {
  f16 *query, *key, *value, *output;
};
struct Places {
  const float *query, *key, *value, *output;
};

constexpr bool EVEN = EMBED == EMBEDDED && DIM == DEEP && GROUP * DEEP == COLUMNS && HEADS % GROUP == 0;  // no padding
DEVICE bool by_fours(const Places& at) {
  bool read = by_fours(at.query, EMBED) && by_fours(at.key, EMBED) && by_fours(at.value, EMBED);
  return EVEN && read && by_fours(at.output, HEAD_STEP) && ROW_STEP % 4 == 0;
}

// A member's heads from `first` on, `here` of them, into shared memory.
DEVICE void stage_heads(const Weights& w, const Places& at, int first, int here, float sharp) {
  const float* from[3] = {at.query, at.key, at.value};
  f16* to[3] = {w.query, w.key, w.value};
  if (by_fours(at)) {
    constexpr u32 PER = COLUMNS * EMBEDDED / 4;  // of each matrix
    const float* output = at.output + (long long)first * HEAD_STEP;
    every_four<4 * PER, 32 * WARPS>(
        [=](u32 n) {
          u32 m = n % PER, row = m / (COLUMNS / 4), column = m % (COLUMNS / 4) * 4;
          if (n >= 3 * PER) return output + column / DEEP * HEAD_STEP + row * ROW_STEP + column % DEEP;
          return (n < PER ? at.query : n < 2 * PER ? at.key : at.value) + (long long)first * DIM * EMBED + 4 * m;
        },
        [=](u32 n, float4 four) {
          if (n >= 3 * PER)
            stage_four<COLUMNS>(w.output, CS, n % PER, four, ROWS_OF_STATES, 1.0f);
          else
            stage_four<EMBEDDED>(n < PER ? w.query : n < 2 * PER ? w.key : w.value, ES, n % PER, four,
                                 COLUMNS_OF_STATES, n < PER ? sharp : 1.0f);
        });
    return;
  }
  for (int which = 0; which < 3; ++which)
    for (int i = thread(); i < COLUMNS * (ES / 2); i += 32 * WARPS) {
      int row = i / (ES / 2), e = i % (ES / 2) * 2, head = row / DEEP, n = row % DEEP;
      bool real = head < here && n < DIM;
      const float* at = from[which] + ((long long)(first + head) * DIM + n) * EMBED + place(e);
      float scale = which ? 1.0f : sharp;
      float low = real && place(e) < EMBED ? at[0] * scale : 0.0f;
      float high = real && place(e) + 1 < EMBED ? at[1] * scale : 0.0f;
      *(u32*)(to[which] + row * ES + e) = pack(low, high);
    }
  for (int i = thread(); i < EMBEDDED * (CS / 2); i += 32 * WARPS) {
    int e = i / (CS / 2), c = i % (CS / 2) * 2, head = c / DEEP, n = c % DEEP;
    bool real = head < here && place(e) < EMBED;
    const float* from = at.output + (long long)(first + head) * HEAD_STEP + (long long)place(e) * ROW_STEP + n;
    float low = real && n < DIM ? from[0] : 0.0f, high = real && n + 1 < DIM ? from[1] : 0.0f;
    *(u32*)(w.output + e * CS + c) = pack(low, high);
  }
}

// sum = a b^T for one head: a 16 rows of the sixteen columns that it is in, b those of all tokens in shared memory.
DEVICE void across(float (&sum)[NT][4], const u32 (&a)[4], int head, const f16* b) {
  int lane = thread() % 32;
  zero(sum);
  if constexpr (DEEP == 16) {
#pragma unroll
    for (int j = 0; j < NT; j += 2) {
      u32 two[4];
      right_by_columns(two, b, CS, 8 * j, 16 * head);
      multiply16(sum[j], a, two[0], two[1]);
      multiply16(sum[j + 1], a, two[2], two[3]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < NT; j += 4) {
      u32 four[4];
      fetch4(four, b + (8 * j + (NT - j >= 4 ? lane : lane % 16)) * CS + 8 * head);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (j + i < NT) multiply8(sum[j + i], a[head % 2 * 2], a[head % 2 * 2 + 1], four[i]);
    }
  }
}

// sum = p b for one head: p the weights of 16 rows over all tokens, b a matrix of all tokens by this head's columns.
DEVICE void along(float (&sum)[ND][4], const float (&p)[NT][4], int head, const f16* b) {
  int lane = thread() % 32;
  u32 a[NT / 2][4];
  as_left(a, p);
  zero(sum);
  if constexpr (DEEP == 16) {
    times_rows(sum, a, b, CS, 0, 16 * head);
  } else {
#pragma unroll
    for (int k = 0; k < NT / 2; k += 2) {
      u32 four[4];
      fetch4_turned(four, b + (16 * k + (NT / 2 - k >= 2 ? lane : lane % 16)) * CS + 8 * head);
      multiply16(sum[0], a[k], four[0], four[1]);
      if (k + 1 < NT / 2) multiply16(sum[0], a[k + 1 < NT / 2 ? k + 1 : k], four[2], four[3]);
    }
  }
}

// One head's columns of a warp's 16 rows into shared memory.
DEVICE void put(f16* to, int row, int head, const float (&one)[ND][4], float first = 1.0f, float second = 1.0f) {
  int lane = thread() % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < ND; ++j) {
    u32* at = (u32*)(to + (row + g) * CS + head * DEEP + 8 * j + 2 * t);
    at[0] = pack(one[j][0] * first, one[j][1] * first);
    at[4 * CS] = pack(one[j][2] * second, one[j][3] * second);
  }
}
DEVICE void put_nothing(f16* to, int row, int head) {
  float none[ND][4];
  zero(none);
  put(to, row, head, none);
}

// All heads' columns of a warp's 16 rows into shared memory: a times a matrix by columns, or (TURNED) by rows.
template <bool TURNED>
DEVICE void project(f16* to, int row, const u32 (&a)[NE / 2][4], const f16* matrix) {
#pragma unroll
  for (int c = 0; c < NC; c += 2) {
    float sum[2][4];
    u32 both[1][4];
    zero(sum);
    if constexpr (TURNED)
      times_rows(sum, a, matrix, CS, 0, 8 * c);
    else
      times_columns(sum, a, matrix, ES, 8 * c);
    as_left(both, sum);
    keep(both, to + 8 * c, CS, row);
  }
}

// sum += a b for a warp's 16 rows of a in shared memory and a matrix b by rows, or (COLUMN) by columns.
template <bool COLUMN>
DEVICE void collect(float (&sum)[NE][4], const f16* a, int row, const f16* matrix) {
#pragma unroll
  for (int c = 0; c < COLUMNS; c += 16) {
    u32 left[1][4];
    left_from(left[0], a, CS, row, c);
    if constexpr (COLUMN)
      times_columns(sum, left, matrix + c, CS);
    else
      times_rows(sum, left, matrix + c * ES, ES);
  }
}

struct Sequence {  // where a warp is in a tile of samples
  int slot, strip, sample, rows;
  DEVICE Sequence(int tile, int batch) {
    int warp = thread() / 32;
    slot = warp / TILES, strip = warp % TILES, sample = tile * SAMPLES + slot;
    rows = sample < batch ? LONGEST : 0;
  }
  DEVICE int row() const { return strip * 16 + thread() % 32 / 4; }
  DEVICE long long begin(int model, int batch) const {
    return ((long long)model * batch + (rows ? sample : 0)) * LONGEST * EMBED;
  }
  // Send for the states of this warp: of a sample that does not exist, nothing.
  DEVICE void send(const Post<EMBED, NE, 32 * WARPS>& post, const float* x, int model, int batch) const {
    post.send(x + begin(model, batch), row(), rows);
  }
  DEVICE long long question(int model, int batch, int shared) const {  // where the directions are, one for all or not
    return (shared ? model : (long long)model * batch + sample) * HEADS * EMBED;
  }
};

// The rows after the norm, as left factors.
DEVICE void normed(u32 (&seen)[NE / 2][4], const float (&x)[NE][4], const Norm& norm) {
  float unit[NE][4], rate[2];
#pragma unroll
  for (int j = 0; j < NE; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) unit[j][i] = x[j][i];
  norm.unit<EMBED>(unit, rate);
  norm.scale(unit);
  as_left(seen, unit);
}
