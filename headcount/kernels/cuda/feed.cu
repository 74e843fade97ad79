// A feed-forward on every row: W2 act(W1 x + b1) + b2, and x where RESIDUAL; with NORM after a layer norm; and back.
//
// A warp has 16 rows; hidden activations stay in its registers, sixteen units at a time. Backwards, activations and
// their slopes of a tile pass through shared memory once, so that every warp can add its share of the rows of dW1 and
// dW2^T, which it keeps in registers from tile to tile. With more than GROUP hidden units this is done a group at a
// time, and the slopes of the rows are added up in device memory. The activation is relu or, with
// GELU, the exact GELU; for relu W1 x is computed with twice the bits: near zero they decide which units are awake.
#include "layer.cuh"

#ifndef BACKWARD  // one of the two kernels is compiled
#define BACKWARD 0
#endif
#ifndef GATHERED
#define GATHERED 0
#define LONGEST 1
#endif

// W1 x + b1 for sixteen units.
DEVICE void before(float (&z)[2][4], const u32 (&seen)[NI / 2][4], const u32 (&rest)[NI / 2][4], const Layer& layer,
                   int unit) {
  int t = thread() % 4;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    float2 bias = *(const float2*)(layer.bias + unit + 8 * j + 2 * t);
    z[j][0] = z[j][2] = bias.x, z[j][1] = z[j][3] = bias.y;
  }
#pragma unroll
  for (int k = 0; k < NI / 2; ++k) {
    u32 b[4], low[4];
    right_by_columns(b, layer.inner, IS, unit, 16 * k);
    multiply16(z[0], seen[k], b[0], b[1]), multiply16(z[1], seen[k], b[2], b[3]);
    if (GELU) continue;
    right_by_columns(low, layer.rest, IS, unit, 16 * k);
    multiply16(z[0], rest[k], b[0], b[1]), multiply16(z[1], rest[k], b[2], b[3]);
    multiply16(z[0], seen[k], low[0], low[1]), multiply16(z[1], seen[k], low[2], low[3]);
  }
}

// The activation of a number, and with `slope` its derivative. P(Z < z) of a normal Z to 1e-7 by Abramowitz and Stegun,
// Handbook of Mathematical Functions, 7.1.26, coefficients halved.
DEVICE float active(float z, float* slope = nullptr) {
  if (!GELU) {
    if (slope) *slope = z > 0.0f ? 1.0f : 0.0f;
    return larger(z, 0.0f);
  }
  // What a normal number is beyond |z|, half of erfc: z P(Z < z) = max(z, 0) - |z| beyond.
  float size = size_of(z), t = inverse_of(1.0f + 0.3275911f * 0.7071067811865476f * size);
  float bell = exp2_of(-0.5f * LOG2E * (z * z));
  float series = 0.127414796f + t * (-0.142248368f + t * (0.7107068705f + t * (-0.726576013f + t * 0.5307027145f)));
  float beyond = t * series * bell;
  if (!slope) return larger(z, 0.0f) - size * beyond;
  float below = z > 0.0f ? 1.0f - beyond : beyond;
  *slope = below + z * bell * 0.3989422804014327f;
  return z * below;
}
// Rows as left factors, after the norm where there is one, and what rounding left out.
DEVICE void enter(u32 (&seen)[NI / 2][4], u32 (&rest)[NI / 2][4], const float (&states)[NI][4], const Norm& norm) {
  float x[NI][4], rate[2];
#pragma unroll
  for (int j = 0; j < NI; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) x[j][i] = states[j][i];
  if (NORM) norm.unit<INPUTS>(x, rate), norm.scale(x);
  as_left(seen, x);
  if (!GELU) left_out(rest, x, seen);
}

// Rows of a batch: where they lie one after the other, or (GATHERED) sample by sample where `order` says.
struct Source {
  const float* rows;
  const long long* order;
  DEVICE Source(const float* x, const long long* order, const long long* which, int samples, int batch, int count) {
    int model = program(0);
    rows = x + (GATHERED ? which[model] * samples * LONGEST : (long long)model * count) * INPUTS;
    this->order = order + (long long)model * batch;
  }
  DEVICE const float* at(int row, int count) const {
    if (row >= count) return nullptr;
    return rows + (GATHERED ? order[row / LONGEST] * LONGEST + row % LONGEST : (long long)row) * INPUTS;
  }
  DEVICE void load(float (&x)[NI][4], int row, int count) const {
    load_two<INPUTS>(x, at(row, count), at(row + 8, count));
  }
};

