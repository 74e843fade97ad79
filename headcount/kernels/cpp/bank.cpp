// Banks of class-token networks on a CPU: outputs, gradients and AdamW, by the functions at the end.
//
// A job is a part of a member's batch. How a batch is cut depends on its size and the member's own shape alone, and
// parts are added in order: the numbers are the same however many threads there are, and in whatever bank it is.
#include "crew.h"
#include "numbers.h"
#include "tile.h"

namespace {

constexpr int PART = 64;  // samples of a job at least

struct Cut {
    int groups, part;
    Cut(const Shape& s, const Member& m) {
        // What a token holds at once: its hidden units, and in deeper networks its states, projections and weights.
        const int64_t units = s.smooth ? 2 * m.width : m.width;  // with the slopes of GELU
        int64_t numbers = m.width + units + s.features;
        for (int l = 0; l + 1 < s.depth; ++l) {
            const int rows = m.layers[l].heads * m.layers[l].dim;
            numbers += 3 * m.embed + units + 8 * rows + m.layers[l].heads * s.length;
        }
        const int64_t room = s.depth > 1 ? 1 << 20 : 1 << 19, each = numbers * s.length * BYTES;
        groups = 1;
        while (groups * 2 * each <= room && groups * 2 * LANES <= PART) groups *= 2;
        const int tile = groups * LANES, least = std::max(PART, (s.batch + 15) / 16);
        part = (least + tile - 1) / tile * tile;
    }
    int parts(const Shape& s) const { return (s.batch + part - 1) / part; }
};

real dot(const real* a, const real* b, int n) {
    vec total{};
    for (int i = 0; i < n; i += LANES) total += *(const vec*)(a + i) * *(const vec*)(b + i);
    return sum(total);
}

void turn(const Matrix& m, const real* plain, real* turned) {
    for (int r = 0; r < m.rows; ++r)
        for (int c = 0; c < m.columns; ++c) turned[m.turned + c * m.turned_step + r] = plain[m.at + r * m.step + c];
}

// One layer alone: directions and values act on the hidden units, W2^T W_K^T W_Q cls and W_V W2, W_V b2.
void compose(const Member& m, real* plain, real* turned, const Numbers& query, const Numbers& key) {
    const Layer& l = m.layers[0];
    const Matrix &w = l.three, &o = m.encoder.outer;
    const int rows = l.heads * l.dim;
    std::memset(key.at, 0, key.bytes);
    for (int r = 0; r < rows; ++r) {
        query.at[r] = dot(plain + w.at + r * w.step, plain + m.cls, w.step);
        add(key.at + r / l.dim * w.step, plain + w.at + (rows + r) * w.step, query.at[r], w.step);
    }
    for (int h = 0; h < l.heads; ++h)
        for (int e = 0; e < m.embed; ++e)
            add(plain + m.question.at + h * m.question.step, plain + o.at + e * o.step, key.at[h * w.step + e], o.step);
    for (int r = 0; r < rows; ++r) {
        const real* value = plain + w.at + (2 * rows + r) * w.step;
        for (int e = 0; e < m.embed; ++e)
            add(plain + m.value.at + r * m.value.step, plain + o.at + e * o.step, value[e], o.step);
        plain[m.shift + r] = dot(value, plain + m.encoder.outer_bias, w.step);
    }
    turn(m.value, plain, turned);
}

void compose_back(const Member& m, const real* plain, const real* turned, const Numbers& query, const Numbers& key,
                  real* gradient) {
    const Layer& l = m.layers[0];
    const Matrix &w = l.three, &o = m.encoder.outer;
    const int rows = l.heads * l.dim;
    Numbers d_key(size_t(l.heads) * w.step);
    std::memset(d_key.at, 0, d_key.bytes);
    for (int h = 0; h < l.heads; ++h) {
        const real* d = gradient + m.question.at + h * m.question.step;
        for (int j = 0; j < m.width; ++j)
            add(d_key.at + h * w.step, turned + o.turned + j * o.turned_step, d[j], w.step);
        for (int e = 0; e < m.embed; ++e) add(gradient + o.at + e * o.step, d, key.at[h * w.step + e], o.step);
    }
    for (int r = 0; r < rows; ++r) {
        const real *d = gradient + m.value.at + r * m.value.step, d_shift = gradient[m.shift + r];
        const real* value = plain + w.at + (2 * rows + r) * w.step;
        real* d_value = gradient + w.at + (2 * rows + r) * w.step;
        for (int j = 0; j < m.width; ++j) add(d_value, turned + o.turned + j * o.turned_step, d[j], w.step);
        for (int e = 0; e < m.embed; ++e) add(gradient + o.at + e * o.step, d, value[e], o.step);
        add(d_value, plain + m.encoder.outer_bias, d_shift, w.step);
        add(gradient + m.encoder.outer_bias, value, d_shift, w.step);
        const real* d_head = d_key.at + r / l.dim * w.step;
        const real d_query = dot(plain + w.at + (rows + r) * w.step, d_head, w.step);
        add(gradient + w.at + (rows + r) * w.step, d_head, query.at[r], w.step);
        add(gradient + w.at + r * w.step, plain + m.cls, d_query, w.step);
        add(gradient + m.cls, plain + w.at + r * w.step, d_query, w.step);
    }
}

struct Work {  // a member with its matrices, and a gradient for each part of its batch
    Member member;
    Cut cut;
    Numbers plain, turned, gradients, query, key;
    Work(const Shape& s, const int32_t* sizes, const real* scale, bool back)
        : member(s, sizes, scale), cut(s, member), plain(member.size), turned(member.turned_size),
          gradients(back ? size_t(member.size) * cut.parts(s) : 0), query(member.layers[0].three.rows),
          key(size_t(member.layers[0].heads) * member.layers[0].three.step) {}
};

}  // namespace

