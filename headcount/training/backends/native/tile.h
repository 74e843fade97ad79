// The network on a tile of samples, forwards and backwards: lanes x groups of them, token by token.
#pragma once
#include "scratch.h"

struct Samples {  // one member's share of the batch
    const real* data;  // [samples][length][features]
    const int64_t* rows;
    const real* target;  // [batch][outputs], or none
    const uint8_t* present;  // which tokens exist, or none
    int64_t present_step;  // from one sample of the batch to the next
    real* output;  // [batch][outputs], or none
    bool classes;  // cross-entropy of distributions, or the squared gap
};

class Tile : Passage {
  public:
    Tile(const Shape& s, const Member& m, const real* plain, const real* turned, const Samples& x, Scratch& scratch)
        : Passage(plain, turned, scratch), s(s), m(m), x(x) {}

    void forward(int from, int groups) {
        scratch.reset();
        first = from, G = groups, last = s.depth - 1;
        read();
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
        vec *state, *three, *weights, *mixed, *heard, *hidden, *bends;
        int three_step, mixed_step, weights_step, hidden_step;
    };

    int sample(int group, int lane) const { return std::min(first + group * LANES + lane, s.batch - 1); }
    bool there(int group, int lane) const { return first + group * LANES + lane < s.batch; }

    void read() {
        T = s.length;
        here = nullptr;
        if (x.present) lengths();
        in_step = odd(s.features);
        in = scratch.take(size_t(T) * G * in_step);
        const int count = T * s.features;
        for (int g = 0; g < G; ++g) {
            const real* from[LANES];
            for (int i = 0; i < LANES; ++i)
                from[i] = x.data + x.rows[sample(g, i)] * int64_t(s.length) * s.features;
            int at = 0;
            for (; at + LANES <= count; at += LANES) {
                vec a[LANES];
                for (int i = 0; i < LANES; ++i) a[i] = *reinterpret_cast<const loose*>(from[i] + at);
                transpose(a);
                for (int i = 0, t = at / s.features, f = at % s.features; i < LANES; ++i) {
                    in[(t * G + g) * in_step + f] = a[i];
                    if (++f == s.features) f = 0, ++t;
                }
            }
            for (; at < count; ++at) {
                vec& to = in[(at / s.features * G + g) * in_step + at % s.features];
                for (int i = 0; i < LANES; ++i) to[i] = from[i][at];
            }
        }
    }

    // T is that of the longest sample; the mask is there if one of them lacks a token.
    void lengths() {
        int longest = 1;
        bool full = true;
        for (int g = 0; g < G; ++g)
            for (int i = 0; i < LANES; ++i) {
                const uint8_t* mark = x.present + sample(g, i) * x.present_step;
                for (int t = s.length; t > longest; --t)
                    if (mark[t - 1]) longest = t;
            }
        T = longest;
        here = scratch.take(size_t(T) * G);
        for (int t = 0; t < T; ++t)
            for (int g = 0; g < G; ++g)
                for (int i = 0; i < LANES; ++i) {
                    const bool on = x.present[sample(g, i) * x.present_step + t];
                    here[t * G + g][i] = on, full = full && on;
                }
        if (full) here = nullptr;
    }

    void softmax(vec* p, int g) const {
        if (here)
            for (int t = 0; t < T; ++t) p[t] = here[t * G + g] > 0 ? p[t] : all(real(-1e30));
        vec most = p[0], total{};
        for (int t = 1; t < T; ++t) most = larger(most, p[t]);
        for (int t = 0; t < T; ++t) total += p[t] = exponential(p[t] - most);
        if (here) {
            total = vec{};
            for (int t = 0; t < T; ++t) total += p[t] = here[t * G + g] > 0 ? p[t] : vec{};
        }
        total = real(1) / total;
        for (int t = 0; t < T; ++t) p[t] *= total;
    }

    // Hidden units, act(W x + b); the slopes of GELU are kept beside them, those of ReLU can be seen.
    vec* activated(const Feed& f, bool smooth, int columns, const vec* x, int x_step, int& step, vec*& bends) {
        const Matrix& w = f.inner;
        vec* out = map_to({turned + w.turned, m.width, w.columns, w.turned_step, plain + f.inner_bias, nullptr, 0,
                           !smooth}, columns, x, x_step, step);
        bends = smooth ? scratch.take(size_t(columns) * step) : nullptr;
        for (int c = 0; bends && c < columns; ++c)
            for (int j = 0, at = c * step; j < m.width; ++j, ++at) {
                const Normal n = normal(out[at]);
                bends[at] = n.at + out[at] * n.density, out[at] *= n.at;
            }
        return out;
    }

