// A causal network over letters on a tile of strings, forwards and backwards: x + attention(norm x), then
// + feed-forward(norm x), layer by layer; the cross-entropy of the judged letters. In the last layer only the judged
// places ask: every lane's are gathered, and what follows is done for them alone.
#pragma once
#include "scratch.h"

struct Norm {
    int weight = 0, bias = 0;
};

struct DecoderLayer {
    int heads = 0, dim = 0;
    Norm norm, before;
    Matrix read, write, inner, outer;  // read: queries (scaled), keys, values
    int inner_bias = 0, outer_bias = 0;
};

struct Letters {  // what all members share
    int depth, embed, width, vocab, context, length, batch;
    const int32_t* layers;  // heads and dim of each
};

struct Decoder : Arena {
    Matrix token, place, logits;
    Norm last;
    std::vector<DecoderLayer> layers;

    explicit Decoder(const Letters& s) {
        const int E = s.embed, N = s.width;
        token = next(s.vocab, E);
        if (s.context) place = next(s.context, E);
        for (int l = 0; l < s.depth; ++l) {
            DecoderLayer d;
            d.heads = s.layers[2 * l], d.dim = s.layers[2 * l + 1];
            const int rows = d.heads * d.dim;
            d.norm = norm(E);
            d.read = next(3 * rows, E);
            Copy rest = copies.back(), &queries = copies.back();  // of which the queries are scaled
            queries.d[1] = rows, queries.scale = real(1 / std::sqrt(double(d.dim)));
            rest.offset += int64_t(rows) * E, rest.d[1] = 2 * rows;
            rest.at += rows * d.read.step, rest.turned += rows;
            copies.push_back(rest);
            d.write = next(E, rows);
            d.before = norm(E);
            d.inner = next(N, E), d.inner_bias = next(N);
            d.outer = next(E, N), d.outer_bias = next(E);
            layers.push_back(d);
        }
        last = norm(E);
        logits = next(s.vocab, E);
    }

  private:
    int64_t offset = 0;
    Matrix next(int rows, int columns) {
        const int64_t at[3] = {offset, columns, 1}, *p = at;
        offset += int64_t(rows) * columns;
        return weight(p, rows, columns);
    }
    int next(int n) {
        const int64_t at[3] = {offset, 0, 0}, *p = at;
        offset += n;
        return vector(p, n);
    }
    Norm norm(int n) {
        Norm m;
        m.weight = next(n), m.bias = next(n);
        return m;
    }
};

struct Strings {  // one member's: [batch][length]
    const int64_t *ids, *targets;
    const uint8_t* judged;
    const int64_t* offset;  // where places begin, of each string
    int64_t count;  // judged places of all
};

class DecoderTile : Passage {
  public:
    DecoderTile(const Letters& s, const Decoder& m, const real* plain, const real* turned, const Strings& x,
                Scratch& scratch)
        : Passage(plain, turned, scratch), s(s), m(m), x(x) {}

    void pass(int from, int groups, real* to) {
        scratch.reset();
        first = from, G = groups, gradient = to, step = odd(s.embed);
        judged_places();
        if (!T) return;  // nothing is judged
        columns = T * G, queries = J * G;
        letters();
        kept.resize(s.depth);
        const int last = s.depth - 1;
        for (int l = 0; l < last; ++l) layer(m.layers[l], kept[l]);
        last_layer(m.layers[last], kept[last]);
        say();
        last_back(m.layers[last], kept[last]);
        for (int l = last - 1; l >= 0; --l) layer_back(m.layers[l], kept[l]);
        letters_back();
    }

  private:
    struct Normed {
        vec *y, *mean, *rate;
    };
    struct Kept {
        vec *x, *three, *weights, *mixed, *heard, *active, *slope;
        Normed norm, before;
        int three_step, mixed_step, hidden_step;
        vec *asking, *asked, *query;  // the last layer's: states that ask, normed, and their queries
    };

