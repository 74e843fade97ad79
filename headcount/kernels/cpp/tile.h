// The network on a tile of samples, forwards and backwards: lanes x groups of them, token by token.
#pragma once
#include "attention.h"

class Tile : Attending {
  public:
    Tile(const Shape& s, const Member& m, const real* plain, const real* turned, const Samples& x, Scratch& scratch)
        : Attending(plain, turned, scratch, s.batch), s(s), m(m), x(x) {}

    void forward(int from, int groups) {
        scratch.reset();
        first = from, G = groups, last = s.depth - 1;
        lengths(x, s.length);
        in = read(x, s.length, s.features, T, in_step);
        tokens = T * G, everyone = s.every && last > 0 ? tokens + G : tokens;
        if (s.linear) hidden = in, hidden_step = in_step;  // of which states are made
        else hidden = activated(m.encoder, s.smooth, tokens, in, in_step, hidden_step, bends);
        if (last > 0) {
            embed_step = odd(m.embed);
            state = scratch.take(size_t(everyone) * embed_step);
            const Matrix& w = m.encoder.outer;
            map({turned + w.turned, m.embed, w.columns, w.turned_step, plain + m.encoder.outer_bias}, tokens, hidden,
                hidden_step, state, embed_step);
            for (int g = tokens; g < everyone; ++g)
                for (int e = 0; e < m.embed; ++e) state[g * embed_step + e] = all(plain[m.cls + e]);
        }
        kept.resize(last);
        for (int l = 0; l < last; ++l) layer(m.layers[l], kept[l]);
        ask();
        read_out();
    }

    void backward(real* gradient) {
        this->gradient = gradient;
        read_out_back();
        ask_back();
        for (int l = last - 1; l >= 0; --l) layer_back(m.layers[l], kept[l]);
        encoder_back();
    }

  private:
    struct Kept {  // what a layer needs backwards
        vec *state, *three, *heard, *hidden, *bends;
        int three_step, hidden_step;
        Attention attention;
    };

    // Hidden units, act(W x + b); the slopes of GELU are kept beside them, those of ReLU can be seen.
    vec* activated(const Feed& f, bool smooth, int columns, const vec* x, int x_step, int& step, vec*& bends) {
        const Matrix& w = f.inner;
        vec* out = map_to({turned + w.turned, m.width, w.columns, w.turned_step, plain + f.inner_bias, nullptr, 0,
                           !smooth}, columns, x, x_step, step);
        bends = smooth ? scratch.take(size_t(columns) * step) : nullptr;
        for (int c = 0; bends && c < columns; ++c) gelu(out + c * step, m.width, bends + c * step);
        return out;
    }

    // The gradient before the activation, in place of the hidden units, from that of what `outer` makes of them.
    void activated_back(const Matrix& outer, int columns, const vec* d, int d_step, vec* hidden, int step,
                        const vec* bends) {
        map({plain + outer.at, m.width, outer.rows, outer.step, nullptr, nullptr, 0, false, bends ? nullptr : hidden,
             step, bends, step}, columns, d, d_step, hidden, step);
    }

    void layer(const Layer& layer, Kept& k) {
        const int rows = layer.heads * layer.dim, queries = everyone / G;
        k.state = state;
        const Matrix &w = layer.three, &o = layer.output, &u = layer.between.outer;
        k.three = map_to({turned + w.turned, 3 * rows, m.embed, w.turned_step}, everyone, state, embed_step,
                         k.three_step);
        k.attention = {layer.heads, layer.dim, queries, 0, ALL, false, k.three, k.three + rows, k.three + 2 * rows,
                       k.three_step, k.three_step};
        attend(k.attention);
        int step;
        k.heard = map_to({turned + o.turned, m.embed, rows, o.turned_step, nullptr, state, embed_step}, everyone,
                         k.attention.mixed, k.attention.mixed_step, step);
        k.hidden = activated(layer.between, s.smooth, everyone, k.heard, embed_step, k.hidden_step, k.bends);
        state = map_to({turned + u.turned, m.embed, m.width, u.turned_step, plain + layer.between.outer_bias, k.heard,
                        embed_step}, everyone, k.hidden, k.hidden_step, step);
    }

