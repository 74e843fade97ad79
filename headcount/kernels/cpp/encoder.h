// A standard encoder on a tile of samples, forwards and backwards: tokens enter by one matrix or as rows of a table,
// places are added, blocks follow in which everyone hears everyone, and the mean state or that of the class token, which
// stands first, is normed and read out. In the last layer the class token asks alone, along directions.
//
// Where tokens enter by one matrix, queries, keys and values of the first layer are, exactly,
//     W norm(U x + p_t) + b = rate_t (A x + B_t) + c,   A = W diag(g) C U,  B_t = W diag(g) C p_t,  c = W d + b
// with g, d the norm's gain and shift and C x = x - mean(x): as many products for a token as it has features, not as wide
// as its state. A, B and c are made once for a member; their gradients become those of what they are made of at the end.
#pragma once
#include <atomic>

#include "blocks.h"

struct Standard {  // what all members share
    int depth, embed, width, features, vocab, places, outputs, length, batch;
    bool classed, smooth;  // the class token is read out, not the mean; GELU, not ReLU
    const int32_t* layers;  // heads and dim of each
};

struct Encoder : BlockArena {
    Matrix entry, place, read_out, fold;  // fold: A; plain is unused of it
    int entry_bias = 0, cls = 0, read_out_bias = 0;
    int base = 0, base_step = 0, shift = 0;  // B of every column of a sample, c
    bool folded = false;
    Norm last;

    explicit Encoder(const Standard& s) : s(s) {
        const int E = s.embed;
        if (s.vocab) entry = table(s.vocab, E);
        else entry = next(E, s.features), entry_bias = next(E);
        if (s.places) place = table(s.places, E);
        if (s.classed) cls = next(E);
        for (int l = 0; l < s.depth; ++l) block(s.layers[2 * l], s.layers[2 * l + 1], E, s.width, true);
        last = norm(E);
        read_out = next(s.outputs, E), read_out_bias = next(s.outputs);
        // Worth it where every layer but a last one that asks alone has three matrices, and many samples share B.
        folded = !s.vocab && s.depth > s.classed && 4 * s.features <= E && 2 * s.length <= s.batch;
        if (!folded) return;
        const int three = blocks[0].read.rows;
        fold = matrix(three, s.features);
        base_step = filled(three), base = take((s.length + s.classed) * base_step), shift = take(three);
        many = s.features + s.length + s.classed + 1, columns = (many + LANES - 1) / LANES;
    }

    // A, B and c of a member, from its matrices.
    void compose(real* plain, real* turned, Scratch& scratch) const {
        if (!folded) return;
        const Matrix& w = blocks[0].read;
        scratch.reset();
        const vec* x = scaled(plain, entering(plain, scratch), scratch.take(vectors()));
        vec* out = scratch.take(size_t(columns) * w.rows);
        map({turned + w.turned, w.rows, s.embed, w.turned_step}, columns, x, s.embed, out, w.rows);
        for (int n = 0; n < many; ++n) {
            real* to = n < s.features ? turned + fold.turned + n * fold.turned_step : plain + made(n);
            for (int r = 0; r < w.rows; ++r) to[r] = out[n / LANES * w.rows + r][n % LANES];
        }
        for (int r = 0; r < w.rows; ++r) plain[shift + r] += plain[blocks[0].read_bias + r];
    }