    int string(int g, int i) const { return std::min(first + g * LANES + i, s.batch - 1); }
    bool there(int g, int i) const { return first + g * LANES + i < s.batch; }

    // T: nobody looks ahead, so after the last judged place nothing matters. J: the most that a string is judged at.
    void judged_places() {
        T = J = 0;
        where.clear();
        std::vector<std::vector<int>> found(size_t(G) * LANES);
        for (int g = 0; g < G; ++g)
            for (int i = 0; i < LANES && there(g, i); ++i) {
                const uint8_t* mark = x.judged + int64_t(string(g, i)) * s.length;
                auto& mine = found[g * LANES + i];
                for (int t = 0; t < s.length; ++t)
                    if (mark[t]) mine.push_back(t), T = std::max(T, t + 1);
                J = std::max(J, int(mine.size()));
            }
        where.assign(size_t(J) * G * LANES, -1);
        for (int j = 0; j < J; ++j)
            for (size_t i = 0; i < found.size(); ++i)
                if (j < int(found[i].size())) where[size_t(j) * G * LANES + i] = found[i][j];
    }

    int place_of(int query, int lane) const { return std::max(0, where[size_t(query) * LANES + lane]); }

    // Lane by lane, the columns of the judged places; and back, added to them.
    vec* gathered(const vec* from, int count, int far) {
        vec* out = scratch.take(size_t(queries) * far);
        for (int c = 0; c < queries; ++c)
            for (int i = 0; i < LANES; ++i) {
                const real* a = (const real*)(from + (place_of(c, i) * G + c % G) * far) + i;
                real* b = (real*)(out + c * far) + i;
                for (int f = 0; f < count; ++f) b[f * LANES] = a[f * LANES];
            }
        return out;
    }

    void scattered(const vec* from, int count, vec* to, int far) const {
        for (int c = 0; c < queries; ++c)
            for (int i = 0; i < LANES; ++i) {
                if (where[size_t(c) * LANES + i] < 0) continue;
                const real* a = (const real*)(from + c * far) + i;
                real* b = (real*)(to + (place_of(c, i) * G + c % G) * far) + i;
                for (int f = 0; f < count; ++f) b[f * LANES] += a[f * LANES];
            }
    }

    template <class F>
    void each_letter(F f) {  // of every column: rows of the tables for its lanes
        for (int t = 0; t < T; ++t)
            for (int g = 0; g < G; ++g) {
                int token[LANES], place[LANES];
                for (int i = 0; i < LANES; ++i) {
                    token[i] = m.token.at + int(x.ids[int64_t(string(g, i)) * s.length + t]) * m.token.step;
                    if (s.context) place[i] = m.place.at + (t + int(x.offset[string(g, i)])) * m.place.step;
                }
                f(t * G + g, token, place);
            }
    }

    void letters() {
        state = scratch.take(size_t(columns) * step);
        each_letter([&](int column, const int* token, const int* place) {
            for (int e = 0; e < s.embed; e += LANES) {
                vec v[LANES];
                for (int i = 0; i < LANES; ++i) {
                    v[i] = *(const vec*)(plain + token[i] + e);
                    if (s.context) v[i] += *(const vec*)(plain + place[i] + e);
                }
                transpose(v);
                for (int i = 0; i < LANES && e + i < s.embed; ++i) state[column * step + e + i] = v[i];
            }
        });
    }

    void letters_back() {
        each_letter([&](int column, const int* token, const int* place) {
            for (int e = 0; e < s.embed; e += LANES) {
                vec v[LANES];
                for (int i = 0; i < LANES; ++i) v[i] = e + i < s.embed ? d_state[column * step + e + i] : vec{};
                transpose(v);
                for (int i = 0; i < LANES; ++i) {
                    *(vec*)(gradient + token[i] + e) += v[i];
                    if (s.context) *(vec*)(gradient + place[i] + e) += v[i];
                }
            }
        });
    }

