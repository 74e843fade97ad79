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

// exp(x) = 2^n exp(r), |r| <= log(2) / 2, by Taylor's series: 0.3466^8 / 8! = 5e-9, 0.3466^14 / 14! = 4e-18.
static inline vec exponential(vec x) {
    constexpr real low = DOUBLE ? -707 : -86, high = DOUBLE ? 709 : 88;
    constexpr real magic = DOUBLE ? real(6755399441055744.0) : real(12582912.0);  // 1.5 2^52, 1.5 2^23: rounds to whole
    constexpr real ln2 = DOUBLE ? real(6.93147180369123816490e-01) : real(0.693359375);
    constexpr real rest = DOUBLE ? real(1.90821492927058770002e-10) : real(-2.12194440e-4);
    x = x < low ? all(low) : x;
    x = x > high ? all(high) : x;
    const vec t = x * real(1.44269504088896340736) + magic, n = t - magic;
    const vec r = (x - n * ln2) - n * rest;
    constexpr int degree = DOUBLE ? 13 : 7;
    constexpr double inverse[14] = {1.,           1.,            1. / 2,        1. / 6,         1. / 24,
                                    1. / 120,     1. / 720,      1. / 5040,     1. / 40320,     1. / 362880,
                                    1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800.};
    vec p = all(real(inverse[degree]));
    for (int k = degree - 1; k >= 0; --k) p = p * r + real(inverse[k]);
    const ints two = (ints)t << (DOUBLE ? 52 : 23);
    return (vec)((ints)p + two);
}

// The normal distribution at x and its density there: gelu(x) = x at, gelu'(x) = at + x density.
// erfc(z) = exp(-z^2) t poly(t), t = 2 / (2 + z), fitted on Chebyshev points of 0 <= z <= 14 (1.3e-8, relative).
struct Normal {
    vec at, density;
};
static inline Normal normal(vec x) {
    constexpr real root_half = real(0.70710678118654752440), over = real(0.39894228040143267794);
    const vec size = x < 0 ? -x : x, bell = exponential(x * x * real(-0.5));
    vec tail;
    if (DOUBLE) {
        for (int i = 0; i < LANES; ++i) tail[i] = std::erfc(size[i] * root_half);
    } else {
        constexpr double c[11] = {0.282092616,   0.282153218,  0.246207988, 0.179564548,  0.0770515182, -0.0181915499,
                                  0.0645542243, -0.381953756, 0.444015271, -0.215417887, 0.0399238141};
        const vec t = real(2) / (real(2) + size * root_half);
        vec p = all(real(c[10]));
        for (int k = 9; k >= 0; --k) p = p * t + real(c[k]);
        tail = bell * p * t;
    }
    const vec half = tail * real(0.5);
    return {x < 0 ? half : real(1) - half, bell * over};
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