    // From their gradients to those of the matrices, added to what is there.
    void decompose(const real* plain, real* gradient, Scratch& scratch) const {
        if (!folded) return;
        const Matrix& w = blocks[0].read;
        const int E = s.embed, gain = blocks[0].norm.weight;
        scratch.reset();
        const vec *centred = entering(plain, scratch), *x = scaled(plain, centred, scratch.take(vectors()));
        vec *d = scratch.take(vectors()), *d_out = scratch.take(size_t(columns) * w.rows);
        std::fill(d_out, d_out + columns * w.rows, vec{});
        for (int n = 0; n < many; ++n) {
            const real* from = gradient + (n < s.features ? fold.at + n : made(n));
            const int far = n < s.features ? fold.step : 1;
            for (int r = 0; r < w.rows; ++r) d_out[n / LANES * w.rows + r][n % LANES] = from[r * far];
        }
        few_gram(columns, d_out, w.rows, w.rows, x, E, E, gradient + w.at, w.step);
        map({plain + w.at, E, w.rows, w.step}, columns, d_out, w.rows, d, E);
        for (int c = 0; c < columns; ++c)
            for (int e = 0; e < E; ++e) gradient[gain + e] += sum(d[c * E + e] * centred[c * E + e] * normed(c));
        centre(scaled(plain, d, d));
        for (int n = 0; n < many; ++n) {
            const int to = enters(n), far = n < s.features ? entry.step : 1, beside = place_of(n);
            for (int e = 0; e < E; ++e) {
                const real one = d[n / LANES * E + e][n % LANES];
                gradient[to + e * far] += one;
                if (beside >= 0) gradient[beside + e] += one;
            }
        }
        for (int r = 0; r < w.rows; ++r) gradient[blocks[0].read_bias + r] += gradient[shift + r];
    }

  private:
    const Standard& s;
    // What W is applied to, a lane for each: columns of U; the state of every column of a sample but for its token, that
    // is the class token, or the bias and a place; and the norm's shift, which alone is neither centred nor scaled.
    int many = 0, columns = 0;

    size_t vectors() const { return size_t(columns) * s.embed; }
    int enters(int n) const {
        if (n < s.features) return entry.at + n;
        return n == many - 1 ? blocks[0].norm.bias : s.classed && n == s.features ? cls : entry_bias;
    }
    int place_of(int n) const {  // -1: none
        const int t = n - s.features - s.classed;
        return s.places && t >= 0 && n < many - 1 ? place.at + t * place.step : -1;
    }
    int made(int n) const { return n == many - 1 ? shift : base + (n - s.features) * base_step; }

    vec normed(int column) const {  // 1 in lanes that are centred and scaled
        vec out;
        for (int i = 0; i < LANES; ++i) out[i] = column * LANES + i < many - 1;
        return out;
    }
    void centre(vec* x) const {
        for (int c = 0; c < columns; ++c, x += s.embed) {
            vec mean{};
            for (int e = 0; e < s.embed; ++e) mean += x[e];
            mean *= normed(c) / real(s.embed);
            for (int e = 0; e < s.embed; ++e) x[e] -= mean;
        }
    }
    vec* scaled(const real* plain, const vec* x, vec* to) const {
        for (int c = 0, at = 0; c < columns; ++c)
            for (int e = 0; e < s.embed; ++e, ++at)
                to[at] = normed(c) > 0 ? x[at] * plain[blocks[0].norm.weight + e] : x[at];
        return to;
    }
    vec* entering(const real* plain, Scratch& scratch) const {
        vec* x = scratch.take(vectors());
        std::fill(x, x + vectors(), vec{});
        for (int n = 0; n < many; ++n) {
            const int from = enters(n), far = n < s.features ? entry.step : 1, beside = place_of(n);
            for (int e = 0; e < s.embed; ++e)
                x[n / LANES * s.embed + e][n % LANES] = plain[from + e * far] + (beside < 0 ? 0 : plain[beside + e]);
        }
        centre(x);
        return x;
    }
};

class EncoderTile : Blocks {
  public:
    // `lost` becomes true where an id is no row of the table.
    EncoderTile(const Standard& s, const Encoder& m, const real* plain, const real* turned, const Samples& x,
                const Dropping& dropping, Scratch& scratch, std::atomic<bool>& lost)
        : Blocks({s.embed, s.width, s.smooth, ALL}, plain, turned, scratch, s.batch), s(s), m(m), x(x), lost(lost) {
        drop = dropping, samples = x.rows;
    }