    Normed norm(const Norm& n, const vec* x, int count) {
        Normed out{scratch.take(size_t(count) * step), scratch.take(count), scratch.take(count)};
        const real over = real(1) / s.embed;
        for (int c = 0; c < count; ++c) {
            const vec* from = x + c * step;
            vec sum{}, square{};
            for (int e = 0; e < s.embed; ++e) sum += from[e];
            const vec mean = sum * over;
            for (int e = 0; e < s.embed; ++e) square += (from[e] - mean) * (from[e] - mean);
            vec rate = square * over + real(1e-5);
            for (int i = 0; i < LANES; ++i) rate[i] = 1 / std::sqrt(rate[i]);
            for (int e = 0; e < s.embed; ++e)
                out.y[c * step + e] = (from[e] - mean) * rate * plain[n.weight + e] + plain[n.bias + e];
            out.mean[c] = mean, out.rate[c] = rate;
        }
        return out;
    }

    // d becomes the gradient of what was normed; `plus` (the residual's) is added to it.
    void norm_back(const Norm& n, const Normed& k, const vec* x, int count, vec* d, const vec* plus) {
        const real over = real(1) / s.embed;
        vec* sums = scratch.take(size_t(2) * s.embed);
        for (int e = 0; e < 2 * s.embed; ++e) sums[e] = vec{};
        for (int c = 0; c < count; ++c) {
            const vec *from = x + c * step, mean = k.mean[c], rate = k.rate[c];
            vec *to = d + c * step, total{}, along{};
            for (int e = 0; e < s.embed; ++e) {
                const vec z = (from[e] - mean) * rate, dy = to[e], dz = dy * plain[n.weight + e];
                sums[e] += dy * z, sums[s.embed + e] += dy;
                total += dz, along += dz * z;
            }
            total *= over, along *= over;
            for (int e = 0; e < s.embed; ++e) {
                const vec z = (from[e] - mean) * rate, dz = to[e] * plain[n.weight + e];
                to[e] = rate * (dz - total - z * along);
                if (plus) to[e] += plus[c * step + e];
            }
        }
        for (int e = 0; e < s.embed; ++e)
            gradient[n.weight + e] += sum(sums[e]), gradient[n.bias + e] += sum(sums[s.embed + e]);
    }

    void layer(const DecoderLayer& l, Kept& k) {
        const int rows = l.heads * l.dim;
        k.x = state;
        k.norm = norm(l.norm, state, columns);
        k.three = map_to({turned + l.read.turned, 3 * rows, s.embed, l.read.turned_step}, columns, k.norm.y, step,
                         k.three_step);
        k.mixed_step = odd(rows);
        k.mixed = scratch.take(size_t(columns) * k.mixed_step);
        k.weights = scratch.take(size_t(l.heads) * columns * odd(T));
        for (int h = 0; h < l.heads; ++h)
            for (int g = 0; g < G; ++g) attend(l, k, h, g);
        feed(l, k, state, columns);
    }

    // From what was heard by `count` columns in the states `from` to their next states.
    void feed(const DecoderLayer& l, Kept& k, const vec* from, int count) {
        int same;
        k.heard = map_to({turned + l.write.turned, s.embed, l.heads * l.dim, l.write.turned_step, nullptr, from, step},
                         count, k.mixed, k.mixed_step, same);
        k.before = norm(l.before, k.heard, count);
        k.active = map_to({turned + l.inner.turned, s.width, s.embed, l.inner.turned_step, plain + l.inner_bias}, count,
                          k.before.y, step, k.hidden_step);
        k.slope = scratch.take(size_t(count) * k.hidden_step);
        for (int c = 0; c < count; ++c)
            for (int j = 0, at = c * k.hidden_step; j < s.width; ++j, ++at) {
                const vec z = k.active[at];
                const Normal n = normal(z);
                k.active[at] = z * n.at, k.slope[at] = n.at + z * n.density;
            }
        state = map_to({turned + l.outer.turned, s.embed, s.width, l.outer.turned_step, plain + l.outer_bias, k.heard,
                        step}, count, k.active, k.hidden_step, same);
    }

