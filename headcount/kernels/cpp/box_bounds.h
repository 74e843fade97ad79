// A bound of |network - target| on a box of tokens, for a one-layer class-token network folded into scores and values.
//
// The same arithmetic as certificates/worst_case/error_bounds.py, which says why it holds, box by box and unit by unit:
// nothing but sums is kept of the read-out's hidden units. `num` is one number on a GPU, a lane per box on a CPU. Sizes
// are constants of the program on a GPU, and arguments on a CPU. Sums and products may be contracted: that rounds less.
#pragma once

#ifdef WARPS
typedef double num;
#define BOXES DEVICE
#define ROLLED _Pragma("unroll 1")  // long loops stay loops: compiled in seconds
BOXES num each_exp(num x) { return exp(x); }
BOXES num each_erf(num x) { return erf(x); }
#else
#include <cmath>
#include <cstdint>
#ifdef __AVX512F__
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
typedef double num __attribute__((vector_size(8 * LANES)));
typedef int64_t when __attribute__((vector_size(8 * LANES)));
#define BOXES static inline
#define ROLLED
BOXES num each_exp(num x) { for (int i = 0; i < LANES; ++i) x[i] = std::exp(x[i]); return x; }
BOXES num each_erf(num x) { for (int i = 0; i < LANES; ++i) x[i] = std::erf(x[i]); return x; }
#endif