    void forward(int from, int groups) {
        scratch.reset();
        first = from, G = groups;
        lengths(x, s.length, s.classed);
        begin(s.depth, s.classed);
        if (s.classed) where.assign(size_t(G) * LANES, 0);
        enter();
        const int last = s.depth - 1;
        for (int l = 0; l < last; ++l) hear_layer(l), said(m.blocks[l], kept[l], columns);
        if (s.classed) asking_layer(m.blocks[last], kept[last]), pooled = state;
        else mean_layer(m.blocks[last], kept[last]);
        final = norm(m.last, pooled, G);
        const Matrix& o = m.read_out;
        out = map_to({turned + o.turned, s.outputs, s.embed, o.turned_step, plain + m.read_out_bias}, G, final.y, step,
                     out_step);
        tell(x, s.outputs, out, out_step);
    }

    void backward(real* to) {
        gradient = to;
        loss(x, s.outputs, out, out_step);
        const Matrix& o = m.read_out;
        weight_gradient(o, 0, G, out, out_step, s.outputs, final.y, step);
        totals(G, out, out_step, s.outputs, gradient + m.read_out_bias);
        vec* d_pooled = final.y;  // done with
        map({plain + o.at, s.embed, s.outputs, o.step}, G, out, out_step, d_pooled, step);
        norm_back(m.last, final, pooled, G, d_pooled, nullptr);
        const int last = s.depth - 1;
        if (s.classed) d_state = d_pooled, asking_back(m.blocks[last], kept[last]);
        else mean_back(m.blocks[last], kept[last], d_pooled);
        for (int l = last - 1; l >= 0; --l) said_back(m.blocks[l], kept[l], columns), hear_layer_back(l);
        enter_back();
    }

  private:
    template <class F>
    void each_id(F f) {  // of every column of tokens: rows of the tables for its lanes
        for (int t = 0; t < T - s.classed; ++t)
            for (int g = 0; g < G; ++g) {
                int token[LANES], place[LANES];
                for (int i = 0; i < LANES; ++i) {
                    int64_t id = x.ids[x.rows[sample(g, i)] * s.length + t];
                    if (id < 0 || id >= s.vocab) id = 0, lost = true;
                    token[i] = m.entry.at + int(id) * m.entry.step;
                    place[i] = m.place.at + t * m.place.step;
                }
                f(((t + s.classed) * G + g) * step, token, s.places ? place : nullptr);
            }
    }

    void enter() {
        state = scratch.take(size_t(columns) * step);
        for (int g = 0; s.classed && g < G; ++g)
            for (int e = 0; e < s.embed; ++e) state[g * step + e] = all(plain[m.cls + e]);
        if (s.vocab) {
            each_id([&](int at, const int* token, const int* place) { look_up(token, place, state + at); });
            return;
        }
        const int tokens = T - s.classed;
        vec* to = state + s.classed * G * step;
        in = read(x, s.length, s.features, tokens, in_step);
        map({turned + m.entry.turned, s.embed, s.features, m.entry.turned_step, plain + m.entry_bias}, tokens * G, in,
            in_step, to, step);
        for (int c = 0; s.places && c < tokens * G; ++c) {
            const real* place = plain + m.place.at + c / G * m.place.step;
            for (int e = 0; e < s.embed; ++e) to[c * step + e] += place[e];
        }
    }

    void enter_back() {
        if (s.classed) totals(G, d_state, step, s.embed, gradient + m.cls);
        if (s.vocab) {
            each_id([&](int at, const int* token, const int* place) { look_up_back(token, place, d_state + at); });
            return;
        }
        const int tokens = T - s.classed;
        const vec* d = d_state + s.classed * G * step;
        weight_gradient(m.entry, 0, tokens * G, d, step, s.embed, in, in_step);
        totals(tokens * G, d, step, s.embed, gradient + m.entry_bias);
        for (int t = 0; s.places && t < tokens; ++t)
            totals(G, d + t * G * step, step, s.embed, gradient + m.place.at + t * m.place.step);
    }