    // Keys and values of every place, queries of the judged ones; a lane hears what is not after its own place.
    void last_layer(const DecoderLayer& l, Kept& k) {
        const int n = l.dim, rows = l.heads * n, wide = odd(T);
        k.x = state;
        k.norm = norm(l.norm, state, columns);
        k.three = map_to({turned + l.read.turned + rows, 2 * rows, s.embed, l.read.turned_step}, columns, k.norm.y,
                         step, k.three_step);
        k.asking = gathered(state, s.embed, step), k.asked = gathered(k.norm.y, s.embed, step);
        k.query = map_to({turned + l.read.turned, rows, s.embed, l.read.turned_step}, queries, k.asked, step,
                         k.mixed_step);
        k.mixed = scratch.take(size_t(queries) * k.mixed_step);
        k.weights = scratch.take(size_t(l.heads) * queries * wide);
        const int far = G * k.three_step, apart = G * k.mixed_step;
        for (int h = 0; h < l.heads; ++h)
            for (int g = 0; g < G; ++g) {
                const vec* key = k.three + g * k.three_step + h * n;
                vec* p = k.weights + size_t(h * G + g) * J * wide;
                each(J, T, n, {k.query + g * k.mixed_step + h * n, apart, 1}, {key, 1, far}, p, wide, 1);
                for (int j = 0; j < J; ++j) {
                    vec place;
                    for (int i = 0; i < LANES; ++i) place[i] = real(place_of(j * G + g, i));
                    for (int t = 0; t < T; ++t) p[j * wide + t] = place < real(t) ? all(real(-1e30)) : p[j * wide + t];
                    softmax(p + j * wide, T, T);
                    for (int t = 0; t < T; ++t) p[j * wide + t] = place < real(t) ? vec{} : p[j * wide + t];
                }
                each(J, n, T, {p, wide, 1}, {key + rows, far, 1}, k.mixed + g * k.mixed_step + h * n, apart, 1);
            }
        feed(l, k, k.asking, queries);
    }

    // A place hears itself and what is before it; weights after it are zero as far as its block of four goes.
    void attend(const DecoderLayer& l, Kept& k, int h, int g) {
        const int n = l.dim, rows = l.heads * n, far = G * k.three_step, wide = odd(T);
        const vec* q = k.three + g * k.three_step + h * n;
        vec *p = k.weights + size_t(h * G + g) * T * wide, *out = k.mixed + g * k.mixed_step + h * n;
        for (int at = 0; at < T; at += 4) {
            const int some = std::min(4, T - at), heard = at + some;
            vec* row = p + at * wide;
            each(some, heard, n, {q + at * far, far, 1}, {q + rows, 1, far}, row, wide, 1);
            for (int r = 0; r < some; ++r) softmax(row + r * wide, at + r + 1, heard);
            each(some, n, heard, {row, wide, 1}, {q + 2 * rows, far, 1}, out + at * G * k.mixed_step, G * k.mixed_step,
                 1);
        }
    }

    static void softmax(vec* p, int count, int heard) {
        vec most = p[0], total{};
        for (int t = 1; t < count; ++t) most = larger(most, p[t]);
        for (int t = 0; t < count; ++t) total += p[t] = exponential(p[t] - most);
        total = real(1) / total;
        for (int t = 0; t < count; ++t) p[t] *= total;
        for (int t = count; t < heard; ++t) p[t] = vec{};
    }

