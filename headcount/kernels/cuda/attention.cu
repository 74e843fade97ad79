// Attention of all tokens: out = sum_h W_O,h softmax(q_h k_h^T) v_h, and x where RESIDUAL; and back.
//
// A warp has 16 tokens of one sample; TILES warps have the sample, SAMPLES of them a program at a time. Keys and values
// pass from warp to warp through shared memory, everything else stays in registers. A program takes one member and
// every so-many-th tile of samples; HEADS heads of DIM side by side are COLUMNS columns.
// Backwards a warp first has its tokens as those who ask (weights, dq), then as those who are asked (dk, dv), so that
// nothing is added up between warps; at the end of a tile every warp adds its share of the rows of dW_Q, dW_K, dW_V and
// dW_O^T, which it keeps in registers from tile to tile. With more than GROUP heads this is done a group at a time, and
// the slopes of the states are added up in device memory.
#include "heads.cuh"

#ifndef BACKWARD  // one of the two kernels is compiled
#define BACKWARD 0
#endif

// The states of the tile after this one will be read soon.
DEVICE void next_tile(const float* x, int model, int tile, int batch) {
  int next = (tile + programs(1)) * SAMPLES, count = batch - next < SAMPLES ? batch - next : SAMPLES;
  expect<32 * WARPS>(x + ((long long)model * batch + next) * LONGEST * EMBED, (long long)count * LONGEST * EMBED);
}

#if !BACKWARD
KERNEL(WARPS)
attend_forward(const float* x, const float* theta, const float* scale, const int* counts, const int* lengths,
               const float* directions, float* heard, float* out, long long row, int at_query, int at_key, int at_value,
               int at_output, int at_scaling, int at_moving, int scale_row, int batch, int shared) {
  SHARED;
  int model = program(0);
  f16* memory = (f16*)shared_bytes;
  Weights w = {memory, memory + COLUMNS * ES, memory + 2 * COLUMNS * ES, memory + 3 * COLUMNS * ES};
  f16 *queries = w.output + EMBEDDED * CS, *keys = queries + ROWS * CS, *values = keys + ROWS * CS;
  f16* xs = values + ROWS * CS;
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
          put(queries, strip, head, mixed, inverse_of(total[0]), inverse_of(total[1]));
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
EMULATE(attend_forward)
#else
constexpr int BANDS = 4 * COLUMNS / 16, MINE = (BANDS + WARPS - 1) / WARPS;  // of 16 rows of the four gradients

constexpr bool POSTED = NORM && !ASK && EMBED == EMBEDDED;  // states are sent for beforehand

// Rows of one band of (queries, keys, values, outputs' transpose), written where the parameters lie.
DEVICE void keep_band(const float (&sum)[NE][4], int band, float* to, bool turned, int first, int here, float by) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int c = band % (COLUMNS / 16) * 16 + thread() % 32 / 4 + half * 8, head = c / DEEP, n = c % DEEP;
    if (head >= here || n >= DIM) continue;
    if (turned)
      keep_column<EMBED>(sum, half, to + (long long)(first + head) * HEAD_STEP + n, ROW_STEP, by);
    else
      keep_row<EMBED>(sum, half, to + ((long long)(first + head) * DIM + n) * EMBED, by);
  }
}

KERNEL(WARPS)
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
  Post<EMBED, NE, 32 * WARPS> post(answers);
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
    if (POSTED) Sequence(program(1), batch).send(post, x, model, batch);
    for (int tile = program(1); tile * SAMPLES < batch; tile += programs(1)) {
      Sequence here(tile, batch);
      if (!POSTED) next_tile(x, model, tile, batch);
      next_tile(slope, model, tile, batch);
      int strip = here.slot * TOKENS + here.strip * 16, mine = strip + g;
      f16 *k_here = ks + here.slot * TOKENS * CS, *v_here = vs + here.slot * TOKENS * CS;
      f16 *q_here = qs + here.slot * TOKENS * CS, *o_here = os + here.slot * TOKENS * CS;
      float rate[2];
      {
        u32 seen[NE / 2][4], risen[NE / 2][4];
        float states[NE][4], slopes[NE][4];
        if (!POSTED) load_rows<EMBED>(states, x + here.begin(model, batch), here.row(), here.rows);
        load_rows<EMBED>(slopes, slope + here.begin(model, batch), here.row(), here.rows);
        if (POSTED) arrived(), post.read(states);
        if (NORM) norm.unit<EMBED>(states, rate);
        if (POSTED) post.write(states);
        if (NORM) norm.scale(states);
        as_left(seen, states);
        // This meeting also says that the weights are there and that nobody reads the last tile any more.
        float now = larger(largest<WARPS>(largest_of(slopes), scratch), 1e-30f) / HIGH;
        if (now > size) {
          float less = size * inverse_of(now);
          size = now;
#pragma unroll
          for (int i = 0; i < MINE; ++i)
#pragma unroll
            for (int j = 0; j < NE; ++j)
#pragma unroll
              for (int n = 0; n < 4; ++n) d_w[i][j][n] *= less;
        }
        as_left(risen, slopes, inverse_of(size));
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
          float over[2] = {inverse_of(total[0]), inverse_of(total[1])};
          along(sum, p, head, v_here);
          put(ms, strip, head, sum, over[0], over[1]);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float same = 0.0f;
#pragma unroll
            for (int j = 0; j < NT; ++j)
#pragma unroll
              for (int i = 2 * half; i < 2 * half + 2; ++i) same += p[j][i] * dp[j][i];
            same = sum_of_four(same) * over[half];
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
          const float* levels = level + head * ROWS + here.slot * TOKENS;
          const float* sames = along_p + head * ROWS + here.slot * TOKENS;
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
      {
        float before[NE][4];  // asked for before it is needed
        if (first || RESIDUAL)
          load_rows<EMBED>(before, (first ? d_x : slope) + here.begin(model, batch), here.row(), here.rows);
        else
          zero(before);
        collect<false>(dx, ks, strip, w.key);
        collect<false>(dx, vs, strip, w.value);
#pragma unroll
        for (int j = 0; j < NE; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) dx[j][i] *= size;
        if (NORM) {
          float unit[NE][4];
          if (POSTED)
            post.read(unit);
          else
            load_rows<EMBED>(unit, x + here.begin(model, batch), here.row(), here.rows), norm.unit<EMBED>(unit, rate);
          norm.back<EMBED>(dx, unit, rate, sums + 2 * (thread() / 32) * EMBEDDED);
        }
#pragma unroll
        for (int j = 0; j < NE; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) dx[j][i] += before[j][i];
        if (ASK && first == 0 && here.rows) heard_by(dx, here.strip, kept);
        store_rows<EMBED>(dx, d_x + here.begin(model, batch), here.row(), here.rows);
      }
      int next = tile + programs(1);  // there is one: nothing is sent into the same place twice without `arrived`
      if (POSTED && next * SAMPLES < batch) Sequence(next, batch).send(post, x, model, batch);
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
  if (POSTED) arrived();  // nothing is on its way to a program that has ended
  if (NORM) {
    meet();
    keep_norm(sums, WARPS, share + at_scaling, share + at_moving, EMBED, EMBEDDED, 32 * WARPS);
  }
}
EMULATE(attend_backward)
#endif
