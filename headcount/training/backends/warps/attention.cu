// Attention of all tokens: out = sum_h W_O,h softmax(q_h k_h^T) v_h, and x where RESIDUAL; and back.
//
// A warp has 16 tokens of one sample; TILES warps have the sample, SAMPLES of them a program at a time. Keys and values
// pass from warp to warp through shared memory, everything else stays in registers. A program takes one member and every
// so-many-th tile of samples; HEADS heads of DIM side by side are COLUMNS columns.
// Backwards a warp first has its tokens as those who ask (weights, dq), then as those who are asked (dk, dv), so that
// nothing is added up between warps; at the end of a tile every warp adds its share of the rows of dW_Q, dW_K, dW_V and
// dW_O^T, which it keeps in registers from tile to tile. With more than GROUP heads this is done a group at a time, and
// the slopes of the states are added up in device memory.
#include "sequences.cuh"

#ifndef RESIDENT
#define RESIDENT 1  // programs of a multiprocessor that registers must leave room for, backwards
#endif

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

DEVICE void stage_heads(const Weights& w, const Places& at, int first, int here, float sharp) {
  const float* from[3] = {at.query, at.key, at.value};
  f16* to[3] = {w.query, w.key, w.value};
  for (int which = 0; which < 3; ++which)
    for (int i = thread(); i < COLUMNS * (ES / 2); i += 32 * WARPS) {
      int row = i / (ES / 2), e = i % (ES / 2) * 2, head = row / DEEP, n = row % DEEP;
      bool real = head < here && n < DIM;
      const float* at = from[which] + ((long long)(first + head) * DIM + n) * EMBED + place(e);
      float scale = which ? 1.0f : sharp;
      float low = real && place(e) < EMBED ? at[0] * scale : 0.0f, high = real && place(e) + 1 < EMBED ? at[1] * scale : 0.0f;
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

// The states of the tile after this one will be read soon.
DEVICE void next_tile(const float* x, int model, int tile, int batch) {
  int next = (tile + programs(1)) * SAMPLES, count = batch - next < SAMPLES ? batch - next : SAMPLES;
  expect<32 * WARPS>(x + ((long long)model * batch + next) * LONGEST * EMBED, (long long)count * LONGEST * EMBED);
}

KERNEL(WARPS, 1)
attend_forward(const float* x, const float* theta, const float* scale, const int* counts, const int* lengths,
               const float* directions, float* heard, float* out, long long row, int at_query, int at_key, int at_value,
               int at_output, int at_scaling, int at_moving, int scale_row, int batch, int shared) {
  SHARED;
  int model = program(0);
  f16* memory = (f16*)shared_bytes;
  Weights w = {memory, memory + COLUMNS * ES, memory + 2 * COLUMNS * ES, memory + 3 * COLUMNS * ES};
  f16 *queries = w.output + EMBEDDED * CS, *keys = queries + ROWS * CS, *values = keys + ROWS * CS, *xs = values + ROWS * CS;
  float* scaling = (float*)(xs + ASK * ROWS * ES);
  Norm norm = {scaling, scaling + EMBEDDED};
  theta += model * row;
  if (NORM) stage_norm(scaling, theta + at_scaling, theta + at_moving, EMBED, EMBEDDED, 32 * WARPS);
  int count = counts[model * scale_row], length = RAGGED ? lengths[model] : LONGEST;
  stage_heads(w, {theta + at_query, theta + at_key, theta + at_value, theta + at_output}, 0, HEADS,
              scale[model * scale_row]);
  for (int tile = program(1); tile * SAMPLES < batch; tile += programs(1)) {
    Sequence here(tile, batch);
    next_tile(x, model, tile, batch);
    int strip = here.slot * TOKENS + here.strip * 16;
    f16 *k_here = keys + here.slot * TOKENS * CS, *v_here = values + here.slot * TOKENS * CS;
    float y[NE][4];
    u32 seen[NE / 2][4];
    load_rows<EMBED>(y, x + here.begin(model, batch), here.row(), here.rows);
    if (!NORM) as_left(seen, y);
    meet();  // the weights are there, and nobody reads the last tile's keys
    if (NORM) normed(seen, y, norm);
    project<false>(queries, strip, seen, w.query);
    project<false>(keys, strip, seen, w.key);
    project<false>(values, strip, seen, w.value);
    if (ASK) keep(seen, xs, ES, strip);
    meet();
    if (ASK && here.strip == TILES - 1 && here.rows)
      hear(directions + here.question(model, batch, shared), xs + here.slot * TOKENS * ES, length,
           heard + here.question(model, batch, 0));
    for (int c = 0; c < COLUMNS; c += 16) {
      u32 asking[4];
      left_from(asking, queries, CS, strip, c);
      meet_warp();  // what is heard takes the questions' place
#pragma unroll
      for (int h = 0; h < 16 / DEEP; ++h) {
        int head = c / DEEP + h;
        if (head < count) {
          float p[NT][4], mixed[ND][4], top[2], total[2];
          across(p, asking, head, k_here);
          weigh<2, CAUSAL>(p, length, top, total, here.row());
          along(mixed, p, head, v_here);
          put(queries, strip, head, mixed, 1.0f / total[0], 1.0f / total[1]);
        } else {
          put_nothing(queries, strip, head);
        }
      }
    }
    meet_warp();
    if (!RESIDUAL) zero(y);
    collect<true>(y, queries, strip, w.output);
    store_rows<EMBED>(y, out + here.begin(model, batch), here.row(), here.rows);
  }
}

constexpr int BANDS = 4 * COLUMNS / 16, MINE = (BANDS + WARPS - 1) / WARPS;  // of 16 rows of the four gradients

// Rows of one band of (queries, keys, values, outputs' transpose), written where the parameters lie.
DEVICE void keep_band(const float (&sum)[NE][4], int band, float* to, bool turned, int first, int here, float by) {
  int lane = thread() % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < NE; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int c = band % (COLUMNS / 16) * 16 + g + i / 2 * 8, e = place(8 * j + 2 * t + i % 2), head = c / DEEP, n = c % DEEP;
      if (head >= here || n >= DIM || e >= EMBED) continue;
      long long there = turned ? (long long)(first + head) * HEAD_STEP + (long long)e * ROW_STEP + n
                               : ((long long)(first + head) * DIM + n) * EMBED + e;
      to[there] = sum[j][i] * by;
    }
}

KERNEL(WARPS, RESIDENT)
attend_backward(const float* x, const float* theta, const float* scale, const int* counts, const int* lengths,
                const float* directions, const float* d_heard, const float* slope, float* d_x, float* share,
                float* d_directions, long long row, long long share_step, int at_query, int at_key, int at_value,
                int at_output, int at_scaling, int at_moving, int scale_row, int batch, int shared) {
  SHARED;
  int model = program(0), g = thread() % 32 / 4, t = thread() % 4;
  f16* memory = (f16*)shared_bytes;
  Weights w = {memory, memory + COLUMNS * ES, memory + 2 * COLUMNS * ES, memory + 3 * COLUMNS * ES};
  f16* free = w.output + EMBEDDED * CS;
  f16 *xs = free, *gs = xs + ROWS * ES, *qs = gs + ROWS * ES, *os = qs + ROWS * CS;  // os: slopes of what is mixed
  f16 *dqs = os + ROWS * CS, *ks = dqs + ROWS * CS, *vs = ks + ROWS * CS, *ms = vs + ROWS * CS;  // ms: what is mixed
  float* level = (float*)(ms + ROWS * CS);                                 // GROUP by ROWS, then the rows' <p, dp>
  float *along_p = level + GROUP * ROWS, *scratch = along_p + GROUP * ROWS;
  float *scaling = scratch + SCRATCH, *sums = scaling + NORM * 2 * EMBEDDED;
  Norm norm = {scaling, scaling + EMBEDDED};
  f16* answers = (f16*)(sums + NORM * 2 * WARPS * EMBEDDED);
  theta += model * row;
  share += model * share_step + program(1) * row;
  int count = counts[model * scale_row], length = RAGGED ? lengths[model] : LONGEST;
  float sharp = scale[model * scale_row];
  if (NORM) {
    stage_norm(scaling, theta + at_scaling, theta + at_moving, EMBED, EMBEDDED, 32 * WARPS);
    for (int i = thread(); i < 2 * WARPS * EMBEDDED; i += 32 * WARPS) sums[i] = 0.0f;
  }
#pragma unroll 1
  for (int first = 0; first < HEADS; first += GROUP) {
    int here_heads = HEADS - first < GROUP ? HEADS - first : GROUP;
    meet();  // nobody reads the last group's weights
    stage_heads(w, {theta + at_query, theta + at_key, theta + at_value, theta + at_output}, first, here_heads, sharp);
    float d_w[MINE][NE][4], size = 0.0f;
#pragma unroll
    for (int i = 0; i < MINE; ++i) zero(d_w[i]);
    for (int tile = program(1); tile * SAMPLES < batch; tile += programs(1)) {
      Sequence here(tile, batch);
      next_tile(x, model, tile, batch), next_tile(slope, model, tile, batch);
      int strip = here.slot * TOKENS + here.strip * 16, mine = strip + g;
      f16 *k_here = ks + here.slot * TOKENS * CS, *v_here = vs + here.slot * TOKENS * CS;
      f16 *q_here = qs + here.slot * TOKENS * CS, *o_here = os + here.slot * TOKENS * CS;
      {
        u32 seen[NE / 2][4], risen[NE / 2][4];
        float states[NE][4];
        load_rows<EMBED>(states, x + here.begin(model, batch), here.row(), here.rows);
        if (NORM)
          normed(seen, states, norm);
        else
          as_left(seen, states);
        load_rows<EMBED>(states, slope + here.begin(model, batch), here.row(), here.rows);
        // This meeting also says that the weights are there and that nobody reads the last tile any more.
        float now = larger(largest<WARPS>(largest_of(states), scratch), 1e-30f) / HIGH;
        if (now > size) {
          float less = size / now;
          size = now;
#pragma unroll
          for (int i = 0; i < MINE; ++i)
#pragma unroll
            for (int j = 0; j < NE; ++j)
#pragma unroll
              for (int n = 0; n < 4; ++n) d_w[i][j][n] *= less;
        }
        as_left(risen, states, 1.0f / size);
        keep(seen, xs, ES, strip);
        keep(risen, gs, ES, strip);
        project<false>(qs, strip, seen, w.query);
        project<false>(ks, strip, seen, w.key);
        project<false>(vs, strip, seen, w.value);
        project<true>(os, strip, risen, w.output);
      }
      meet();
      Answers kept(answers + here.slot * ANSWERS);
      if (ASK && first == 0 && here.strip == TILES - 1 && here.rows)
        hear_back(directions + here.question(model, batch, shared), d_heard + here.question(model, batch, 0),
                  xs + here.slot * TOKENS * ES, length, d_directions + here.question(model, batch, 0), kept);
      float dx[NE][4];
      zero(dx);
      for (int c = 0; c < COLUMNS; c += 16) {
        u32 asking[4], risen[4];
        left_from(asking, qs, CS, strip, c);
        left_from(risen, os, CS, strip, c);
#pragma unroll
        for (int h = 0; h < 16 / DEEP; ++h) {
          int head = c / DEEP + h;
          if (head >= here_heads || first + head >= count) {
            put_nothing(dqs, strip, head), put_nothing(ms, strip, head);
            continue;
          }
          float p[NT][4], dp[NT][4], top[2], total[2], sum[ND][4];
          across(p, asking, head, k_here);
          weigh<2, CAUSAL>(p, length, top, total, here.row());
          across(dp, risen, head, v_here);
          float over[2] = {1.0f / total[0], 1.0f / total[1]};
          along(sum, p, head, v_here);
          put(ms, strip, head, sum, over[0], over[1]);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float same = 0.0f;
#pragma unroll
            for (int j = 0; j < NT; ++j)
#pragma unroll
              for (int i = 2 * half; i < 2 * half + 2; ++i) same += p[j][i] * dp[j][i];
            same += from_lane(same, 1);
            same = (same + from_lane(same, 2)) * over[half];
#pragma unroll
            for (int j = 0; j < NT; ++j)
#pragma unroll
              for (int i = 2 * half; i < 2 * half + 2; ++i) dp[j][i] = p[j][i] * (dp[j][i] - same) * over[half];
            if (t == 0) {
              level[head * ROWS + mine + 8 * half] = top[half] + log2_of(total[half]);
              along_p[head * ROWS + mine + 8 * half] = same;
            }
          }
          along(sum, dp, head, k_here);
          put(dqs, strip, head, sum);
        }
      }
      meet();  // the levels are there, and nobody needs keys and values of the others any more
      collect<false>(dx, dqs, strip, w.query);
      for (int c = 0; c < COLUMNS; c += 16) {
        u32 asked[4], said[4];
        left_from(asked, ks, CS, strip, c);
        left_from(said, vs, CS, strip, c);
        meet_warp();  // slopes take the place of keys and values
#pragma unroll
        for (int h = 0; h < 16 / DEEP; ++h) {
          int head = c / DEEP + h;
          if (head >= here_heads || first + head >= count) {
            put_nothing(ks, strip, head), put_nothing(vs, strip, head);
            continue;
          }
          float p[NT][4], dp[NT][4], sum[ND][4];
          const float *levels = level + head * ROWS + here.slot * TOKENS, *sames = along_p + head * ROWS + here.slot * TOKENS;
          across(p, asked, head, q_here);
          across(dp, said, head, o_here);
#pragma unroll
          for (int j = 0; j < NT; ++j) {
            float2 high = *(const float2*)(levels + 8 * j + 2 * t), same = *(const float2*)(sames + 8 * j + 2 * t);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float weight = exp2_of(p[j][i] * LOG2E - (i % 2 ? high.y : high.x));
              int asked_token = here.row() + i / 2 * 8;
              if (!WHOLE && asked_token >= length) weight = 0.0f;
              if (CAUSAL && asked_token > 8 * j + 2 * t + i % 2) weight = 0.0f;
              p[j][i] = weight;
              dp[j][i] = weight * (dp[j][i] - (i % 2 ? same.y : same.x));
            }
          }
          along(sum, p, head, o_here);
          put(vs, strip, head, sum);
          along(sum, dp, head, q_here);
          put(ks, strip, head, sum);
        }
      }
      meet_warp();
      collect<false>(dx, ks, strip, w.key);
      collect<false>(dx, vs, strip, w.value);
      {
        float before[NE][4];
        if (first || RESIDUAL)
          load_rows<EMBED>(before, (first ? d_x : slope) + here.begin(model, batch), here.row(), here.rows);
        else
          zero(before);
#pragma unroll
        for (int j = 0; j < NE; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) dx[j][i] *= size;
        if (NORM) {
          float unit[NE][4], rate[2];
          load_rows<EMBED>(unit, x + here.begin(model, batch), here.row(), here.rows);
          norm.unit<EMBED>(unit, rate);
          norm.back<EMBED>(dx, unit, rate, sums + 2 * (thread() / 32) * EMBEDDED);
        }
#pragma unroll
        for (int j = 0; j < NE; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) dx[j][i] += before[j][i];
        if (ASK && first == 0 && here.rows) heard_by(dx, here.strip, kept);
        store_rows<EMBED>(dx, d_x + here.begin(model, batch), here.row(), here.rows);
      }
      meet();
#pragma unroll
      for (int i = 0; i < MINE; ++i) {
        int band = thread() / 32 + i * WARPS, which = band / (COLUMNS / 16), c = band % (COLUMNS / 16) * 16;
        if (band < BANDS)
#pragma unroll
          for (int r = 0; r < ROWS; r += 16) {
            u32 left[1][4];
            left_turned(left[0], dqs + which * ROWS * CS, CS, r, c);
            times_rows(d_w[i], left, which < 3 ? xs : gs, ES, r);
          }
      }
    }
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      int band = thread() / 32 + i * WARPS, which = band / (COLUMNS / 16);
      int at = which == 0 ? at_query : which == 1 ? at_key : which == 2 ? at_value : at_output;
      if (band < BANDS) keep_band(d_w[i], band, share + at, which == 3, first, here_heads, which ? size : size * sharp);
    }
  }
  if (NORM) {
    meet();
    keep_norm(sums, WARPS, share + at_scaling, share + at_moving, EMBED, EMBEDDED, 32 * WARPS);
  }
}

constexpr int FORWARD_BYTES = 2 * (3 * COLUMNS * ES + EMBEDDED * CS + 3 * ROWS * CS + ASK * ROWS * ES) + NORM * 8 * EMBEDDED;
constexpr int BACKWARD_BYTES = 2 * (3 * COLUMNS * ES + EMBEDDED * CS + 2 * ROWS * ES + 6 * ROWS * CS) + 8 * GROUP * ROWS +
                               4 * SCRATCH + NORM * 8 * EMBEDDED * (1 + WARPS) + 2 * ASK * SAMPLES * ANSWERS;

SIZES(WARPS, FORWARD_BYTES, BACKWARD_BYTES);

#ifdef EMULATED
extern "C" void run_attend_forward(int x, int y, void** given) {
  emulated::launch(attend_forward, x, y, 32 * WARPS, FORWARD_BYTES, given);
}
extern "C" void run_attend_backward(int x, int y, void** given) {
  emulated::launch(attend_backward, x, y, 32 * WARPS, BACKWARD_BYTES, given);
}
#endif