    void attend_back(const DecoderLayer& l, const Kept& k, int h, int g, vec* d_three, vec* some_d) {
        const int n = l.dim, rows = l.heads * n, far = G * k.three_step, wide = odd(T), apart = G * k.mixed_step;
        const vec *q = k.three + g * k.three_step + h * n, *d_out = d_mixed + g * k.mixed_step + h * n;
        const vec* out = k.mixed + g * k.mixed_step + h * n;
        vec *p = k.weights + size_t(h * G + g) * T * wide, *d_q = d_three + g * k.three_step + h * n;
        later(n, p, {d_out, apart, 1}, d_q + 2 * rows, far);
        for (int at = 0; at < T; at += 4) {
            const int some = std::min(4, T - at), heard = at + some;
            each(some, heard, n, {d_out + at * apart, apart, 1}, {q + 2 * rows, 1, far}, some_d, wide, 1);
            for (int r = at; r < heard; ++r)
                slopes(n, heard, d_out + r * apart, out + r * apart, p + r * wide, some_d + (r - at) * wide);
            each(some, n, heard, {p + at * wide, wide, 1}, {q + rows, far, 1}, d_q + at * far, far, 1);
        }
        later(n, p, {q, far, 1}, d_q + rows, far);
    }

    // What a place gives to those that hear it: sum over t >= its own of p[t][own] b[t].
    void later(int n, const vec* p, View b, vec* out, int far) const {
        const int wide = odd(T);
        for (int at = 0; at < T; at += 4)
            each(std::min(4, T - at), n, T - at, {p + at * wide + at, 1, wide}, {b.at + at * b.row, b.row, b.column},
                 out + at * far, far, 1);
    }

    void say() {
        final = norm(m.last, state, queries);
        int wide;
        vec* said = map_to({turned + m.logits.turned, s.vocab, s.embed, m.logits.turned_step}, queries, final.y, step,
                           wide);
        const real share = real(1) / real(std::max<int64_t>(1, x.count));
        for (int c = 0; c < queries; ++c) {
            vec *y = said + c * wide, target, judged, total{};
            for (int i = 0; i < LANES; ++i) {
                target[i] = real(x.targets[int64_t(string(c % G, i)) * s.length + place_of(c, i)]);
                judged[i] = where[size_t(c) * LANES + i] < 0 ? real(0) : share;
            }
            vec most = y[0];
            for (int j = 1; j < s.vocab; ++j) most = larger(most, y[j]);
            for (int j = 0; j < s.vocab; ++j) total += y[j] = exponential(y[j] - most);
            total = judged / total;
            for (int j = 0; j < s.vocab; ++j) y[j] = y[j] * total - (target == real(j) ? judged : vec{});
        }
        weight_gradient(m.logits, 0, queries, said, wide, s.vocab, final.y, step);
        d_state = final.y;  // done with
        map({plain + m.logits.at, s.embed, s.vocab, m.logits.step}, queries, said, wide, d_state, step);
        norm_back(m.last, final, state, queries, d_state, nullptr);
    }

    // From the gradient of next states to that of what was heard, which it returns.
    vec* feed_back(const DecoderLayer& l, Kept& k, int count) {
        weight_gradient(l.outer, 0, count, d_state, step, s.embed, k.active, k.hidden_step);
        totals(count, d_state, step, s.embed, gradient + l.outer_bias);
        vec* d = k.active;  // done with
        map({plain + l.outer.at, s.width, s.embed, l.outer.step}, count, d_state, step, d, k.hidden_step);
        for (int c = 0; c < count; ++c)
            for (int j = 0, at = c * k.hidden_step; j < s.width; ++j, ++at) d[at] *= k.slope[at];
        weight_gradient(l.inner, 0, count, d, k.hidden_step, s.width, k.before.y, step);
        totals(count, d, k.hidden_step, s.width, gradient + l.inner_bias);
        vec* d_heard = k.before.y;  // done with
        map({plain + l.inner.at, s.embed, s.width, l.inner.step}, count, d, k.hidden_step, d_heard, step);
        norm_back(l.before, k.before, k.heard, count, d_heard, d_state);
        weight_gradient(l.write, 0, count, d_heard, step, s.embed, k.mixed, k.mixed_step);
        d_mixed = scratch.take(size_t(count) * k.mixed_step);
        map({plain + l.write.at, l.heads * l.dim, s.embed, l.write.step}, count, d_heard, step, d_mixed, k.mixed_step);
        return d_heard;
    }

