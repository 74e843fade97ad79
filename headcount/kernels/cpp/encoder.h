// A standard encoder on a tile of samples, forwards and backwards: tokens enter by one matrix or as rows of a table,
// places are added, blocks follow in which everyone hears everyone, and the mean state or that of the class token, which
// stands first, is normed and read out. In the last layer the class token asks alone, along directions.
#pragma once
#include <atomic>

#include "blocks.h"

struct Standard {  // what all members share
    int depth, embed, width, features, vocab, places, outputs, length, batch;
    bool classed, smooth;  // the class token is read out, not the mean; GELU, not ReLU
    const int32_t* layers;  // heads and dim of each
};

struct Encoder : BlockArena {
    Matrix entry, place, read_out;
    int entry_bias = 0, cls = 0, read_out_bias = 0;
    Norm last;

    explicit Encoder(const Standard& s) {
        const int E = s.embed;
        if (s.vocab) entry = table(s.vocab, E);
        else entry = next(E, s.features), entry_bias = next(E);
        if (s.places) place = table(s.places, E);
        if (s.classed) cls = next(E);
        for (int l = 0; l < s.depth; ++l) block(s.layers[2 * l], s.layers[2 * l + 1], E, s.width, true);
        last = norm(E);
        read_out = next(s.outputs, E), read_out_bias = next(s.outputs);
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
        for (int l = 0; l < last; ++l) layer(m.blocks[l], kept[l]);
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
        for (int l = last - 1; l >= 0; --l) layer_back(m.blocks[l], kept[l]);
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
        hear(b, k);
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
        spread(d_pooled, s.embed, step, d_state);
        if (drop.on) {
            said_back(b, k, columns);
        } else {
            weight_gradient(b.outer, 0, G, d_pooled, step, s.embed, mean_active, k.hidden_step);
            totals(G, d_pooled, step, s.embed, gradient + b.outer_bias);
            int same;
            const vec* d = map_to({plain + b.outer.at, s.width, s.embed, b.outer.step}, G, d_pooled, step, same);
            spread(d, s.width, k.hidden_step, k.active);
        }
        hear_back(b, k);
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

    void spread(const vec* from, int count, int far, vec* to) const {
        for (int c = 0; c < columns; ++c)
            for (int f = 0; f < count; ++f) to[c * far + f] = share[c] * from[c % G * far + f];
    }

    const Standard& s;
    const Encoder& m;
    const Samples& x;
    std::atomic<bool>& lost;
    Normed final{};
    vec *in = nullptr, *share = nullptr, *mean_active = nullptr, *pooled = nullptr, *out = nullptr;
    int in_step = 0, out_step = 0;
};