// The rows of the tile after this one will be read soon.
template <int WIDTH>
DEVICE void next_tile(const float* x, int tile, int rows) {
  int next = (tile + programs(1)) * ROWS, count = rows - next < ROWS ? rows - next : ROWS;
  expect<32 * WARPS>(x + (long long)next * WIDTH, (long long)count * WIDTH);
}

#if !BACKWARD
KERNEL(WARPS)
feed_forward(const float* x, const long long* order, const long long* which, const float* theta, float* out,
             long long row, int at_inner, int at_bias, int at_outer, int at_shift, int at_scaling, int at_moving,
             int rows, int samples) {
  SHARED;
  int model = program(0), t = thread() % 4;
  Layer layer(shared_bytes);
  theta += model * row, out += (long long)model * rows * OUTPUTS;
  Source source(x, order, which, samples, rows / LONGEST, rows);
  int mine = program(1) * ROWS + thread() / 32 * 16 + thread() % 32 / 4;
  float states[NI][4];
  source.load(states, mine, rows);  // while the layer is staged
  stage_layer(layer, Group(theta, at_inner, at_bias, at_outer, at_shift, 0));
  if (NORM) stage_norm(layer.scaling(), theta + at_scaling, theta + at_moving, INPUTS, IN, 32 * WARPS);
  meet();
  for (int tile = program(1); tile * ROWS < rows; tile += programs(1)) {
    float y[NO][4];
    u32 seen[NI / 2][4], rest[NI / 2][4];
    enter(seen, rest, states, layer.norm());
#pragma unroll
    for (int j = 0; j < NO; ++j) {
      float2 shift = *(const float2*)(layer.shift + 8 * j + 2 * t);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        y[j][i] = i % 2 ? shift.y : shift.x;
        if (RESIDUAL && j < NI) y[j][i] += states[j < NI ? j : 0][i];
      }
    }
    source.load(states, mine + programs(1) * ROWS, rows);  // while this tile is computed
#pragma unroll 2
    for (int u = 0; u < NU / 2; ++u) {
      float z[2][4];
      before(z, seen, rest, layer, 16 * u);
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) z[j][i] = active(z[j][i]);
      u32 awake[1][4];
      as_left(awake, z);
      times_columns(y, awake, layer.outer + 16 * u, US);
    }
    store_rows<OUTPUTS>(y, out, mine, rows);
    mine += programs(1) * ROWS;
  }
}
EMULATE(feed_forward)
#else
constexpr int SIDE = UNITS % 32 ? 1 : 2;  // sixteens of units at a time
constexpr bool POSTED = NORM && GELU && DEEPER && !GATHERED && INPUTS == IN && OUTPUTS == INPUTS;  // rows are sent for
constexpr int BANDS = UNITS / 16, MINE = (2 * BANDS + WARPS - 1) / WARPS;  // of 16 rows of dW1, and of dW2^T

