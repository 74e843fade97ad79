// Pre-norm blocks on a tile, forwards and backwards: x + attention(norm x), then + feed-forward(norm x), layer by layer.
// In a last layer that is `gathered` only some places ask: every lane's are gathered, and what follows is done for them
// alone.
#pragma once
#include "attention.h"

struct Norm {
    int weight = 0, bias = 0;
};

struct Block {
    int heads = 0, dim = 0;
    Norm norm, before;
    Matrix read, write, inner, outer;  // read: queries (scaled), keys, values
    int read_bias = -1, write_bias = -1, inner_bias = 0, outer_bias = 0;  // -1: none
};

struct Widths {  // what all blocks of all members share
    int embed, width;
    bool smooth;  // GELU, not ReLU
    Hearing hearing;
};

// A member's blocks, and how parameters follow each other in its row.
struct BlockArena : Arena {
    std::vector<Block> blocks;

  protected:
    Matrix next(int rows, int columns) {
        const int64_t at[3] = {offset, columns, 1}, *p = at;
        offset += int64_t(rows) * columns;
        return weight(p, rows, columns);
    }
    Matrix table(int rows, int columns) {  // of which only rows are read: not transposed
        Matrix m{0, rows, columns, filled(columns)};
        m.at = take(rows * m.step);
        copies.push_back({offset, {0, columns}, {1, rows, columns}, m.at, {0, m.step}, -1, {0, 0}, 1});
        offset += int64_t(rows) * columns;
        return m;
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
    void block(int heads, int dim, int E, int N, bool biased) {
        Block b;
        b.heads = heads, b.dim = dim;
        const int rows = heads * dim;
        const real scale = real(1 / std::sqrt(double(dim)));
        b.norm = norm(E);
        b.read = next(3 * rows, E);
        split(1, rows, 2 * rows, int64_t(rows) * E, rows * b.read.step, rows, scale);
        if (biased) {
            b.read_bias = next(3 * rows);
            split(2, rows, 2 * rows, rows, rows, 0, scale);
        }
        b.write = next(E, rows);
        if (biased) b.write_bias = next(E);
        b.before = norm(E);
        b.inner = next(N, E), b.inner_bias = next(N);
        b.outer = next(E, N), b.outer_bias = next(E);
        blocks.push_back(b);
    }

  private:
    int64_t offset = 0;

    // Of what was copied last, the first part (the queries) is scaled, and the rest follows as it is.
    void split(int axis, int part, int rest, int64_t there, int here, int turned, real scale) {
        Copy after = copies.back(), &before = copies.back();
        before.d[axis] = part, before.scale = scale;
        after.d[axis] = rest, after.offset += there, after.at += here;
        if (after.turned >= 0) after.turned += turned;
        copies.push_back(after);
    }
};

class Blocks : protected Attending {
  protected:
    Blocks(const Widths& w, const real* plain, const real* turned, Scratch& scratch, int batch)
        : Attending(plain, turned, scratch, batch), w(w) {}

    struct Normed {
        vec *y, *mean, *rate;
    };
    struct Kept {
        int number = 0, three_step = 0, hidden_step = 0;
        bool gathered = false;
        vec *x, *three, *heard, *active, *slope;
        Normed norm, before;
        Attention attention;
        Asked means;  // where one place of each group asks, along directions
        vec *asking, *asked, *query, *mass;  // a gathered layer's: states that ask, normed, their queries; sums of weights
        vec *keep_heard, *keep_said;  // what dropout multiplies them by, or none
    };

    // The states of `T` columns of each group enter in `state`.
    void begin(int depth, int judged) {
        step = odd(w.embed), columns = T * G, queries = judged * G;
        kept.resize(depth);
        for (int l = 0; l < depth; ++l) kept[l].number = l;
    }

    // Lane by lane, the columns of the places that ask; and back, added to them.
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