    // A last layer whose mean state is wanted: what hidden units say is linear in them, so the mean comes first, unless
    // it is left out unit by unit.
    void mean_layer(const Block& b, Kept& k) {
        share = scratch.take(columns);
        for (int g = 0; g < G; ++g) {
            vec count{};
            for (int t = 0; t < T; ++t) count += here ? here[t * G + g] : all(1);
            for (int t = 0; t < T; ++t) share[t * G + g] = (here ? here[t * G + g] : all(1)) / count;
        }
        hear_layer(s.depth - 1);
        if (drop.on) {
            said(b, k, columns);
            pooled = mean(state, s.embed, step);
            return;
        }
        const vec* heard = mean(k.heard, s.embed, step);
        mean_active = mean(k.active, s.width, k.hidden_step);
        int same;
        pooled = map_to({turned + b.outer.turned, s.embed, s.width, b.outer.turned_step, plain + b.outer_bias, heard,
                         step}, G, mean_active, k.hidden_step, same);
    }

    void mean_back(const Block& b, Kept& k, const vec* d_pooled) {
        d_state = scratch.take(size_t(columns) * step);
        spread(d_pooled, s.embed, step, d_state, nullptr);
        if (drop.on) {
            said_back(b, k, columns);
        } else {
            weight_gradient(b.outer, 0, G, d_pooled, step, s.embed, mean_active, k.hidden_step);
            totals(G, d_pooled, step, s.embed, gradient + b.outer_bias);
            int same;
            const vec* d = map_to({plain + b.outer.at, s.width, s.embed, b.outer.step}, G, d_pooled, step, same);
            spread(d, s.width, k.hidden_step, k.active, k.slope);
        }
        hear_layer_back(s.depth - 1);
    }

    void hear_layer(int l) {
        if (l || !m.folded) hear(m.blocks[l], kept[l]);
        else hear_tokens(m.blocks[0], kept[0]);
    }
    void hear_layer_back(int l) {
        if (l || !m.folded) hear_back(m.blocks[l], kept[l]);
        else hear_tokens_back(m.blocks[0], kept[0]);
    }

    // The first layer, its queries, keys and values from the tokens themselves.
    void hear_tokens(const Block& b, Kept& k) {
        const int three = b.read.rows, F = s.features, ahead = s.classed * G;
        k.x = state, k.gathered = false;
        k.norm = {nullptr, scratch.take(columns), scratch.take(columns)};
        k.three_step = odd(three), k.three = scratch.take(size_t(columns) * k.three_step);
        scaled = rates(k.norm);
        for (int c = 0; c < columns; ++c) {
            const Map a{turned + m.fold.turned, three, c < ahead ? 0 : F, m.fold.turned_step, plain + m.shift};
            const real* along = plain + m.base + c / G * m.base_step;
            tokens_block(a, along, k.norm.rate[c], scaled + std::max(0, c - ahead) * in_step, k.three + c * k.three_step);
        }
        k.attention = {b.heads, b.dim, T, k.number, w.hearing, false, k.three, k.three + three / 3,
                       k.three + 2 * (three / 3), k.three_step, k.three_step};
        attend(k.attention);
        feed(b, k, state, columns);
    }

    // out = c + rate B + A x of one column.
    static void tokens_block(const Map& a, const real* along, vec rate, const vec* x, vec* out) {
        int r = 0;
        for (; r + 8 <= a.outputs; r += 8) {
            vec acc[8];
#pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) acc[i] = a.bias[r + i] + rate * along[r + i];
            for (int f = 0; f < a.inputs; ++f)
#pragma GCC unroll 8
                for (int i = 0; i < 8; ++i) acc[i] += x[f] * a.matrix[f * a.step + r + i];
#pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) out[r + i] = acc[i];
        }
        for (; r < a.outputs; ++r) {
            out[r] = a.bias[r] + rate * along[r];
            for (int f = 0; f < a.inputs; ++f) out[r] += x[f] * a.matrix[f * a.step + r];
        }
    }