KERNEL(WARPS)
feed_backward(const float* x, const long long* order, const long long* which, const float* theta, const float* slope,
              float* d_x, float* share, long long row, long long share_step, int at_inner, int at_bias, int at_outer,
              int at_shift, int at_scaling, int at_moving, int rows, int samples) {
  SHARED;
  int model = program(0), lane = thread() % 32, warp = thread() / 32, g = lane / 4, t = lane % 4;
  Layer layer(shared_bytes);
  f16 *xs = (f16*)layer.end(), *gs = xs + ROWS * IS, *as = gs + ROWS * OS, *ds = as + ROWS * US;
  float* scratch = (float*)(ds + ROWS * US);
  theta += model * row, share += model * share_step + program(1) * row;
  slope += (long long)model * rows * OUTPUTS, d_x += (long long)model * rows * INPUTS;
  Source source(x, order, which, samples, rows / LONGEST, rows);
  const u32 ones[2] = {g == 0 ? 0x3c003c00u : 0u, g == 0 ? 0x3c003c00u : 0u};  // a column of ones
  float* norm_sums = scratch + WARPS * (1 + OUT);
  float* boxes = norm_sums + NORM * 2 * WARPS * IN;
  Post<INPUTS, NI, 32 * WARPS> rows_post(boxes);
  Post<OUTPUTS, NO, 32 * WARPS> slopes_post(boxes + 4 * NI * 32 * WARPS);
  int own = warp * 16 + g;  // row of a tile
  if (POSTED) rows_post.send(source.rows, program(1) * ROWS + own, rows);
  if (POSTED) slopes_post.send(slope, program(1) * ROWS + own, rows);
  if (NORM) {
    stage_norm(layer.scaling(), theta + at_scaling, theta + at_moving, INPUTS, IN, 32 * WARPS);
    for (int i = thread(); i < 2 * WARPS * IN; i += 32 * WARPS) norm_sums[i] = 0.0f;
  }
  float d_shift[NO][2];
#pragma unroll
  for (int j = 0; j < NO; ++j) d_shift[j][0] = d_shift[j][1] = 0.0f;
#pragma unroll 1
  for (int first = 0; first < HIDDEN; first += GROUP) {
    Group group(theta, at_inner, at_bias, at_outer, at_shift, first);
    meet();  // nobody reads the last group's weights and scratch
    float large = stage_scaled(layer, group, scratch);
    float d_w[MINE][MOST][4], d_b[MINE][4], size = 0.0f;
#pragma unroll
    for (int i = 0; i < MINE; ++i) zero(d_w[i]);
    zero(d_b);
    meet();  // everyone has read the scratch
    for (int tile = program(1); tile * ROWS < rows; tile += programs(1)) {
      if (!POSTED && !GATHERED) next_tile<INPUTS>(source.rows, tile, rows);
      if (!POSTED) next_tile<OUTPUTS>(slope, tile, rows);
      int strip = warp * 16, mine = tile * ROWS + own;
      u32 seen[NI / 2][4], rest[NI / 2][4], risen[NO / 2][4];
      float dx[NI][4], rate[2];
      {
        float states[NI][4], slopes[NO][4];
        if (POSTED) {
          arrived();
          rows_post.read(states), slopes_post.read(slopes);
          if (first) slopes_post.send(d_x, mine, rows);  // what the groups before gave
        } else {
          source.load(states, mine, rows);
          load_rows<OUTPUTS>(slopes, slope, mine, rows);
        }
        if (NORM) layer.norm().unit<INPUTS>(states, rate);
        if (POSTED) rows_post.write(states);
        if (NORM) layer.norm().scale(states);
        as_left(seen, states);
        if (!GELU) left_out(rest, states, seen);
        float now = larger(largest<WARPS>(largest_of(slopes), scratch), 1e-30f) / HIGH;
        if (now > size) {
          float less = size * inverse_of(now);
          size = now;
#pragma unroll
          for (int i = 0; i < MINE; ++i) {
#pragma unroll
            for (int n = 0; n < 4; ++n) d_b[i][n] *= less;
#pragma unroll
            for (int j = 0; j < MOST; ++j)
#pragma unroll
              for (int n = 0; n < 4; ++n) d_w[i][j][n] *= less;
          }
        }
        as_left(risen, slopes, inverse_of(size));
        if (first == 0)
#pragma unroll
          for (int j = 0; j < NO; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) d_shift[j][i] += slopes[j][i] + slopes[j][2 + i];
      }
      keep(seen, xs, IS, strip), keep(risen, gs, OS, strip);
      zero(dx);
#pragma unroll 1
      for (int u = 0; u < UNITS; u += 16 * SIDE) {  // what is read comes before what is written: loads do not overtake
        float z[SIDE][2][4], da[SIDE][2][4];
        u32 awake[SIDE][1][4], turned[SIDE][1][4];
#pragma unroll
        for (int s = 0; s < SIDE; ++s) {
          before(z[s], seen, rest, layer, u + 16 * s);
          zero(da[s]);
          times_rows(da[s], risen, layer.outer, US, 0, u + 16 * s);
        }
#pragma unroll
        for (int s = 0; s < SIDE; ++s) {
#pragma unroll
          for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float rise;
              z[s][j][i] = active(z[s][j][i], &rise);
              da[s][j][i] *= rise;
            }
          as_left(awake[s], z[s]), as_left(turned[s], da[s]);
          if (DEEPER) times_rows(dx, turned[s], layer.inner + (u + 16 * s) * IS, IS);
        }
#pragma unroll
        for (int s = 0; s < SIDE; ++s)
          keep(awake[s], as + u + 16 * s, US, strip), keep(turned[s], ds + u + 16 * s, US, strip);
      }
      if (DEEPER) {
        float known[NI][4];
        if (POSTED && (first || RESIDUAL))
          arrived(), slopes_post.read(known);
        else if (first || RESIDUAL)
          load_rows<INPUTS>(known, first ? d_x : slope, mine, rows);
        else
          zero(known);
#pragma unroll
        for (int j = 0; j < NI; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) dx[j][i] *= size * large;
        if (NORM) {
          float unit[NI][4];
          if (POSTED)
            rows_post.read(unit);
          else
            source.load(unit, mine, rows), layer.norm().unit<INPUTS>(unit, rate);
          layer.norm().back<INPUTS>(dx, unit, rate, norm_sums + 2 * warp * IN);
        }
#pragma unroll
        for (int j = 0; j < NI; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) dx[j][i] += known[j][i];
        store_rows<INPUTS>(dx, d_x, mine, rows);
      }
      if (POSTED) {  // the next tile, or the first one again for the next group
        bool over = (tile + programs(1)) * ROWS >= rows;
        int next = (over ? program(1) : tile + programs(1)) * ROWS + own;
        if (!over || first + GROUP < HIDDEN)
          rows_post.send(source.rows, next, rows), slopes_post.send(slope, next, rows);
      }
      meet();
#pragma unroll
      for (int i = 0; i < MINE; ++i) {
        int band = warp + i * WARPS;
        bool second = BANDS % WARPS ? band >= BANDS : i * WARPS >= BANDS;
        const f16 *from = second ? as : ds, *by = second ? gs : xs;
        int c = (second ? band - BANDS : band) * 16, stride = second ? OS : IS, tiles = second ? NO : NI;
        if (band < 2 * BANDS)
#pragma unroll
          for (int r = 0; r < ROWS; r += 16) {
            u32 left[4];
            left_turned(left, from, US, r, c);
#pragma unroll
            for (int j = 0; j < MOST; j += 2)
              if (j < tiles) {
                u32 b[4];
                right_by_rows(b, by, stride, r, 8 * j);
                multiply16(d_w[i][j], left, b[0], b[1]), multiply16(d_w[i][j + 1], left, b[2], b[3]);
              }
            if (!second) multiply16(d_b[i], left, ones[0], ones[1]);
          }
      }
    }
    const float inner_size = size * large;
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      int band = warp + i * WARPS;
      bool second = BANDS % WARPS ? band >= BANDS : i * WARPS >= BANDS;
      if (band < 2 * BANDS)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int unit = (second ? band - BANDS : band) * 16 + g + half * 8;
          if (unit >= group.here) continue;
          if (!second && t == 0) share[at_bias + first + unit] = d_b[i][2 * half] * inner_size;
          if (second)
            keep_column<OUTPUTS>(d_w[i], half, share + at_outer + first + unit, HIDDEN, size);
          else
            keep_row<INPUTS>(d_w[i], half, share + at_inner + (long long)(first + unit) * INPUTS, inner_size);
        }
    }
  }
  if (POSTED) arrived();  // nothing is on its way to a program that has ended
  // The rows' slopes added up: over the lanes of a column, then over warps.
  meet();
  float* sums = scratch + WARPS;
#pragma unroll
  for (int j = 0; j < NO; ++j)
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float sum = d_shift[j][k];
      sum += from_lane(sum, 4);
      sum += from_lane(sum, 8);
      sum += from_lane(sum, 16);
      if (g == 0) sums[warp * OUT + place(8 * j + 2 * t + k)] = sum;
    }
  meet();
  for (int column = thread(); column < OUTPUTS; column += 32 * WARPS) {
    float sum = 0.0f;
    for (int w = 0; w < WARPS; ++w) sum += sums[w * OUT + column];
    share[at_shift + column] = sum;
  }
  if (NORM) keep_norm(norm_sums, WARPS, share + at_scaling, share + at_moving, INPUTS, IN, 32 * WARPS);
}
EMULATE(feed_backward)
#endif