    // For every lane of a column a row of a table, and one of another where that is given, become its state; and back.
    void look_up(const int* row, const int* other, vec* to) const {
        for (int e = 0; e < w.embed; e += LANES) {
            vec v[LANES];
            for (int i = 0; i < LANES; ++i) {
                v[i] = *(const vec*)(plain + row[i] + e);
                if (other) v[i] += *(const vec*)(plain + other[i] + e);
            }
            transpose(v);
            for (int i = 0; i < LANES && e + i < w.embed; ++i) to[e + i] = v[i];
        }
    }

    void look_up_back(const int* row, const int* other, const vec* d) {
        for (int e = 0; e < w.embed; e += LANES) {
            vec v[LANES];
            for (int i = 0; i < LANES; ++i) v[i] = e + i < w.embed ? d[e + i] : vec{};
            transpose(v);
            for (int i = 0; i < LANES; ++i) {
                *(vec*)(gradient + row[i] + e) += v[i];
                if (other) *(vec*)(gradient + other[i] + e) += v[i];
            }
        }
    }

    Normed norm(const Norm& n, const vec* x, int count) {
        Normed out{scratch.take(size_t(count) * step), scratch.take(count), scratch.take(count)};
        const real over = real(1) / w.embed;
        for (int c = 0; c < count; ++c) {
            const vec* from = x + c * step;
            vec sum{}, square{};
            for (int e = 0; e < w.embed; ++e) sum += from[e];
            const vec mean = sum * over;
            for (int e = 0; e < w.embed; ++e) square += (from[e] - mean) * (from[e] - mean);
            vec rate = square * over + real(1e-5);
            for (int i = 0; i < LANES; ++i) rate[i] = 1 / std::sqrt(rate[i]);
            for (int e = 0; e < w.embed; ++e)
                out.y[c * step + e] = (from[e] - mean) * rate * plain[n.weight + e] + plain[n.bias + e];
            out.mean[c] = mean, out.rate[c] = rate;
        }
        return out;
    }

    // d becomes the gradient of what was normed; `plus` (the residual's) is added to it.
    void norm_back(const Norm& n, const Normed& k, const vec* x, int count, vec* d, const vec* plus) {
        const real over = real(1) / w.embed;
        vec* sums = scratch.take(size_t(2) * w.embed);
        for (int e = 0; e < 2 * w.embed; ++e) sums[e] = vec{};
        for (int c = 0; c < count; ++c) {
            const vec *from = x + c * step, mean = k.mean[c], rate = k.rate[c];
            vec *to = d + c * step, total{}, along{};
            for (int e = 0; e < w.embed; ++e) {
                const vec z = (from[e] - mean) * rate, dy = to[e], dz = dy * plain[n.weight + e];
                sums[e] += dy * z, sums[w.embed + e] += dy;
                total += dz, along += dz * z;
            }
            total *= over, along *= over;
            for (int e = 0; e < w.embed; ++e) {
                const vec z = (from[e] - mean) * rate, dz = to[e] * plain[n.weight + e];
                to[e] = rate * (dz - total - z * along);
                if (plus) to[e] += plus[c * step + e];
            }
        }
        for (int e = 0; e < w.embed; ++e)
            gradient[n.weight + e] += sum(sums[e]), gradient[n.bias + e] += sum(sums[w.embed + e]);
    }

    void layer(const Block& b, Kept& k) {
        hear(b, k);
        said(b, k, columns);
    }

    // Every place asks.
    void hear(const Block& b, Kept& k) {
        const int rows = b.heads * b.dim;
        k.x = state, k.gathered = false;
        k.norm = norm(b.norm, state, columns);
        k.three = map_to({turned + b.read.turned, 3 * rows, w.embed, b.read.turned_step, bias(b.read_bias)}, columns,
                         k.norm.y, step, k.three_step);
        k.attention = {b.heads, b.dim, T, k.number, w.hearing, false, k.three, k.three + rows, k.three + 2 * rows,
                       k.three_step, k.three_step};
        attend(k.attention);
        feed(b, k, state, columns);
    }