    // The gradient before the activation, in place of the hidden units, from that of what `outer` makes of them.
    void activated_back(const Matrix& outer, int columns, const vec* d, int d_step, vec* hidden, int step,
                        const vec* bends) {
        map({plain + outer.at, m.width, outer.rows, outer.step, nullptr, nullptr, 0, false, bends ? nullptr : hidden,
             step}, columns, d, d_step, hidden, step);
        for (int c = 0; bends && c < columns; ++c)
            for (int j = 0, at = c * step; j < m.width; ++j, ++at) hidden[at] *= bends[at];
    }

    void layer(const Layer& layer, Kept& k) {
        const int rows = layer.heads * layer.dim, queries = everyone / G;
        k.state = state;
        const Matrix &w = layer.three, &o = layer.output, &u = layer.between.outer;
        k.three = map_to({turned + w.turned, 3 * rows, m.embed, w.turned_step}, everyone, state, embed_step,
                         k.three_step);
        k.weights_step = odd(T), k.mixed_step = odd(rows);
        k.weights = scratch.take(size_t(layer.heads) * G * queries * k.weights_step);
        k.mixed = scratch.take(size_t(everyone) * k.mixed_step);
        for (int h = 0; h < layer.heads; ++h)
            for (int g = 0; g < G; ++g) {
                const vec* q = k.three + g * k.three_step + h * layer.dim;
                const View key{q + rows, 1, G * k.three_step}, value{q + 2 * rows, G * k.three_step, 1};
                vec* p = k.weights + size_t(h * G + g) * queries * k.weights_step;
                vec* out = k.mixed + g * k.mixed_step + h * layer.dim;
                for (int at = 0; at < queries; at += 4) {
                    const int some = std::min(4, queries - at);
                    vec* row = p + size_t(at) * k.weights_step;
                    each(some, T, layer.dim, {q + at * G * k.three_step, G * k.three_step, 1}, key, row,
                         k.weights_step, 1);
                    for (int r = 0; r < some; ++r) softmax(row + r * k.weights_step, g);
                    each(some, layer.dim, T, {row, k.weights_step, 1}, value, out + at * G * k.mixed_step,
                         G * k.mixed_step, 1);
                }
            }
        int step;
        k.heard = map_to({turned + o.turned, m.embed, rows, o.turned_step, nullptr, state, embed_step}, everyone,
                         k.mixed, k.mixed_step, step);
        k.hidden = activated(layer.between, s.smooth, everyone, k.heard, embed_step, k.hidden_step, k.bends);
        state = map_to({turned + u.turned, m.embed, m.width, u.turned_step, plain + layer.between.outer_bias, k.heard,
                        embed_step}, everyone, k.hidden, k.hidden_step, step);
    }

    // The class token asks along one direction per head, and hears one mean state per head.
    void ask() {
        const Layer& layer = m.layers[last];
        const int H = layer.heads, rows = H * layer.dim;
        const Matrix &w = layer.three, &v = last ? w : m.value, &o = layer.output;
        F = last ? m.embed : m.width, F_step = odd(F), asked_step = odd(T);
        below = last ? state : hidden, below_step = last ? embed_step : hidden_step;
        cls_step = odd(m.embed);
        if (s.every && last) {
            cls = state + tokens * embed_step;
        } else {
            cls = scratch.take(size_t(G) * cls_step);
            for (int g = 0; g < G; ++g)
                for (int e = 0; e < m.embed; ++e) cls[g * cls_step + e] = all(plain[m.cls + e]);
        }
        along = scratch.take(size_t(2 * H) * G * F_step);  // gradients of the mean states, then the directions
        asked = scratch.take(size_t(2 * H) * G * asked_step);  // weights, then the gradients of the scores
        mean = scratch.take(size_t(H) * G * F_step);
        vec* u = along + H * G * F_step;
        if (last) {
            query = map_to({turned + w.turned, rows, m.embed, w.turned_step}, G, cls, cls_step, query_step);
            const real* key = plain + w.at + rows * w.step;
            for (int h = 0; h < H; ++h)
                map({key + h * layer.dim * w.step, F, layer.dim, w.step}, G, query + h * layer.dim, query_step,
                    u + h * G * F_step, F_step);
        } else {
            for (int h = 0; h < H; ++h)
                for (int g = 0; g < G; ++g)
                    for (int f = 0; f < F; ++f)
                        u[(h * G + g) * F_step + f] = all(plain[m.question.at + h * m.question.step + f]);
        }
        for (int g = 0; g < G; ++g) {
            vec* p = asked + g * asked_step;
            each(H, T, F, {u + g * F_step, G * F_step, 1}, {below + g * below_step, 1, G * below_step}, p,
                 G * asked_step, 1);
            for (int h = 0; h < H; ++h) softmax(p + h * G * asked_step, g);
            each(H, F, T, {p, G * asked_step, 1}, {below + g * below_step, G * below_step, 1}, mean + g * F_step,
                 G * F_step, 1);
        }
        heads_step = odd(rows);
        heads = scratch.take(size_t(G) * heads_step);
        const int value = v.turned + (last ? 2 * rows : 0);
        for (int h = 0; h < H; ++h)
            map({turned + value + h * layer.dim, layer.dim, F, v.turned_step,
                 last ? nullptr : plain + m.shift + h * layer.dim}, G, mean + h * G * F_step, F_step,
                heads + h * layer.dim, heads_step);
        int step;
        heard = map_to({turned + o.turned, m.embed, rows, o.turned_step, nullptr, cls, cls_step}, G, heads, heads_step,
                       step);
    }

