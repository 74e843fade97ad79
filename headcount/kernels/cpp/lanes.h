// A vector of as many numbers as a register holds: one lane per sample. What is done to lanes one by one.
#pragma once
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#ifndef REAL
#define REAL float
#endif
using real = REAL;

#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif
constexpr int LANES = BYTES / int(sizeof(real));
constexpr bool DOUBLE = std::is_same<real, double>::value;

using whole = std::conditional<DOUBLE, int64_t, int32_t>::type;
typedef real vec __attribute__((vector_size(BYTES)));
typedef whole ints __attribute__((vector_size(BYTES)));
typedef real loose __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias));

static inline vec all(real x) { return x - vec{}; }
static inline vec positive(vec x) { return x < 0 ? vec{} : x; }  // relu; what is not a number stays so
static inline vec larger(vec a, vec b) { return a < b ? b : a; }

// What takes many operations in a row is done to U vectors side by side, so that none waits for the last of its own.
#define SIDE_BY_SIDE _Pragma("GCC unroll 8") for (int u = 0; u < U; ++u)

// exp(x) = 2^n exp(r), |r| <= log(2) / 2, by Taylor's series: 0.3466^8 / 8! = 5e-9, 0.3466^14 / 14! = 4e-18.
template <int U>
static inline void exponentials(vec* x) {
    constexpr real low = DOUBLE ? -707 : -86, high = DOUBLE ? 709 : 88;
    constexpr real magic = DOUBLE ? real(6755399441055744.0) : real(12582912.0);  // 1.5 2^52, 1.5 2^23: rounds to whole
    constexpr real ln2 = DOUBLE ? real(6.93147180369123816490e-01) : real(0.693359375);
    constexpr real rest = DOUBLE ? real(1.90821492927058770002e-10) : real(-2.12194440e-4);
    constexpr int degree = DOUBLE ? 13 : 7;
    constexpr double inverse[14] = {1.,           1.,            1. / 2,        1. / 6,         1. / 24,
                                    1. / 120,     1. / 720,      1. / 5040,     1. / 40320,     1. / 362880,
                                    1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800.};
    vec t[U], r[U], p[U];
    SIDE_BY_SIDE x[u] = x[u] < low ? all(low) : x[u];
    SIDE_BY_SIDE x[u] = x[u] > high ? all(high) : x[u];
    SIDE_BY_SIDE t[u] = x[u] * real(1.44269504088896340736) + magic;
    SIDE_BY_SIDE r[u] = x[u] - (t[u] - magic) * ln2;
    SIDE_BY_SIDE r[u] = r[u] - (t[u] - magic) * rest;
    SIDE_BY_SIDE p[u] = all(real(inverse[degree]));
#pragma GCC unroll 16
    for (int k = degree - 1; k >= 0; --k) SIDE_BY_SIDE p[u] = p[u] * r[u] + real(inverse[k]);
    SIDE_BY_SIDE x[u] = (vec)((ints)p[u] + ((ints)t[u] << (DOUBLE ? 52 : 23)));
}
// exp(x - most) in place of every x, and their sum.
static vec exponentials(vec* x, int count, vec most) {
    vec total{};
    int i = 0;
    for (; i < count; ++i) x[i] -= most;
    for (i = 0; i + 4 <= count; i += 4) exponentials<4>(x + i);
    for (; i < count; ++i) exponentials<1>(x + i);
    for (i = 0; i < count; ++i) total += x[i];
    return total;
}

// The normal distribution at x and its density there: gelu(x) = x at, gelu'(x) = at + x density.
// erfc(z) = exp(-z^2) t poly(t), t = 2 / (2 + z), fitted on Chebyshev points of 0 <= z <= 14 (1.3e-8, relative).
template <int U>
static inline void normals(const vec* x, vec* at, vec* density) {
    constexpr real root_half = real(0.70710678118654752440), over = real(0.39894228040143267794);
    vec size[U], bell[U], tail[U];
    SIDE_BY_SIDE size[u] = x[u] < 0 ? -x[u] : x[u];
    SIDE_BY_SIDE bell[u] = x[u] * x[u] * real(-0.5);
    exponentials<U>(bell);
    if (DOUBLE) {
        SIDE_BY_SIDE for (int i = 0; i < LANES; ++i) tail[u][i] = std::erfc(size[u][i] * root_half);
    } else {
        constexpr double c[11] = {0.282092616,   0.282153218,  0.246207988, 0.179564548,  0.0770515182, -0.0181915499,
                                  0.0645542243, -0.381953756, 0.444015271, -0.215417887, 0.0399238141};
        vec t[U], p[U];
        SIDE_BY_SIDE t[u] = real(2) / (real(2) + size[u] * root_half);
        SIDE_BY_SIDE p[u] = all(real(c[10]));
#pragma GCC unroll 16
        for (int k = 9; k >= 0; --k) SIDE_BY_SIDE p[u] = p[u] * t[u] + real(c[k]);
        SIDE_BY_SIDE tail[u] = bell[u] * p[u] * t[u];
    }
    SIDE_BY_SIDE tail[u] = tail[u] * real(0.5);
    SIDE_BY_SIDE at[u] = x[u] < 0 ? tail[u] : real(1) - tail[u];
    SIDE_BY_SIDE density[u] = bell[u] * over;
}

// gelu(z) in place of z, and its slope.
template <int U>
static inline void gelus(vec* z, vec* slope) {
    vec at[U], density[U];
    normals<U>(z, at, density);
    SIDE_BY_SIDE slope[u] = at[u] + z[u] * density[u];
    SIDE_BY_SIDE z[u] = z[u] * at[u];
}
static void gelu(vec* z, int count, vec* slope) {
    int i = 0;
    for (; i + 4 <= count; i += 4) gelus<4>(z + i, slope + i);
    for (; i < count; ++i) gelus<1>(z + i, slope + i);
}

// Lanes with bit S from b, the others from a; each from its own place, or from the partner's where that is said.
template <int S, bool PARTNER_A, bool PARTNER_B, int... I>
static inline vec exchange(vec a, vec b, std::integer_sequence<int, I...>) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, (I & S ? LANES + (PARTNER_B ? I ^ S : I) : PARTNER_A ? I ^ S : I)...);
#else
    return __builtin_shuffle(a, b, ints{(I & S ? LANES + (PARTNER_B ? I ^ S : I) : PARTNER_A ? I ^ S : I)...});
#endif
}
using Lanes = std::make_integer_sequence<int, LANES>;

// LANES vectors become one: lane i is the sum of vector i.
template <int S = LANES / 2>
static inline vec sums(vec* a) {
#pragma GCC unroll 16
    for (int i = 0; i < S; ++i)
        a[i] = exchange<S, false, false>(a[i], a[i + S], Lanes()) + exchange<S, true, true>(a[i], a[i + S], Lanes());
    if constexpr (S > 1) return sums<S / 2>(a);
    return a[0];
}

// LANES vectors as the rows of a square become its columns.
template <int S = LANES / 2>
static inline void transpose(vec* a) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i) {
        if (i & S) continue;
        const vec x = a[i], y = a[i + S];
        a[i] = exchange<S, false, true>(x, y, Lanes());
        a[i + S] = exchange<S, true, false>(x, y, Lanes());
    }
    if constexpr (S > 1) transpose<S / 2>(a);
}

static inline real sum(vec a) {
    real out = 0;
    for (int i = 0; i < LANES; ++i) out += a[i];
    return out;
}