    // Keys and values of every place, queries of the gathered ones.
    void last_layer(const Block& b, Kept& k) {
        const int rows = b.heads * b.dim;
        int query_step;
        k.x = state, k.gathered = true;
        k.norm = norm(b.norm, state, columns);
        k.three = map_to({turned + b.read.turned + rows, 2 * rows, w.embed, b.read.turned_step,
                          b.read_bias < 0 ? nullptr : plain + b.read_bias + rows}, columns, k.norm.y, step,
                         k.three_step);
        k.asking = gathered(state, w.embed, step), k.asked = gathered(k.norm.y, w.embed, step);
        k.query = map_to({turned + b.read.turned, rows, w.embed, b.read.turned_step, bias(b.read_bias)}, queries,
                         k.asked, step, query_step);
        k.attention = {b.heads, b.dim, queries / G, k.number, BEFORE_ITS_PLACE, true, k.query, k.three, k.three + rows,
                       query_step, k.three_step};
        attend(k.attention);
        feed(b, k, k.asking, queries);
        said(b, k, queries);
    }

    // One place of each group asks all the others, and nobody else does: along directions.
    void asking_layer(const Block& b, Kept& k) {
        const int rows = b.heads * b.dim;
        Attention& a = k.attention;
        k.x = state, k.gathered = true;
        k.norm = norm(b.norm, state, columns);
        k.asking = gathered(state, w.embed, step), k.asked = gathered(k.norm.y, w.embed, step);
        k.query = map_to({turned + b.read.turned, rows, w.embed, b.read.turned_step, bias(b.read_bias)}, G, k.asked,
                         step, a.query_step);
        k.means = {b.heads, b.dim, k.number, k.norm.y, step, w.embed};
        direct(k.means, b.read, k.query, a.query_step);
        ask(k.means);
        const real* shift = plain + b.read_bias + 2 * rows;
        a.mixed = values(k.means, b.read, 2 * rows, drop.on ? nullptr : shift, a.mixed_step);
        if (drop.on) {  // weights that do not add up to one
            k.mass = scratch.take(size_t(b.heads) * G);
            for (int c = 0; c < b.heads * G; ++c) {
                const vec* dropped = k.means.weights + (b.heads * G + c) * k.means.wide;
                k.mass[c] = vec{};
                for (int t = 0; t < T; ++t) k.mass[c] += dropped[t];
                for (int j = c / G * b.dim; j < (c / G + 1) * b.dim; ++j)
                    a.mixed[c % G * a.mixed_step + j] += k.mass[c] * shift[j];
            }
        }
        feed(b, k, k.asking, G);
        said(b, k, G);
    }

    void asking_back(const Block& b, Kept& k) {
        const int rows = b.heads * b.dim;
        const Attention& a = k.attention;
        said_back(b, k, G);
        const vec* d_heard = feed_back(b, k, G);
        values_back(k.means, b.read, 2 * rows, d_mixed, a.mixed_step);
        vec* beside = drop.on ? scratch.take(size_t(b.heads) * G) : nullptr;
        for (int c = 0; drop.on && c < b.heads * G; ++c) {
            beside[c] = vec{};
            for (int j = c / G * b.dim; j < (c / G + 1) * b.dim; ++j) {
                vec& d = d_mixed[c % G * a.mixed_step + j];
                beside[c] += d * plain[b.read_bias + 2 * rows + j];
                d *= k.mass[c];
            }
        }
        totals(G, d_mixed, a.mixed_step, rows, gradient + b.read_bias + 2 * rows);
        vec* d_below = scratch.take(size_t(columns) * step);
        ask_back(k.means, d_below, beside);
        const vec* d_query = direct_back(k.means, b.read, k.query, a.query_step);
        weight_gradient(b.read, 0, G, d_query, a.query_step, rows, k.asked, step);
        totals(G, d_query, a.query_step, rows, gradient + b.read_bias);
        map({plain + b.read.at, w.embed, rows, b.read.step}, G, d_query, a.query_step, k.asked, step);
        d_state = d_below;
        scattered(k.asked, w.embed, d_state, step);
        norm_back(b.norm, k.norm, k.x, columns, d_state, nullptr);
        scattered(d_heard, w.embed, d_state, step);
    }