    // The class token asks along one direction per head, and hears one mean state per head.
    void ask() {
        const Layer& layer = m.layers[last];
        const int H = layer.heads, rows = H * layer.dim;
        const Matrix &w = layer.three, &v = last ? w : m.value, &o = layer.output;
        cls_step = odd(m.embed);
        if (s.every && last) {
            cls = state + tokens * embed_step;
        } else {
            cls = scratch.take(size_t(G) * cls_step);
            for (int g = 0; g < G; ++g)
                for (int e = 0; e < m.embed; ++e) cls[g * cls_step + e] = all(plain[m.cls + e]);
        }
        if (last) {
            asked = {H, layer.dim, last, state, embed_step, m.embed};
            query = map_to({turned + w.turned, rows, m.embed, w.turned_step}, G, cls, cls_step, query_step);
            direct(asked, w, query, query_step);
        } else {
            asked = {H, layer.dim, last, hidden, hidden_step, m.width};
            vec* u = begin(asked);
            for (int h = 0; h < H; ++h)
                for (int g = 0; g < G; ++g)
                    for (int f = 0; f < m.width; ++f)
                        u[(h * G + g) * asked.F_step + f] = all(plain[m.question.at + h * m.question.step + f]);
        }
        Attending::ask(asked);
        heads = values(asked, v, last ? 2 * rows : 0, last ? nullptr : plain + m.shift, heads_step);
        int step;
        heard = map_to({turned + o.turned, m.embed, rows, o.turned_step, nullptr, cls, cls_step}, G, heads, heads_step,
                       step);
    }

    void read_out() {
        const Matrix& o = m.read_out.outer;
        active = activated(m.read_out, true, G, heard, cls_step, before_step, slope);
        out = map_to({turned + o.turned, s.outputs, m.width, o.turned_step, plain + m.read_out.outer_bias}, G, active,
                     before_step, out_step);
        tell(x, s.outputs, out, out_step);
    }

    void read_out_back() {
        loss(x, s.outputs, out, out_step);
        const Matrix &i = m.read_out.inner, &o = m.read_out.outer;
        weight_gradient(o, 0, G, out, out_step, s.outputs, active, before_step);
        totals(G, out, out_step, s.outputs, gradient + m.read_out.outer_bias);
        vec* d = active;  // done with
        activated_back(o, G, out, out_step, d, before_step, slope);
        weight_gradient(i, 0, G, d, before_step, m.width, heard, cls_step);
        totals(G, d, before_step, m.width, gradient + m.read_out.inner_bias);
        d_heard = scratch.take(size_t(G) * cls_step);
        map({plain + i.at, m.embed, m.width, i.step}, G, d, before_step, d_heard, cls_step);
    }

    void ask_back() {
        const Layer& layer = m.layers[last];
        const int H = layer.heads, rows = H * layer.dim;
        const Matrix &w = layer.three, &v = last ? w : m.value, &o = layer.output;
        int step;
        const vec* d_heads = map_to({plain + o.at, rows, m.embed, o.step}, G, d_heard, cls_step, step);
        weight_gradient(o, 0, G, d_heard, cls_step, m.embed, heads, heads_step);
        values_back(asked, v, last ? 2 * rows : 0, d_heads, step);
        if (!last) totals(G, d_heads, step, rows, gradient + m.shift);
        d_state = scratch.take(size_t(last ? everyone : tokens) * asked.below_step);
        Attending::ask_back(asked, d_state, nullptr);
        if (last) {
            const vec* d_query = direct_back(asked, w, query, query_step);
            weight_gradient(w, 0, G, d_query, query_step, rows, cls, cls_step);
            map({plain + w.at, m.embed, rows, w.step, nullptr, d_heard, cls_step}, G, d_query, query_step, d_heard,
                cls_step);
        } else {
            for (int h = 0; h < H; ++h)
                totals(G, asked.mean + h * G * asked.F_step, asked.F_step, m.width,
                       gradient + m.question.at + h * m.question.step);
        }
        if (s.every && last)
            std::memcpy(d_state + tokens * embed_step, d_heard, sizeof(vec) * size_t(G) * cls_step);
        else
            totals(G, d_heard, cls_step, m.embed, gradient + m.cls);
    }