extern "C" {

int bank_lanes() { return LANES; }

// `sizes`: depth, features, outputs, longest, batch, models, parameters of a row, class token in every layer, classes,
// threads, tokens that enter by one matrix, GELU. `members`: width, embed, then heads and dim of every layer, for each model. `rows` choose samples of
// `data[which]`; `present` may be none, its strides are those of models and samples. With `gradient`, that of the mean
// loss; with `output`, the outputs. Models that are not `active`, where that is said, are left out: zeros.
void bank_pass(const int64_t* sizes, const int64_t* place, const int32_t* members, const real* scale, const real* theta,
               const real* data, int64_t set_step, const int64_t* which, const int64_t* rows, const uint8_t* present,
               const int64_t* present_steps, const uint8_t* active, const real* target, real* output, real* gradient) {
    const Shape s{int(sizes[0]), int(sizes[1]), int(sizes[2]), int(sizes[3]), int(sizes[4]), sizes[7] != 0, sizes[10] != 0,
                  sizes[11] != 0, place};
    const int models = int(sizes[5]), threads = int(sizes[9]);
    const int64_t parameters = sizes[6];
    std::vector<Work*> work(models);
    std::vector<std::pair<int, int>> jobs;
    const auto left_out = [&](int k) { return active && !active[k]; };
    Crew::share(models, threads, [&](int k) {
        if (left_out(k)) return;
        Work* w = new Work(s, members + k * (2 + 2 * s.depth), scale + k * s.depth, gradient != nullptr);
        w->member.load(theta + k * parameters, w->plain.at, w->turned.at);
        if (s.depth == 1) compose(w->member, w->plain.at, w->turned.at, w->query, w->key);
        work[k] = w;
    });
    for (int k = 0; k < models; ++k)
        for (int p = 0; !left_out(k) && p < work[k]->cut.parts(s); ++p) jobs.push_back({k, p});
    Crew::share(int(jobs.size()), threads, [&](int number) {
        static thread_local Scratch scratch;
        const auto [k, p] = jobs[number];
        Work& w = *work[k];
        const Samples x{data + which[k] * set_step,
                        rows + int64_t(k) * s.batch,
                        target ? target + int64_t(k) * s.batch * s.outputs : nullptr,
                        present ? present + k * present_steps[0] : nullptr,
                        present ? present_steps[1] : 0,
                        output ? output + int64_t(k) * s.batch * s.outputs : nullptr,
                        sizes[8] != 0};
        real* sum = w.gradients.at + size_t(p) * w.member.size;
        if (gradient) std::memset(sum, 0, sizeof(real) * w.member.size);
        Tile tile(s, w.member, w.plain.at, w.turned.at, x, scratch);
        const int end = std::min(s.batch, (p + 1) * w.cut.part);
        for (int at = p * w.cut.part; at < end; at += w.cut.groups * LANES) {
            tile.forward(at, std::min(w.cut.groups, (end - at + LANES - 1) / LANES));
            if (gradient) tile.backward(sum);
        }
    });
    Crew::share(models, threads, [&](int k) {
        if (gradient) std::memset(gradient + k * parameters, 0, sizeof(real) * parameters);
        if (left_out(k)) return;
        Work& w = *work[k];
        if (gradient) {
            for (int p = 1; p < w.cut.parts(s); ++p)
                add(w.gradients.at, w.gradients.at + size_t(p) * w.member.size, 1, w.member.size);
            if (s.depth == 1) compose_back(w.member, w.plain.at, w.turned.at, w.query, w.key, w.gradients.at);
            w.member.store(w.gradients.at, gradient + k * parameters);
        }
        delete work[k];
    });
}

// AdamW on the rows of active members: rate and decay are numbers of a member, or of each of its parameters.
void bank_adamw(int64_t models, int64_t parameters, int64_t each, const real* lr, const real* decay, double share,
                double unbias1, double unbias2, double beta1, double beta2, double eps, const uint8_t* active,
                const real* gradient, real* first, real* second, real* theta, int64_t threads) {
    const real b1 = real(1 - beta1), b2 = real(beta2), c2 = real(1 - beta2), small = real(eps);
    const real u1 = real(unbias1), u2 = real(unbias2);
    Crew::share(int(models), int(threads), [&](int k) {
        const int64_t at = k * parameters;
        const real *g = gradient + at, *rates = lr + k * each, *decays = decay + k * each;
        real *m = first + at, *v = second + at, *p = theta + at;
        for (int64_t i = 0; i < parameters; ++i) {
            m[i] += b1 * (g[i] - m[i]);
            v[i] = b2 * v[i] + c2 * g[i] * g[i];
        }
        if (!active[k]) return;
        const real one_rate = rates[0] * real(share), one_decay = decays[0];
        for (int64_t i = 0; i < parameters; ++i) {
            const real rate = each > 1 ? rates[i] * real(share) : one_rate, fall = each > 1 ? decays[i] : one_decay;
            p[i] = p[i] * (1 - rate * fall) - rate * (m[i] / u1) / (std::sqrt(v[i] / u2) + small);
        }
    });
}
}