    void read_out() {
        const Matrix& o = m.read_out.outer;
        active = activated(m.read_out, true, G, heard, cls_step, before_step, slope);
        out = map_to({turned + o.turned, s.outputs, m.width, o.turned_step, plain + m.read_out.outer_bias}, G, active,
                     before_step, out_step);
        if (!x.output) return;
        for (int g = 0; g < G; ++g)
            for (int i = 0; i < LANES; ++i)
                for (int j = 0; j < s.outputs && there(g, i); ++j)
                    x.output[int64_t(sample(g, i)) * s.outputs + j] = out[g * out_step + j][i];
    }

    // The gradient of the mean loss with respect to the outputs, in place of these.
    void loss() {
        for (int g = 0; g < G; ++g) {
            vec *y = out + g * out_step, share{};
            for (int i = 0; i < LANES; ++i) share[i] = there(g, i) ? real(1) / s.batch : real(0);
            vec most = y[0], total{}, mass{};
            for (int j = 1; j < s.outputs; ++j) most = larger(most, y[j]);
            if (x.classes)
                for (int j = 0; j < s.outputs; ++j) {
                    total += y[j] = exponential(y[j] - most);
                    mass += target(g, j);
                }
            for (int j = 0; j < s.outputs; ++j) {
                const vec t = target(g, j);
                y[j] = x.classes ? (y[j] * mass / total - t) * share : (y[j] - t) * (share * 2 / real(s.outputs));
            }
        }
    }

    vec target(int g, int j) const {
        vec t;
        for (int i = 0; i < LANES; ++i) t[i] = x.target[int64_t(sample(g, i)) * s.outputs + j];
        return t;
    }

    void read_out_back() {
        loss();
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
        const int H = layer.heads, n = layer.dim, rows = H * n;
        const Matrix &w = layer.three, &v = last ? w : m.value, &o = layer.output;
        int step;
        const vec* d_heads = map_to({plain + o.at, rows, m.embed, o.step}, G, d_heard, cls_step, step);
        weight_gradient(o, 0, G, d_heard, cls_step, m.embed, heads, heads_step);
        const int first_value = last ? 2 * rows : 0;
        for (int h = 0; h < H; ++h) {
            weight_gradient(v, first_value + h * n, G, d_heads + h * n, step, n, mean + h * G * F_step, F_step);
            map({plain + v.at + (first_value + h * n) * v.step, F, n, v.step}, G, d_heads + h * n, step,
                along + h * G * F_step, F_step);
        }
        if (!last) totals(G, d_heads, step, rows, gradient + m.shift);
        d_state = scratch.take(size_t(last ? everyone : tokens) * below_step);
        vec* d_along = mean;  // done with
        for (int g = 0; g < G; ++g) {
            vec *p = asked + g * asked_step, *d = p + H * G * asked_step;
            const View z{below + g * below_step, 1, G * below_step}, turned_z{z.at, z.column, 1};
            each(H, T, F, {along + g * F_step, G * F_step, 1}, z, d, G * asked_step, 1);
            for (int h = 0; h < H; ++h) slopes(p + h * G * asked_step, d + h * G * asked_step);
            each(T, F, 2 * H, {p, 1, G * asked_step}, {along + g * F_step, G * F_step, 1}, d_state + g * below_step,
                 G * below_step, 1);
            each(H, F, T, {d, G * asked_step, 1}, turned_z, d_along + g * F_step, G * F_step, 1);
        }
        if (last)
            question_back(layer, d_along);
        else
            for (int h = 0; h < H; ++h)
                totals(G, d_along + h * G * F_step, F_step, F, gradient + m.question.at + h * m.question.step);
        if (s.every && last)
            std::memcpy(d_state + tokens * below_step, d_heard, sizeof(vec) * size_t(G) * cls_step);
        else
            totals(G, d_heard, cls_step, m.embed, gradient + m.cls);
    }

    // d = p (d - sum p d)
    void slopes(const vec* p, vec* d) const {
        vec total{};
        for (int t = 0; t < T; ++t) total += p[t] * d[t];
        for (int t = 0; t < T; ++t) d[t] = p[t] * (d[t] - total);
    }