    // From what `count` columns in the states `from` mixed to their hidden units.
    void feed(const Block& b, Kept& k, const vec* from, int count) {
        const Attention& a = k.attention;
        int same;
        k.heard = map_to({turned + b.write.turned, w.embed, b.heads * b.dim, b.write.turned_step, bias(b.write_bias),
                          drop.on ? nullptr : from, step}, count, a.mixed, a.mixed_step, same);
        k.keep_heard = drop_beside(k, HEARD, count, k.heard, from);
        k.before = norm(b.before, k.heard, count);
        k.active = map_to({turned + b.inner.turned, w.width, w.embed, b.inner.turned_step, plain + b.inner_bias}, count,
                          k.before.y, step, k.hidden_step);
        k.slope = scratch.take(size_t(count) * k.hidden_step);
        for (int c = 0; c < count; ++c) {
            vec *z = k.active + c * k.hidden_step, *slope = k.slope + c * k.hidden_step;
            if (w.smooth) gelu(z, w.width, slope);
            else
                for (int j = 0; j < w.width; ++j) slope[j] = z[j] > 0 ? all(1) : vec{}, z[j] = positive(z[j]);
        }
        for (int c = 0; drop.on && c < count; ++c) {
            const words row = dropping_row(k.number, HIDDEN, c, k.gathered);
            for (int j = 0, at = c * k.hidden_step; j < w.width; ++j, ++at) {
                const vec factor = drop.unit(row, uint32_t(j));
                k.active[at] *= factor, k.slope[at] *= factor;
            }
        }
    }

    // The next states: what hidden units say beside what was heard.
    void said(const Block& b, Kept& k, int count) {
        int same;
        state = map_to({turned + b.outer.turned, w.embed, w.width, b.outer.turned_step, plain + b.outer_bias,
                        drop.on ? nullptr : k.heard, step}, count, k.active, k.hidden_step, same);
        k.keep_said = drop_beside(k, SAID, count, state, k.heard);
    }

    // From the gradient of next states to that of the hidden units' arguments, which lies in their place.
    void said_back(const Block& b, Kept& k, int count) {
        const vec* d = kept_of(k.keep_said, count, d_state);
        weight_gradient(b.outer, 0, count, d, step, w.embed, k.active, k.hidden_step);
        totals(count, d, step, w.embed, gradient + b.outer_bias);
        map({plain + b.outer.at, w.width, w.embed, b.outer.step, nullptr, nullptr, 0, false, nullptr, 0, k.slope,
             k.hidden_step}, count, d, step, k.active, k.hidden_step);
    }

    // From there to that of what was heard, which it returns.
    vec* feed_back(const Block& b, Kept& k, int count) {
        const vec* d = k.active;
        weight_gradient(b.inner, 0, count, d, k.hidden_step, w.width, k.before.y, step);
        totals(count, d, k.hidden_step, w.width, gradient + b.inner_bias);
        vec* d_heard = k.before.y;  // done with
        map({plain + b.inner.at, w.embed, w.width, b.inner.step}, count, d, k.hidden_step, d_heard, step);
        norm_back(b.before, k.before, k.heard, count, d_heard, d_state);
        const Attention& a = k.attention;
        const vec* d_write = kept_of(k.keep_heard, count, d_heard);
        weight_gradient(b.write, 0, count, d_write, step, w.embed, a.mixed, a.mixed_step);
        if (b.write_bias >= 0) totals(count, d_write, step, w.embed, gradient + b.write_bias);
        d_mixed = scratch.take(size_t(count) * a.mixed_step);
        map({plain + b.write.at, b.heads * b.dim, w.embed, b.write.step}, count, d_write, step, d_mixed, a.mixed_step);
        return d_heard;
    }