namespace box_bounds {

constexpr double UP = 1 + 1e-9, TINY = 1e-13, WIDE = 0.25, LITTLE = 1e-300, LEAST_WEIGHT = 1e-280;
constexpr double PEAK = 1.1289043, CURVED = 0.7978846, DIP = 0.1079820, LOWEST = -0.7517916, LEAST = -0.1699713;
constexpr double ROOT_HALF = 0.70710678118654752440, OVER = 0.39894228040143267794, TURN = 1.41421356237309504880;
constexpr double ULP = 1.1102230246251565e-16;
constexpr int RELU = 0, GELU = 1, LINEAR = 2;

BOXES num of(double x) { return num{} + x; }
BOXES num endless() { return of(1e300) * 1e300; }
// What is not a number stays so.
BOXES num larger(num a, num b) { return ((a >= b) | (a != a)) ? a : b; }
BOXES num smaller(num a, num b) { return ((a <= b) | (a != a)) ? a : b; }
BOXES num size(num x) { return x < 0 ? -x : x; }
BOXES num at_least(num x, double low) { return larger(x, of(low)); }
BOXES num at_most(num x, double high) { return smaller(x, of(high)); }

BOXES num gelu(num x) { return 0.5 * x * (1 + each_erf(x * ROOT_HALF)); }
BOXES num bell(num x) { return each_exp(-0.5 * x * x); }
BOXES num gelu_slope(num x) { return 0.5 * (1 + each_erf(x * ROOT_HALF)) + x * bell(x) * OVER; }

struct Range { num low, high; };

BOXES Range slope_range(num low, num high, num at_low, num at_high) {
    const num least = ((low <= -TURN) & (high >= -TURN)) ? of(1 - PEAK) : smaller(at_low, at_high) - 1e-14;
    const num most = ((low <= TURN) & (high >= TURN)) ? of(PEAK) : larger(at_low, at_high) + 1e-14;
    return {least, most};
}

BOXES Range gelu_range(num low, num high) {
    const num one = gelu(low), two = gelu(high);
    return {((low <= LOWEST + 1e-6) & (high >= LOWEST - 1e-6)) ? of(LEAST) : smaller(one, two), larger(one, two)};
}

// How far gelu(x + D) can lie below and above gelu(x) + gelu'(x) D for |D| <= r; `slope` is gelu'(x).
BOXES Range gelu_bend(num x, num r, num slope) {
    const num low = x - r, high = x + r, bell_low = bell(low), bell_high = bell(high);
    const num one = bell_low * (2 - low * low) * OVER, two = bell_high * (2 - high * high) * OVER;
    const num most = ((low <= 0) & (high >= 0)) ? of(CURVED) : at_least(larger(one, two), 0);
    const num least =
        (((low <= 2) & (high >= 2)) | ((low <= -2) & (high >= -2))) ? of(-DIP) : at_most(smaller(one, two), 0);
    const num at_low = 0.5 * (1 + each_erf(low * ROOT_HALF)) + low * bell_low * OVER;
    const num at_high = 0.5 * (1 + each_erf(high * ROOT_HALF)) + high * bell_high * OVER;
    const Range slopes = slope_range(low, high, at_low, at_high);
    const num by_slopes = r * larger(slopes.high - slope, slope - slopes.low), half = r * r / 2;
    return {-smaller((1e-14 - least) * half, by_slopes), smaller((most + 1e-14) * half, by_slopes)};
}

// The sizes, and where the numbers of a member and of a box begin.
#ifndef SIZES
struct Sizes { int T, d, H, M, N, units; };
#define SIZES const Sizes& z_
#define T_ z_.T
#define D_ z_.d
#define H_ z_.H
#define M_ z_.M
#define N_ z_.N
#define UNITS_ z_.units
#define GIVE_SIZES z_,
#define TAKE_SIZES SIZES,
#else
#define GIVE_SIZES
#define TAKE_SIZES
#endif

struct Member {
    const double *W, *b, *edge, *S, *s0, *A, *a0, *c, *w, *last;  // last: w0, slack, drift
};
BOXES Member member_at(TAKE_SIZES const double* p) {
    Member m;
    m.W = p; p += N_ * D_;
    m.b = p; p += T_ * N_;
    m.edge = p; p += N_;
    m.S = p; p += H_ * N_;
    m.s0 = p; p += H_;
    m.A = p; p += M_ * H_ * N_;  // hidden unit by hidden unit
    m.a0 = p; p += M_ * H_;
    m.c = p; p += M_;
    m.w = p; p += M_;
    m.last = p;
    return m;
}

// What is known of the tokens of a box, head by head: (heads, length) and (heads, length, token_dim).
struct Tokens {
    num *mid, *rad, *on, *off, *act;  // (length, token_dim), (length, token_dim), thrice (length, units)
    num *least, *most, *even, *at, *share_low, *share_high, *p, *p_rad;
    num *ds, *ds_rad, *reach;
    num *a, *a_rad, *da, *da_rad, *steep;  // of one hidden unit, or of their sum
    num *b, *rows, *bent, *line, *line_rad, *still, *still_rad;
};
#define SCRATCH(T, d, H, N) (5 * (T) * (d) + 3 * (T) * (N) + 11 * (H) * (T) + 6 * (H) * (T) * (d) + (H) * (N) + 2 * (T) * (d))
BOXES Tokens tokens_at(TAKE_SIZES num* p) {
    Tokens k;
    const int td = T_ * D_, tn = T_ * N_, ht = H_ * T_, htd = ht * D_;
    k.mid = p; p += td; k.rad = p; p += td; k.bent = p; p += td; k.line = p; p += td; k.line_rad = p; p += td;
    k.still = p; p += td; k.still_rad = p; p += td;
    k.on = p; p += tn; k.off = p; p += tn; k.act = p; p += tn;
    k.least = p; p += ht; k.most = p; p += ht; k.even = p; p += ht; k.at = p; p += ht; k.share_low = p; p += ht;
    k.share_high = p; p += ht; k.p = p; p += ht; k.p_rad = p; p += ht; k.a = p; p += ht; k.a_rad = p; p += ht;
    k.b = p; p += ht;
    k.ds = p; p += htd; k.ds_rad = p; p += htd; k.reach = p; p += htd; k.da = p; p += htd; k.da_rad = p; p += htd;
    k.steep = p; p += htd;
    k.rows = p;
    return k;
}

// value = offset + <row, units of token t>, and its slopes by the token.
BOXES num value_and_slopes(TAKE_SIZES const Tokens& k, const double* W, const double* row, double offset, int t,
                           num* slope, num* wide) {
    num value = of(offset);
    for (int i = 0; i < D_; ++i) slope[i] = wide[i] = of(0);
    ROLLED for (int n = 0; n < N_; ++n) {
        value += row[n] * k.act[t * N_ + n];
        for (int i = 0; i < D_; ++i) {
            const double by = row[n] * W[n * D_ + i];
            slope[i] += by * k.on[t * N_ + n];
            wide[i] += (by < 0 ? -by : by) * k.off[t * N_ + n];
        }
    }
    return value;
}
BOXES num spread(TAKE_SIZES const num* slope, const num* wide, const num* rad) {
    num moved = of(0);
    for (int i = 0; i < D_; ++i) moved += (size(slope[i]) + wide[i]) * rad[i];
    return moved * UP;
}

// The largest mean of sign * value + radius under weights between least and most: at a vertex, where the weights of all
// values from some value on are as large as may be.
BOXES num mean_top(TAKE_SIZES const num* least, const num* most, const num* value, const num* rad, double sign) {
    num best = -endless(), top = -endless();
    for (int j = 0; j < T_; ++j) top = larger(top, sign * value[j] + rad[j]);
    ROLLED for (int j = 0; j < T_; ++j) {
        const num from = sign * value[j] + rad[j];
        num above = of(0), below = of(0);
        for (int t = 0; t < T_; ++t) {
            const num v = sign * value[t] + rad[t], w = v >= from ? most[t] : least[t];
            above += w * v;
            below += w;
        }
        best = larger(best, below > LEAST_WEIGHT ? above / below : top);
    }
    return best;
}
BOXES Range mean_range(TAKE_SIZES const num* least, const num* most, const num* value, const num* rad) {
    num tiny = of(0);
    for (int t = 0; t < T_; ++t) tiny = larger(tiny, size(value[t] - rad[t]) + size(value[t] + rad[t]));
    tiny = tiny * 1e-12;
    return {-mean_top(GIVE_SIZES least, most, value, rad, -1) - tiny,
            mean_top(GIVE_SIZES least, most, value, rad, 1) + tiny};
}

// v'(x_t) + s'(x_t) (v(x_t) - mean): how a softmax mean moves with a token of weight 1; middle and radius.
BOXES void steepness(TAKE_SIZES const num* a, const num* a_rad, const num* da, const num* da_rad, const num* ds,
                     const num* ds_rad, Range mean, int t, int i, num& mid, num& rad) {
    const num apart = a[t] - (mean.low + mean.high) / 2, wide = a_rad[t] + (mean.high - mean.low) / 2;
    const int at = t * D_ + i;
    mid = da[at] + ds[at] * apart;
    rad = da_rad[at] + size(ds[at]) * wide + ds_rad[at] * (size(apart) + wide);
}
BOXES Range mean_by_slopes(TAKE_SIZES const Tokens& k, int h, num middle, num* steep) {
    const int ht = h * T_, htd = ht * D_;
    Range mean = mean_range(GIVE_SIZES k.least + ht, k.most + ht, k.a + ht, k.a_rad + ht);
    ROLLED for (int pass = 0; pass < 2; ++pass) {
        num far = of(0);
        for (int t = 0; t < T_; ++t)
            for (int i = 0; i < D_; ++i) {
                num mid, rad;
                steepness(GIVE_SIZES k.a + ht, k.a_rad + ht, k.da + htd, k.da_rad + htd, k.ds + htd, k.ds_rad + htd,
                          mean, t, i, mid, rad);
                const num each = size(mid) + rad;
                if (steep) steep[htd + t * D_ + i] = each;
                far += each * k.reach[htd + t * D_ + i];
            }
        far = far * UP;
        mean = {larger(mean.low, middle - far), smaller(mean.high, middle + far)};
    }
    return mean;
}

struct Found { num upper, least, middle; };
struct Road { num bottom, top, spread; };  // the error lies between bottom - spread and top + spread

// lo, hi, slope, slope_rad: (length, token_dim); the target at the middle, its slopes and all its values are given.
BOXES Found bound(TAKE_SIZES const double* parameters, const num* lo, const num* hi, num y, const num* slope,
                  const num* slope_rad, num values, num values_rad, num* guilt, num* scratch) {
    const Member net = member_at(GIVE_SIZES parameters);
    const Tokens k = tokens_at(GIVE_SIZES scratch);
    const double w0 = net.last[0], slack = net.last[1], drift = net.last[2];
    for (int j = 0; j < T_ * D_; ++j) {
        k.mid[j] = (lo[j] + hi[j]) / 2;
        k.rad[j] = (hi[j] - lo[j]) / 2 * UP;
        k.bent[j] = k.line[j] = k.line_rad[j] = k.still[j] = k.still_rad[j] = of(0);
    }
    for (int t = 0; t < T_; ++t)
        ROLLED for (int n = 0; n < N_; ++n) {
            num pre = of(net.b[t * N_ + n]), wide = of(net.edge[n]);
            for (int i = 0; i < D_; ++i) {
                const double by = net.W[n * D_ + i];
                pre += by * k.mid[t * D_ + i];
                wide += (by < 0 ? -by : by) * k.rad[t * D_ + i];
            }
            num low = of(1), high = of(1), act = pre;
            if (UNITS_ == RELU) {
                low = pre > wide ? of(1) : of(0);
                high = pre > -wide ? of(1) : of(0);
                act = at_least(pre, 0);
            } else if (UNITS_ == GELU) {
                const Range slopes = slope_range(pre - wide, pre + wide, gelu_slope(pre - wide), gelu_slope(pre + wide));
                low = slopes.low, high = slopes.high, act = gelu(pre);
            }
            k.on[t * N_ + n] = (low + high) / 2;
            k.off[t * N_ + n] = (high - low) / 2;
            k.act[t * N_ + n] = act;
        }
    num unknown = of(0);  // the widest range of a weight
    ROLLED for (int h = 0; h < H_; ++h) {
        num *least = k.least + h * T_, *most = k.most + h * T_, *even = k.even + h * T_, *at = k.at + h * T_;
        num *share_low = k.share_low + h * T_, *share_high = k.share_high + h * T_;
        num top = -endless(), peak = -endless();
        for (int t = 0; t < T_; ++t) {
            num *ds = k.ds + (h * T_ + t) * D_, *ds_rad = k.ds_rad + (h * T_ + t) * D_;
            const num s = value_and_slopes(GIVE_SIZES k, net.W, net.S + h * N_, net.s0[h], t, ds, ds_rad);
            even[t] = s;
            least[t] = spread(GIVE_SIZES ds, ds_rad, k.rad + t * D_);
            top = larger(top, s + least[t]);
            peak = larger(peak, s);
        }
        num all_least = of(0), all_most = of(0), all_even = of(0);
        for (int t = 0; t < T_; ++t) {
            const num s = even[t], wide = least[t];
            least[t] = each_exp(s - wide - top);
            most[t] = each_exp(s + wide - top);
            even[t] = each_exp(s - peak);
            all_least += least[t];
            all_most += most[t];
            all_even += even[t];
        }
        num sum_low = of(0), sum_high = of(0);
        for (int t = 0; t < T_; ++t) {
            even[t] = even[t] / all_even;
            const double rounding = (64 + 8 * T_) * ULP;
            const num low = least[t] / (least[t] + at_least(all_most - most[t], 0) + rounding * all_most) * (1 - 1e-12);
            const num others = at_least(all_least - least[t], 0), both = most[t] + others;
            const num high = both > LEAST_WEIGHT ? most[t] / both * (1 + 1e-12) : of(1);
            const num p = (low + high) / 2, wide = (high - low) / 2;
            k.p[h * T_ + t] = p;
            k.p_rad[h * T_ + t] = wide;
            for (int i = 0; i < D_; ++i) k.reach[(h * T_ + t) * D_ + i] = (size(p) + wide) * k.rad[t * D_ + i];
            share_low[t] = at_least(p - wide, 0);
            share_high[t] = at_most(p + wide, 1);
            sum_low += share_low[t];
            sum_high += share_high[t];
        }
        num sum_least = of(0), sum_width = of(0);
        for (int t = 0; t < T_; ++t) {
            const num low = share_low[t], high = share_high[t];
            share_low[t] = larger(low, 1 - sum_high + high - TINY);
            share_high[t] = smaller(high, 1 - sum_low + low + TINY);
            const num width = at_least(share_high[t] - share_low[t], 0);
            sum_least += share_low[t];
            sum_width += width;
            unknown = larger(unknown, width);
        }
        const num part = at_most(at_least((1 - sum_least) / at_least(sum_width, LITTLE), 0), 1);
        for (int t = 0; t < T_; ++t) at[t] = share_low[t] + part * at_least(share_high[t] - share_low[t], 0);
    }
    for (int j = 0; j < H_ * T_; ++j) {
        k.at[j] = unknown < WIDE ? k.even[j] : k.at[j];
        k.b[j] = of(0);
    }
    for (int j = 0; j < H_ * N_; ++j) k.rows[j] = of(0);
    num error = of(w0) - y, middle = error, down_bent = of(0), up_bent = of(0), out = of(w0), out_rad = of(0);
    ROLLED for (int m = 0; m < M_; ++m) {
        num hidden = of(net.c[m]), centre = hidden, away = of(0), low = hidden, high = hidden;
        ROLLED for (int h = 0; h < H_; ++h) {
            num *a = k.a + h * T_, *a_rad = k.a_rad + h * T_;
            const num *even = k.even + h * T_, *at = k.at + h * T_;
            const num *share_low = k.share_low + h * T_, *share_high = k.share_high + h * T_;
            num mean = of(0), average = of(0), widths = of(0), by_width = of(0), inner = of(0), widest = of(0), most = of(0);
            for (int t = 0; t < T_; ++t) {
                num *da = k.da + (h * T_ + t) * D_, *da_rad = k.da_rad + (h * T_ + t) * D_;
                a[t] = value_and_slopes(GIVE_SIZES k, net.W, net.A + (m * H_ + h) * N_, net.a0[m * H_ + h], t, da, da_rad);
                a_rad[t] = spread(GIVE_SIZES da, da_rad, k.rad + t * D_);
                mean += even[t] * a[t];
                average += at[t] * a[t];
                const num width = at_least(share_high[t] - share_low[t], 0) + TINY;
                widths += width;
                by_width += width * a[t];
                inner += share_high[t] * a_rad[t];
                widest = larger(widest, a_rad[t]);
                most = larger(most, size(a[t]));
            }
            const Range slopes = mean_by_slopes(GIVE_SIZES k, h, mean, k.steep);
            num down = of(0), up = of(0);
            for (int t = 0; t < T_; ++t) {
                const num apart = a[t] - by_width / widths, more = at_least(apart, 0), less = at_most(apart, 0);
                const num rise = at_least(share_high[t] - at[t], 0) + TINY, fall = at_least(at[t] - share_low[t], 0) + TINY;
                down += fall * more - rise * less;
                up += rise * more - fall * less;
            }
            inner = smaller(inner, widest) * UP + 1e-12 * most;
            const num least = larger(slopes.low, average - down * UP - inner);
            const num largest = smaller(slopes.high, average + up * UP + inner);
            away += at_least(larger(largest - average, average - least), 0);
            hidden += average;
            centre += mean;
            low += least;
            high += largest;
        }
        const double w = net.w[m], weight = w < 0 ? -w : w;
        const num steep = gelu_slope(hidden), alpha = w * steep;
        const Range bend = gelu_bend(hidden, away, steep);
        down_bent += w * (w < 0 ? bend.high : bend.low);
        up_bent += w * (w < 0 ? bend.low : bend.high);
        const Range active = gelu_range(low, high);
        out += w * (active.low + active.high) / 2;
        out_rad += weight * (active.high - active.low) / 2;
        error += w * gelu(hidden);
        middle += w * gelu(centre);
        const num blame = 2 * weight * (bend.high - bend.low) / at_least(away, LITTLE);
        ROLLED for (int h = 0; h < H_; ++h) {
            for (int t = 0; t < T_; ++t) {
                k.b[h * T_ + t] += alpha * k.a[h * T_ + t];
                for (int i = 0; i < D_; ++i)
                    k.bent[t * D_ + i] += blame * k.steep[(h * T_ + t) * D_ + i] * k.reach[(h * T_ + t) * D_ + i];
            }
            ROLLED for (int n = 0; n < N_; ++n) k.rows[h * N_ + n] += alpha * net.A[(m * H_ + h) * N_ + n];
        }
    }
    num fall = of(0), rise = of(0), lowest = of(0), highest = of(0);
    ROLLED for (int h = 0; h < H_; ++h) {
        num *b = k.a + h * T_, *b_rad = k.a_rad + h * T_;
        num mean = of(0), average = of(0);
        for (int t = 0; t < T_; ++t) {
            num *db = k.da + (h * T_ + t) * D_, *db_rad = k.da_rad + (h * T_ + t) * D_;
            for (int i = 0; i < D_; ++i) db[i] = db_rad[i] = of(0);
            ROLLED for (int n = 0; n < N_; ++n)
                for (int i = 0; i < D_; ++i) {
                    const num by = k.rows[h * N_ + n] * net.W[n * D_ + i];
                    db[i] += by * k.on[t * N_ + n];
                    db_rad[i] += size(by) * k.off[t * N_ + n];
                }
            b[t] = k.b[h * T_ + t];
            b_rad[t] = of(0);
            mean += k.even[h * T_ + t] * b[t];
            average += k.at[h * T_ + t] * b[t];
        }
        const Range alone = mean_range(GIVE_SIZES k.least + h * T_, k.most + h * T_, b, b_rad);
        fall += alone.low - average;
        rise += alone.high - average;
        for (int t = 0; t < T_; ++t)
            b_rad[t] = spread(GIVE_SIZES k.da + (h * T_ + t) * D_, k.da_rad + (h * T_ + t) * D_, k.rad + t * D_);
        const Range means = mean_by_slopes(GIVE_SIZES k, h, mean, nullptr);
        lowest += means.low - average;
        highest += means.high - average;
        for (int t = 0; t < T_; ++t)
            for (int i = 0; i < D_; ++i) {
                const int htd = h * T_ * D_, td = t * D_ + i;
                num mid, rad;
                steepness(GIVE_SIZES b, b_rad, k.da + htd, k.da_rad + htd, k.ds + htd, k.ds_rad + htd, means, t, i, mid, rad);
                const num p = k.p[h * T_ + t], wide = k.p_rad[h * T_ + t];
                k.line[td] += p * mid;
                k.line_rad[td] += size(p) * rad + wide * (size(mid) + rad);
                const num low = k.share_low[h * T_ + t], high = k.share_high[h * T_ + t];
                const num share = (low + high) / 2, vary = (high - low) / 2;
                const num db = k.da[htd + td], db_rad = k.da_rad[htd + td];
                k.still[td] += share * db;
                k.still_rad[td] += size(share) * db_rad + vary * (size(db) + db_rad);
            }
    }
    num along = of(0), fixed = of(0), radii = of(0);
    for (int j = 0; j < T_ * D_; ++j) {
        const num rad = k.rad[j], each = (size(k.line[j] - slope[j]) + k.line_rad[j] + slope_rad[j]) * rad;
        along += each;
        fixed += (size(k.still[j] - slope[j]) + k.still_rad[j] + slope_rad[j]) * rad;
        radii += rad;
        guilt[j] = each + k.bent[j];
    }
    const num spare = slack + drift * radii, least = error + down_bent * UP, most = error + up_bent * UP;
    const num around = unknown < WIDE ? along * UP + spare : endless(), shift = y - values;
    const Road roads[3] = {{least, most, around},
                           {least + fall, most + rise, fixed * UP + spare + 3 * slack},
                           {least + lowest + shift, most + highest + shift, values_rad * UP + spare + 3 * slack}};
    Found found;
    found.upper = (size(out - values) + out_rad + values_rad) * UP + slack;
    found.least = of(0);
    for (int road = 0; road < 3; ++road) {
        const num upper = larger(roads[road].top, -roads[road].bottom) + roads[road].spread;
        const num surely = larger(roads[road].bottom, -roads[road].top) - roads[road].spread;
        found.upper = ((upper < found.upper) | (found.upper != found.upper)) ? upper : found.upper;
        found.least = surely > found.least ? surely : found.least;
    }
    found.upper = found.upper == found.upper ? found.upper : endless();
    found.middle = size(middle);
    found.middle = found.middle == found.middle ? found.middle : endless();
    return found;
}

}  // namespace box_bounds