    void layer_back(const Layer& layer, Kept& k) {
        const Matrix &i = layer.between.inner, &u = layer.between.outer, &w = layer.three, &o = layer.output;
        const int rows = layer.heads * layer.dim;
        weight_gradient(u, 0, everyone, d_state, embed_step, m.embed, k.hidden, k.hidden_step);
        totals(everyone, d_state, embed_step, m.embed, gradient + layer.between.outer_bias);
        activated_back(u, everyone, d_state, embed_step, k.hidden, k.hidden_step, k.bends);
        weight_gradient(i, 0, everyone, k.hidden, k.hidden_step, m.width, k.heard, embed_step);
        totals(everyone, k.hidden, k.hidden_step, m.width, gradient + layer.between.inner_bias);
        map({plain + i.at, m.embed, m.width, i.step, nullptr, d_state, embed_step}, everyone, k.hidden, k.hidden_step,
            d_state, embed_step);
        weight_gradient(o, 0, everyone, d_state, embed_step, m.embed, k.attention.mixed, k.attention.mixed_step);
        int step;
        const vec* d_mixed = map_to({plain + o.at, rows, m.embed, o.step}, everyone, d_state, embed_step, step);
        vec* d_three = scratch.take(size_t(everyone) * k.three_step);
        for (int c = tokens; c < everyone; ++c)  // nobody hears the class token
            for (int r = rows; r < 3 * rows; ++r) d_three[c * k.three_step + r] = vec{};
        attend_back(k.attention, d_mixed, step, d_three, d_three + rows, d_three + 2 * rows);
        weight_gradient(w, 0, everyone, d_three, k.three_step, 3 * rows, k.state, embed_step);
        map({plain + w.at, m.embed, 3 * rows, w.step, nullptr, d_state, embed_step}, everyone, d_three, k.three_step,
            d_state, embed_step);
    }

    void encoder_back() {
        const Matrix &i = m.encoder.inner, &o = m.encoder.outer;
        vec* d = d_state;
        if (last) {
            totals(everyone - tokens, d_state + tokens * embed_step, embed_step, m.embed, gradient + m.cls);
            weight_gradient(o, 0, tokens, d_state, embed_step, m.embed, hidden, hidden_step);
            totals(tokens, d_state, embed_step, m.embed, gradient + m.encoder.outer_bias);
            if (s.linear) return;
            d = hidden;
            activated_back(o, tokens, d_state, embed_step, hidden, hidden_step, bends);
        } else {
            for (int c = 0; c < tokens; ++c)
                for (int j = 0; j < m.width; ++j) {
                    const int at = c * hidden_step + j;
                    d[at] = bends ? d[at] * bends[at] : hidden[at] > 0 ? d[at] : vec{};
                }
        }
        weight_gradient(i, 0, tokens, d, hidden_step, m.width, in, in_step);
        totals(tokens, d, hidden_step, m.width, gradient + m.encoder.inner_bias);
    }

    const Shape& s;
    const Member& m;
    const Samples& x;
    std::vector<Kept> kept;
    Asked asked{};
    int last = 0, tokens = 0, everyone = 0;
    int in_step = 0, hidden_step = 0, embed_step = 0, cls_step = 0, query_step = 0, heads_step = 0, before_step = 0,
        out_step = 0;
    vec *in = nullptr, *hidden = nullptr, *bends = nullptr, *state = nullptr, *cls = nullptr, *query = nullptr,
        *heads = nullptr, *heard = nullptr, *active = nullptr, *slope = nullptr, *out = nullptr, *d_heard = nullptr,
        *d_state = nullptr;
};