    void layer_back(const Block& b, Kept& k) {
        said_back(b, k, columns);
        hear_back(b, k);
    }

    void hear_back(const Block& b, Kept& k) {
        const int rows = b.heads * b.dim;
        const vec* d_heard = feed_back(b, k, columns);
        vec* d_three = scratch.take(size_t(columns) * k.three_step);
        attend_back(k.attention, d_mixed, k.attention.mixed_step, d_three, d_three + rows, d_three + 2 * rows);
        weight_gradient(b.read, 0, columns, d_three, k.three_step, 3 * rows, k.norm.y, step);
        if (b.read_bias >= 0) totals(columns, d_three, k.three_step, 3 * rows, gradient + b.read_bias);
        d_state = k.norm.y;  // done with
        map({plain + b.read.at, w.embed, 3 * rows, b.read.step}, columns, d_three, k.three_step, d_state, step);
        norm_back(b.norm, k.norm, k.x, columns, d_state, d_heard);
    }

    void last_back(const Block& b, Kept& k) {
        const int rows = b.heads * b.dim;
        const Attention& a = k.attention;
        said_back(b, k, queries);
        const vec* d_heard = feed_back(b, k, queries);
        vec *d_three = scratch.take(size_t(columns) * k.three_step);
        vec* d_query = scratch.take(size_t(queries) * a.query_step);
        attend_back(a, d_mixed, a.mixed_step, d_query, d_three, d_three + rows);
        weight_gradient(b.read, 0, queries, d_query, a.query_step, rows, k.asked, step);
        weight_gradient(b.read, rows, columns, d_three, k.three_step, 2 * rows, k.norm.y, step);
        if (b.read_bias >= 0) {
            totals(queries, d_query, a.query_step, rows, gradient + b.read_bias);
            totals(columns, d_three, k.three_step, 2 * rows, gradient + b.read_bias + rows);
        }
        map({plain + b.read.at, w.embed, rows, b.read.step}, queries, d_query, a.query_step, k.asked, step);
        d_state = k.norm.y;  // done with
        map({plain + b.read.at + rows * b.read.step, w.embed, 2 * rows, b.read.step}, columns, d_three, k.three_step,
            d_state, step);
        scattered(k.asked, w.embed, d_state, step);
        norm_back(b.norm, k.norm, k.x, columns, d_state, nullptr);
        scattered(d_heard, w.embed, d_state, step);
    }

    const Widths w;
    std::vector<Kept> kept;
    int columns = 0, queries = 0, step = 0;
    vec *state = nullptr, *d_state = nullptr, *d_mixed = nullptr;

  private:
    const real* bias(int at) const { return at < 0 ? nullptr : plain + at; }

    // Where units are left out: y times its factors, which it returns, beside the residual.
    vec* drop_beside(const Kept& k, Site site, int count, vec* y, const vec* residual) {
        if (!drop.on) return nullptr;
        vec* keep = scratch.take(size_t(count) * step);
        for (int c = 0; c < count; ++c) {
            const words row = dropping_row(k.number, site, c, k.gathered);
            for (int e = 0, at = c * step; e < w.embed; ++e, ++at) {
                keep[at] = drop.unit(row, uint32_t(e));
                y[at] = residual[at] + y[at] * keep[at];
            }
        }
        return keep;
    }

    const vec* kept_of(const vec* keep, int count, const vec* d) {
        if (!keep) return d;
        vec* out = scratch.take(size_t(count) * step);
        for (int c = 0; c < count; ++c)
            for (int e = 0, at = c * step; e < w.embed; ++e, ++at) out[at] = d[at] * keep[at];
        return out;
    }
};