    void question_back(const Layer& layer, const vec* d_along) {
        const int n = layer.dim, rows = layer.heads * n;
        const Matrix& w = layer.three;
        vec* d_query = scratch.take(size_t(G) * query_step);
        for (int h = 0; h < layer.heads; ++h) {
            const vec* d = d_along + h * G * F_step;
            weight_gradient(w, rows + h * n, G, query + h * n, query_step, n, d, F_step);
            map({turned + w.turned + rows + h * n, n, F, w.turned_step}, G, d, F_step, d_query + h * n, query_step);
        }
        weight_gradient(w, 0, G, d_query, query_step, rows, cls, cls_step);
        map({plain + w.at, m.embed, rows, w.step, nullptr, d_heard, cls_step}, G, d_query, query_step, d_heard,
            cls_step);
    }

    void layer_back(const Layer& layer, Kept& k) {
        const Matrix &i = layer.between.inner, &u = layer.between.outer, &w = layer.three, &o = layer.output;
        const int n = layer.dim, rows = layer.heads * n, queries = everyone / G;
        weight_gradient(u, 0, everyone, d_state, embed_step, m.embed, k.hidden, k.hidden_step);
        totals(everyone, d_state, embed_step, m.embed, gradient + layer.between.outer_bias);
        activated_back(u, everyone, d_state, embed_step, k.hidden, k.hidden_step, k.bends);
        weight_gradient(i, 0, everyone, k.hidden, k.hidden_step, m.width, k.heard, embed_step);
        totals(everyone, k.hidden, k.hidden_step, m.width, gradient + layer.between.inner_bias);
        map({plain + i.at, m.embed, m.width, i.step, nullptr, d_state, embed_step}, everyone, k.hidden, k.hidden_step,
            d_state, embed_step);
        weight_gradient(o, 0, everyone, d_state, embed_step, m.embed, k.mixed, k.mixed_step);
        int step;
        const vec* d_mixed = map_to({plain + o.at, rows, m.embed, o.step}, everyone, d_state, embed_step, step);
        vec* d_three = scratch.take(size_t(everyone) * k.three_step);
        for (int c = tokens; c < everyone; ++c)  // nobody hears the class token
            for (int r = rows; r < 3 * rows; ++r) d_three[c * k.three_step + r] = vec{};
        vec* some_d = scratch.take(size_t(4) * k.weights_step);
        for (int h = 0; h < layer.heads; ++h)
            for (int g = 0; g < G; ++g) {
                const int far = G * k.three_step;
                const vec *q = k.three + g * k.three_step + h * n, *d_out = d_mixed + g * step + h * n;
                const vec* out = k.mixed + g * k.mixed_step + h * n;
                vec* d_q = d_three + g * k.three_step + h * n;
                vec* p = k.weights + size_t(h * G + g) * queries * k.weights_step;
                each(T, n, queries, {p, 1, k.weights_step}, {d_out, G * step, 1}, d_q + 2 * rows, far, 1);
                for (int at = 0; at < queries; at += 4) {
                    const int some = std::min(4, queries - at);
                    each(some, T, n, {d_out + at * G * step, G * step, 1}, {q + 2 * rows, 1, far}, some_d,
                         k.weights_step, 1);
                    for (int r = 0; r < some; ++r) {
                        const vec *a = d_out + (at + r) * G * step, *b = out + (at + r) * G * k.mixed_step;
                        vec total{}, *d = some_d + r * k.weights_step, *row = p + (at + r) * k.weights_step;
                        for (int j = 0; j < n; ++j) total += a[j] * b[j];
                        for (int t = 0; t < T; ++t) row[t] *= d[t] - total;
                    }
                    each(some, n, T, {p + at * k.weights_step, k.weights_step, 1}, {q + rows, far, 1}, d_q + at * far,
                         far, 1);
                }
                each(T, n, queries, {p, 1, k.weights_step}, {q, far, 1}, d_q + rows, far, 1);
            }
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
    int first = 0, G = 0, T = 0, last = 0, tokens = 0, everyone = 0, F = 0;
    int in_step = 0, hidden_step = 0, embed_step = 0, cls_step = 0, query_step = 0, F_step = 0, asked_step = 0,
        below_step = 0, heads_step = 0, before_step = 0, out_step = 0;
    vec *here = nullptr, *in = nullptr, *hidden = nullptr, *bends = nullptr, *state = nullptr, *cls = nullptr,
        *query = nullptr, *along = nullptr, *asked = nullptr, *mean = nullptr, *below = nullptr, *heads = nullptr,
        *heard = nullptr, *active = nullptr, *slope = nullptr, *out = nullptr, *d_heard = nullptr, *d_state = nullptr;
};