    // Mean and rate of every state, and the tokens times their rates.
    vec* rates(const Normed& n) {
        const int ahead = s.classed * G;
        vec* scaled = scratch.take(size_t(columns) * in_step);
        for (int c = 0; c < columns; ++c) {
            vec sum{}, square{};
            const vec* from = state + c * step;
            for (int e = 0; e < s.embed; ++e) sum += from[e];
            n.mean[c] = sum * (real(1) / s.embed);
            for (int e = 0; e < s.embed; ++e) square += (from[e] - n.mean[c]) * (from[e] - n.mean[c]);
            vec rate = square * (real(1) / s.embed) + real(1e-5);
            for (int i = 0; i < LANES; ++i) rate[i] = 1 / std::sqrt(rate[i]);
            n.rate[c] = rate;
            for (int f = 0; c >= ahead && f < s.features; ++f)
                scaled[(c - ahead) * in_step + f] = in[(c - ahead) * in_step + f] * rate;
        }
        return scaled;
    }

    void hear_tokens_back(const Block& b, Kept& k) {
        const int three = b.read.rows, ahead = s.classed * G;
        vec* d_heard = feed_back(b, k, columns);
        vec* d = scratch.take(size_t(columns) * k.three_step);
        attend_back(k.attention, d_mixed, k.attention.mixed_step, d, d + three / 3, d + 2 * (three / 3));
        totals(columns, d, k.three_step, three, gradient + m.shift);
        for (int c = 0; c < columns; ++c) {
            const vec *y = k.three + c * k.three_step, *x = k.x + c * step, *d_y = d + c * k.three_step;
            const vec rate = k.norm.rate[c];
            vec along[4] = {};
            int r = 0;
            for (; r + 4 <= three; r += 4)
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) along[i] += d_y[r + i] * (y[r + i] - plain[m.shift + r + i]);
            for (; r < three; ++r) along[0] += d_y[r] * (y[r] - plain[m.shift + r]);
            const vec by = (along[0] + along[1] + along[2] + along[3]) * rate * rate * (real(-1) / s.embed);
            for (int e = 0; e < s.embed; ++e) d_heard[c * step + e] += by * (x[e] - k.norm.mean[c]);
        }
        d_state = d_heard;
        for (int t = 0; t < T; ++t)
            totals(G, d + t * G * k.three_step, k.three_step, three, gradient + m.base + t * m.base_step,
                   k.norm.rate + t * G);
        weight_gradient(m.fold, 0, columns - ahead, d + ahead * k.three_step, k.three_step, three, scaled, in_step);
    }

    vec* mean(const vec* from, int count, int far) {
        vec* to = scratch.take(size_t(G) * far);
        for (int g = 0; g < G; ++g)
            for (int f = 0; f < count; ++f) {
                vec total{};
                for (int t = 0; t < T; ++t) total += share[t * G + g] * from[(t * G + g) * far + f];
                to[g * far + f] = total;
            }
        return to;
    }

    void spread(const vec* from, int count, int far, vec* to, const vec* times) const {
        for (int c = 0; c < columns; ++c)
            for (int f = 0, at = c * far; f < count; ++f, ++at) {
                to[at] = share[c] * from[c % G * far + f];
                if (times) to[at] *= times[at];
            }
    }

    const Standard& s;
    const Encoder& m;
    const Samples& x;
    std::atomic<bool>& lost;
    Normed final{};
    vec *in = nullptr, *scaled = nullptr, *share = nullptr, *mean_active = nullptr, *pooled = nullptr, *out = nullptr;
    int in_step = 0, out_step = 0;
};