    void layer_back(const DecoderLayer& l, Kept& k) {
        const int rows = l.heads * l.dim;
        const vec* d_heard = feed_back(l, k, columns);
        vec *d_three = scratch.take(size_t(columns) * k.three_step), *some_d = scratch.take(size_t(4) * odd(T));
        for (int h = 0; h < l.heads; ++h)
            for (int g = 0; g < G; ++g) attend_back(l, k, h, g, d_three, some_d);
        weight_gradient(l.read, 0, columns, d_three, k.three_step, 3 * rows, k.norm.y, step);
        d_state = k.norm.y;  // done with
        map({plain + l.read.at, s.embed, 3 * rows, l.read.step}, columns, d_three, k.three_step, d_state, step);
        norm_back(l.norm, k.norm, k.x, columns, d_state, d_heard);
    }

    void last_back(const DecoderLayer& l, Kept& k) {
        const int n = l.dim, rows = l.heads * n, wide = odd(T), far = G * k.three_step, apart = G * k.mixed_step;
        const vec* d_heard = feed_back(l, k, queries);
        vec *d_three = scratch.take(size_t(columns) * k.three_step), *some_d = scratch.take(size_t(J) * wide);
        vec* d_query = scratch.take(size_t(queries) * k.mixed_step);
        for (int h = 0; h < l.heads; ++h)
            for (int g = 0; g < G; ++g) {
                const int near = g * k.mixed_step + h * n;
                const vec *key = k.three + g * k.three_step + h * n, *d_out = d_mixed + near, *out = k.mixed + near;
                vec *p = k.weights + size_t(h * G + g) * J * wide, *d_key = d_three + g * k.three_step + h * n;
                each(T, n, J, {p, 1, wide}, {d_out, apart, 1}, d_key + rows, far, 1);
                each(J, T, n, {d_out, apart, 1}, {key + rows, 1, far}, some_d, wide, 1);
                for (int j = 0; j < J; ++j)
                    slopes(n, T, d_out + j * apart, out + j * apart, p + j * wide, some_d + j * wide);
                each(J, n, T, {p, wide, 1}, {key, far, 1}, d_query + near, apart, 1);
                each(T, n, J, {p, 1, wide}, {k.query + near, apart, 1}, d_key, far, 1);
            }
        weight_gradient(l.read, 0, queries, d_query, k.mixed_step, rows, k.asked, step);
        weight_gradient(l.read, rows, columns, d_three, k.three_step, 2 * rows, k.norm.y, step);
        map({plain + l.read.at, s.embed, rows, l.read.step}, queries, d_query, k.mixed_step, k.asked, step);
        d_state = k.norm.y;  // done with
        map({plain + l.read.at + rows * l.read.step, s.embed, 2 * rows, l.read.step}, columns, d_three, k.three_step,
            d_state, step);
        scattered(k.asked, s.embed, d_state, step);
        norm_back(l.norm, k.norm, k.x, columns, d_state, nullptr);
        scattered(d_heard, s.embed, d_state, step);
    }

    // p (d - sum p d) in place of p, where sum p d = <d_out, out>.
    static void slopes(int n, int heard, const vec* d_out, const vec* out, vec* p, const vec* d) {
        vec total{};
        for (int j = 0; j < n; ++j) total += d_out[j] * out[j];
        for (int t = 0; t < heard; ++t) p[t] *= d[t] - total;
    }

    const Letters& s;
    const Decoder& m;
    const Strings& x;
    std::vector<Kept> kept;
    Normed final{};
    std::vector<int> where;  // the judged places, [J][G][lane]; -1: no more of them
    int first = 0, G = 0, T = 0, J = 0, columns = 0, queries = 0, step = 0;
    vec *state = nullptr, *d_state = nullptr, *d_mixed = nullptr;
};
