// A causal network over letters on a tile of strings, forwards and backwards: blocks in which nobody looks ahead, and
// the cross-entropy of the judged letters. In the last layer only the judged places ask.
#pragma once
#include "blocks.h"

struct Letters {  // what all members share
    int depth, embed, width, vocab, context, length, batch;
    const int32_t* layers;  // heads and dim of each
};

struct Decoder : BlockArena {
    Matrix token, place, logits;
    Norm last;

    explicit Decoder(const Letters& s) {
        const int E = s.embed;
        token = table(s.vocab, E);
        if (s.context) place = table(s.context, E);
        for (int l = 0; l < s.depth; ++l) block(s.layers[2 * l], s.layers[2 * l + 1], E, s.width, false);
        last = norm(E);
        logits = next(s.vocab, E);
    }
};

struct Strings {  // one member's: [batch][length]
    const int64_t *ids, *targets;
    const uint8_t* judged;
    const int64_t* offset;  // where places begin, of each string
    int64_t count;  // judged places of all
};

class DecoderTile : Blocks {
  public:
    DecoderTile(const Letters& s, const Decoder& m, const real* plain, const real* turned, const Strings& x,
                Scratch& scratch)
        : Blocks({s.embed, s.width, true, BEFORE}, plain, turned, scratch, s.batch), s(s), m(m), x(x) {}

    void pass(int from, int groups, real* to) {
        scratch.reset();
        first = from, G = groups, gradient = to;
        const int most = judged_places();
        if (!T) return;  // nothing is judged
        begin(s.depth, most);
        letters();
        const int last = s.depth - 1;
        for (int l = 0; l < last; ++l) layer(m.blocks[l], kept[l]);
        last_layer(m.blocks[last], kept[last]);
        say();
        last_back(m.blocks[last], kept[last]);
        for (int l = last - 1; l >= 0; --l) layer_back(m.blocks[l], kept[l]);
        letters_back();
    }

  private:
    // T: nobody looks ahead, so after the last judged place nothing matters. Returns the most that a string is judged at.
    int judged_places() {
        int most = T = 0;
        where.clear();
        std::vector<std::vector<int>> found(size_t(G) * LANES);
        for (int g = 0; g < G; ++g)
            for (int i = 0; i < LANES && there(g, i); ++i) {
                const uint8_t* mark = x.judged + int64_t(sample(g, i)) * s.length;
                auto& mine = found[g * LANES + i];
                for (int t = 0; t < s.length; ++t)
                    if (mark[t]) mine.push_back(t), T = std::max(T, t + 1);
                most = std::max(most, int(mine.size()));
            }
        where.assign(size_t(most) * G * LANES, -1);
        for (int j = 0; j < most; ++j)
            for (size_t i = 0; i < found.size(); ++i)
                if (j < int(found[i].size())) where[size_t(j) * G * LANES + i] = found[i][j];
        return most;
    }

    template <class F>
    void each_letter(F f) {  // of every column: rows of the tables for its lanes
        for (int t = 0; t < T; ++t)
            for (int g = 0; g < G; ++g) {
                int token[LANES], place[LANES];
                for (int i = 0; i < LANES; ++i) {
                    token[i] = m.token.at + int(x.ids[int64_t(sample(g, i)) * s.length + t]) * m.token.step;
                    if (s.context) place[i] = m.place.at + (t + int(x.offset[sample(g, i)])) * m.place.step;
                }
                f(t * G + g, token, s.context ? place : nullptr);
            }
    }

    void letters() {
        state = scratch.take(size_t(columns) * step);
        each_letter([&](int column, const int* token, const int* place) {
            look_up(token, place, state + column * step);
        });
    }

    void letters_back() {
        each_letter([&](int column, const int* token, const int* place) {
            look_up_back(token, place, d_state + column * step);
        });
    }

    void say() {
        const Normed final = norm(m.last, state, queries);
        int wide;
        vec* said = map_to({turned + m.logits.turned, s.vocab, s.embed, m.logits.turned_step}, queries, final.y, step,
                           wide);
        const real share = real(1) / real(std::max<int64_t>(1, x.count));
        for (int c = 0; c < queries; ++c) {
            vec *y = said + c * wide, target, judged;
            for (int i = 0; i < LANES; ++i) {
                target[i] = real(x.targets[int64_t(sample(c % G, i)) * s.length + place_of(c, i)]);
                judged[i] = where[size_t(c) * LANES + i] < 0 ? real(0) : share;
            }
            vec most = y[0];
            for (int j = 1; j < s.vocab; ++j) most = larger(most, y[j]);
            const vec total = judged / exponentials(y, s.vocab, most);
            for (int j = 0; j < s.vocab; ++j) y[j] = y[j] * total - (target == real(j) ? judged : vec{});
        }
        weight_gradient(m.logits, 0, queries, said, wide, s.vocab, final.y, step);
        d_state = final.y;  // done with
        map({plain + m.logits.at, s.embed, s.vocab, m.logits.step}, queries, said, wide, d_state, step);
        norm_back(m.last, final, state, queries, d_state, nullptr);
    }

    const Letters& s;
    const Decoder& m;
    const Strings& x;
};
