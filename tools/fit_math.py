"""Fit and measure the minimax approximations of the SIMD math kernels.

Every polynomial or rational function below is obtained by an exchange (Remez)
iteration of our own (tools.minimax); nothing is taken from another library's tables.  The
exact values come from mpmath; the linear systems of the exchange are solved in
mpmath; the error curves are evaluated in extended precision (``longdouble``).

Where the kernel evaluates in float32, the coefficients are rounded to float32
one at a time, lowest degree first, and after each rounding the remaining ones
are fitted again, so that they absorb the rounding of the ones already fixed.

``python -m tools.fit_math`` prints one line per approximation and measurement and
writes anydml/ops/elementary_tables.py.  Units: "fit" is log2 of the largest
relative error of the exact-arithmetic approximation on its fit grid; "ulp" is
the largest error in float32 units in the last place of the exact result, with
the arithmetic simulated (float32 fma exactly, float64 by numpy).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

from tools.minimax import (
    LD,
    Array,
    D,
    F,
    M,
    fit_f32,
    fit_f64,
    fit_rational,
    fma,
    horner,
    horner64,
    nodes,
    powers,
    report_ulp,
    sample,
    tabulate,
    to_f32,
    to_ld,
)

COEFFICIENTS: dict[str, tuple[float | int, ...]] = {}
TARGET = Path(__file__).parent.parent / "anydml/ops/elementary_tables.py"


def keep(name: str, coeffs: Sequence[float | int], error: float | None = None) -> None:
    """Record one table and print its fit error."""
    COEFFICIENTS[name] = tuple(coeffs)
    tail = "" if error is None else f" fit 2^{math.log2(error):.2f}"
    print(f"{name:<22} {len(coeffs)} coefficients{tail}")


def np_erf(x: Array) -> Array:
    """Return math.erf elementwise."""
    return np.array([math.erf(v) for v in x.astype(D).tolist()])


def np_erfc(x: Array) -> Array:
    """Return math.erfc elementwise."""
    return np.array([math.erfc(v) for v in x.tolist()])


# ------------------------------------------------------------- part A: f32

LN2_HI = math.floor(math.log(2) * 2**16) / 2**16  # 16 significant bits
LN2_LO = to_f32(mp.ln(2) - M(LN2_HI))
LOG2E = to_f32(1 / mp.ln(2))


def exp_family() -> None:
    """A1 exp, A2 expm1 and the float32 exp2 used by A4 and A5."""
    keep("A1_LN2_HI_LO", (LN2_HI, LN2_LO))
    keep("A1_LOG2E", (LOG2E,))
    edge = mp.ln(2) / 2 * M("1.01")
    grid = nodes(-edge, edge)
    r = to_ld(grid)
    value = tabulate(mp.exp, grid)
    exp_c, err = fit_f32((value - 1 - r) / r**2, powers(r, 5), r**2 / value)
    keep("EXP", exp_c, err)
    value = tabulate(mp.expm1, grid)
    em1_c, err = fit_f32((value - r) / r**2, powers(r, 6), r**2 / np.abs(value))
    keep("EXPM1", em1_c, err)

    x = sample(-float(edge), float(edge))
    x = x[x != 0]
    wide, p = x.astype(D), horner(exp_c, x)
    got = fma(fma(p, x, F(1)), x, F(1))
    report_ulp("exp(r) = fma(fma(P,r,1),r,1)", x, got, np.exp(wide), mp.exp)
    report_ulp(
        "exp(r) = fma(r*r,P,r) + 1",
        x,
        fma(x * x, p, x) + F(1),
        np.exp(wide),
        mp.exp,
    )
    got = fma(x * x, horner(em1_c, x), x)
    report_ulp("expm1(r) = fma(r*r,P,r)", x, got, np.expm1(wide), mp.expm1)

    x = sample(-87.0, 88.5, 1 << 20)
    n = np.rint(x * F(LOG2E))
    r32 = fma(n, F(-LN2_LO), fma(n, F(-LN2_HI), x))
    got = fma(fma(horner(exp_c, r32), r32, F(1)), r32, F(1))
    got = np.ldexp(got, n.astype(np.int32))
    report_ulp("exp(x), whole normal range", x, got, np.exp(x.astype(D)), mp.exp)

    x = np.concatenate([sample(1e-6, 88.0), -sample(1e-6, 18.0)])
    n = np.rint(x * F(LOG2E))
    first = fma(n, F(-LN2_HI), x)
    r32 = fma(n, F(-LN2_LO), first)
    low = fma(n, F(-LN2_LO), first - r32)
    p, scale = horner(em1_c, r32), np.ldexp(F(1), n.astype(np.int32))
    near = np.expm1(x.astype(D))
    plain = fma(scale, fma(r32 * r32, p, r32), scale - F(1))
    report_ulp("expm1(x) = fma(s, fma(r*r,P,r), s-1)", x, plain, near, mp.expm1)
    split = fma(scale, fma(r32 * r32, p, low), fma(scale, r32, scale - F(1)))
    report_ulp("expm1(x) = fma(s, fma(r*r,P,rlo), fma(s,r,s-1))", x, split, near, mp.expm1)

    grid = nodes(M("-0.5"), M("0.5"))
    r = to_ld(grid)
    value = tabulate(lambda t: M(2) ** t, grid)
    two_c, err = fit_f32((value - 1) / r, powers(r, 6), r / value)
    keep("EXP2", two_c, err)
    x = sample(-0.5, 0.5)
    got = fma(horner(two_c, x), x, F(1))
    near = np.exp2(x.astype(D))
    report_ulp("exp2(r) = fma(P,r,1)", x, got, near, lambda t: M(2) ** t)


def split_m_e(u: Array) -> tuple[Array, Array]:
    """Split into m in [sqrt(1/2), sqrt(2)) and a float32 exponent."""
    m, e = np.frexp(u)
    small = m < F(math.sqrt(0.5))
    return np.where(small, m * F(2), m), (e - small).astype(F)


def log_family() -> None:
    """A3 log and log1p."""
    grid = nodes(mp.sqrt(M(1) / 2) - 1, mp.sqrt(2) - 1)
    f = to_ld(grid)
    value = tabulate(mp.log1p, grid)
    goal, weight = (value - f + f**2 / 2) / f**3, f**3 / value
    log_c, err = fit_f32(goal, powers(f, 8), weight)
    keep("LOG", log_c, err)

    def finish(f32: Array, e: Array, low: Array | np.floating[Any]) -> Array:
        square = f32 * f32
        y = fma(square, fma(horner(log_c, f32), f32, F(-0.5)), fma(e, F(LN2_LO), low))
        return fma(e, F(LN2_HI), f32 + y)

    x = np.concatenate([sample(1e-37, 3e38), np.linspace(0.35, 4.1, 1 << 20).astype(F)])
    x = np.unique(x[x != 1])
    m, e = split_m_e(x)
    got = finish(m - F(1), e, F(0))
    report_ulp("log(x), whole normal range", x, got, np.log(x.astype(D)), mp.log)

    x = np.concatenate([sample(1e-7, 1e30), np.linspace(-0.9999999, 4, 1 << 20).astype(F)])
    x = np.concatenate([x, -sample(1e-7, 0.9999999)])
    x = np.unique(x[(x != 0) & (x > -1)])
    u = F(1) + x
    lost = np.where(x >= 1, F(1) - (u - x), x - (u - F(1)))
    m, e = split_m_e(u)
    whole = e == 0
    f32 = np.where(whole, x, m - F(1))
    lost = np.where(whole, F(0), np.ldexp(lost, -e.astype(np.int32)))
    low = lost * fma(f32, f32, F(1) - f32)
    got = finish(f32, e, low)
    near = np.log1p(x.astype(D))
    report_ulp("log1p(x), residual of 1+x carried", x, got, near, mp.log1p)


def exp2_f32(y: Array) -> Array:
    """Return float32 2^y by A8."""
    n = np.rint(y)
    r = y - n
    got = fma(horner(COEFFICIENTS["EXP2"], r), r, F(1))
    return np.ldexp(got, n.astype(np.int32))


def tanh_family() -> None:
    """(1 - e) / (1 + e), e = exp(-2t): no coefficients of its own."""
    t = sample(1e-7, 9.5, 1 << 20)
    n = np.rint(t * F(-2 * LOG2E))
    r, scale = fma(n, F(-math.log(2)), -(t + t)), np.ldexp(F(1), n.astype(np.int32))
    grown = fma(r * r, horner(COEFFICIENTS["EXP"], r), r)
    got = fma(-scale, grown, F(1) - scale) / fma(scale, grown, scale + F(1))
    report_ulp("tanh = (1 - e) / (1 + e)", t, got, np.tanh(t.astype(D)), mp.tanh)


def erf_family() -> None:
    """A5: x + x*P(x^2) below a threshold, 1 - 2^Q(x) above."""
    limit, stop = 0.9375, 3.95
    grid = nodes(M("1e-8"), M(limit) ** 2)
    w = to_ld(grid)
    value = tabulate(lambda t: mp.erf(mp.sqrt(t)) / mp.sqrt(t), grid)
    low_c, err = fit_f32(value - 1, powers(w, 6), 1 / value)
    keep("ERF_SMALL", low_c, err)
    grid = nodes(M(limit), M(stop))
    x = to_ld(grid)
    value = tabulate(lambda t: mp.log(mp.erfc(t), 2), grid)
    weight = tabulate(lambda t: mp.ln(2) * mp.erfc(t) / mp.erf(t), grid)
    high_c, err = fit_f32(value, powers(x, 7), weight)
    keep("ERF_LARGE", high_c, err)
    keep("A5_THRESHOLD_CLAMP", (limit, to_f32(M(stop))))
    t = sample(1e-7, 4.5)
    near = np_erf(t)
    square = t * t
    small = fma(t, horner(low_c, square), t)
    large = F(1) - exp2_f32(horner(high_c, np.minimum(t, F(stop))))
    below = t < F(limit)
    report_ulp("erf, |x| < 0.9375", t[below], small[below], near[below], mp.erf)
    report_ulp("erf, |x| >= 0.9375", t[~below], large[~below], near[~below], mp.erf)
    print(f"    largest value {np.max(np.where(below, small, large))!r}")


def mills(t: mp.mpf) -> mp.mpf:
    """Return erfc(t/sqrt 2)/2 * exp(t^2/2)."""
    return mp.erfc(t / mp.sqrt(2)) / 2 * mp.exp(t * t / 2)


def tail(t: mp.mpf) -> mp.mpf:
    """Return the normal tail erfc(t/sqrt 2)/2."""
    return mp.erfc(t / mp.sqrt(2)) / 2


def normal_tail() -> None:
    """The normal tail as exp(-t^2/2) * P(t) / Q(t)."""
    grid = nodes(M(0), M("14.5"))
    x = to_ld(grid)
    p, q, err = fit_rational(tabulate(mills, grid), x, 5, 5, 0.5)
    q[1] = float(np.nextafter(F(q[1]), F(0)))  # with it, GELU rounds every float16 correctly
    keep("TAIL_P", p, err)
    keep("TAIL_Q", q)
    t = sample(1e-6, 14.5)
    wide = t.astype(D)
    r = np_erfc(wide / math.sqrt(2)) / 2 / np.exp(-wide * wide / 2)
    report_ulp("R = P/Q in float32", t, horner(p, t) / horner(q, t), r, mills)


def _of_root(function: Callable[[mp.mpf], mp.mpf], t: mp.mpf) -> mp.mpf:
    return function(mp.sqrt(t))


def trig_f32() -> None:
    """A7: sin and cos on |r| <= pi/4 * 1.001."""
    edge = mp.pi / 4 * M("1.001")
    grid = nodes(M("1e-8"), edge**2)
    w = to_ld(grid)
    x = np.sqrt(w)
    s, c = (tabulate(partial(_of_root, f), grid) for f in (mp.sin, mp.cos))
    sin_c, err = fit_f32((s / x - 1) / w, powers(w, 3), x * w / s)
    keep("SIN", sin_c, err)
    cos_c, err = fit_f32((c - 1 + w / 2) / w**2, powers(w, 3), w**2 / c)
    keep("COS", cos_c, err)
    t = sample(1e-6, float(edge), 1 << 20)
    z = t * t
    got = fma(t * z, horner(sin_c, z), t)
    report_ulp("sin = fma(r*z,P,r)", t, got, np.sin(t.astype(D)), mp.sin)
    near = np.cos(t.astype(D))
    q = horner(cos_c, z)
    plain = fma(z, fma(z, q, F(-0.5)), F(1))
    report_ulp("cos = fma(z, fma(z,Q,-.5), 1)", t, plain, near, mp.cos)
    half = F(0.5) * z
    top = F(1) - half
    got = top + fma(z * z, q, (F(1) - top) - half)
    report_ulp("cos = w + fma(z*z,Q,(1-w)-z/2), w=1-z/2", t, got, near, mp.cos)


def odd_f32(name: str, function: Callable[[mp.mpf], mp.mpf], edge: mp.mpf | float, count: int) -> None:
    """A8: x + x^3 * P(x^2) on |x| <= edge."""
    grid = nodes(M("1e-9"), M(edge) ** 2 * M("1.001"))
    w = to_ld(grid)
    x, value = np.sqrt(w), tabulate(partial(_of_root, function), grid)
    found, err = fit_f32((value / x - 1) / w, powers(w, count), x * w / value)
    keep(name, found, err)
    t = sample(1e-6, float(edge), 1 << 18)
    near = getattr(np, name.lower())(t.astype(D))  # some releases of mpmath call all functions f
    report_ulp(name, t, fma(t * (t * t), horner(found, t * t), t), near, function)


def odd_family() -> None:
    """A8: odd functions near zero, and acosh(1 + d) = sqrt(2d) * (1 + d * Q(d))."""
    odd_f32("SINH", mp.sinh, 1.0, 4)
    odd_f32("TAN", mp.tan, mp.pi / 4 * M("1.001"), 7)
    odd_f32("ATAN", mp.atan, 0.5, 6)
    odd_f32("ASIN", mp.asin, 0.5, 6)
    odd_f32("ASINH", mp.asinh, 0.5, 5)
    odd_f32("ATANH", mp.atanh, 0.267, 4)
    grid = nodes(M("1e-9"), M("0.5"))
    d = to_ld(grid)
    ratio = tabulate(lambda t: mp.acosh(1 + t) / mp.sqrt(2 * t), grid)
    found, err = fit_f32((ratio - 1) / d, powers(d, 6), d / ratio)
    keep("ACOSH", found, err)


def log2_of_quotient() -> None:
    """A9: 2 * atanh(s) / (s * ln 2) less its first 24 bits, near 1 and a centre whose logarithm is short."""
    bits = np.arange(F(1.395).view(np.int32), F(1.435).view(np.int32), dtype=np.int32)
    logs = np.log2(bits.view(F).astype(LD)) * 2**16
    short = np.flatnonzero(np.abs(logs - np.rint(logs)) < 2.0**-19)
    at = short[np.argmin(np.abs(logs[short] / 2**16 - 0.5))]
    centre = float(bits.view(F)[at])
    keep("A9_CENTRE", (centre, float(np.rint(logs[at])) / 2**16))
    edge = (mp.sqrt(centre) - 1) / (mp.sqrt(centre) + 1) * M("1.002")
    grid = nodes(M("1e-9"), edge**2)
    w, factor = to_ld(grid), 2 / mp.ln(2)
    value = tabulate(lambda t: 2 * mp.atanh(mp.sqrt(t)) / (mp.ln(2) * mp.sqrt(t)) - factor, grid)
    rest, err = fit_f32(value / w, powers(w, 3), w)
    keep("LOG2_OF_QUOTIENT", (to_f32(factor - M(to_f32(factor))), *rest), err)


# ------------------------------------------------------------- part B: f64


def check_f64(
    name: str,
    low: mp.mpf,
    high: mp.mpf,
    evaluate: Callable[[Array], Array],
    exact: Callable[[mp.mpf], mp.mpf],
) -> None:
    """Print the largest relative error of a float64 evaluation against mpmath."""
    x = np.linspace(float(low), float(high), 3001)
    x = x[np.abs(x) > 1e-9]
    got = evaluate(x)
    worst = mp.mpf(0)
    ulp = mp.mpf(0)
    for a, b in zip(x.tolist(), got.tolist(), strict=True):
        true = exact(M(a))
        worst = max(worst, abs(M(b) / true - 1))
        unit = M(2) ** (mp.frexp(true)[1] - 24)
        ulp = max(ulp, abs(M(float(F(b))) - true) / unit)
    print(f"    {name:<52} rel 2^{float(mp.log(worst, 2)):.2f}, f32 {float(ulp):.4f} ulp")


def odd_fit(name: str, function: Callable[[mp.mpf], mp.mpf], edge: mp.mpf, count: int) -> None:
    """Fit x*P(x^2) in float64 and check it."""
    grid = nodes(M("1e-10"), M(edge) ** 2)
    value = tabulate(lambda t: function(mp.sqrt(t)) / mp.sqrt(t), grid)
    coeffs, err = fit_f64(value, powers(to_ld(grid), count), 1 / value)
    keep(name, coeffs, err)
    check_f64(
        f"z*P(z^2), |z| <= {float(edge):.6f}",
        -edge,
        edge,
        lambda x: x * horner64(coeffs, x * x),
        function,
    )


def part_b() -> None:
    """Fit the float64 kernels."""
    near_one = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1) * M("1.0001")
    edge = M("0.5001")
    grid = nodes(-edge, edge)
    r = to_ld(grid)
    value = tabulate(lambda t: M(2) ** t, grid)
    rest, err = fit_f64((value - 1) / r, powers(r, 7), r / value)
    coeffs = [1.0, *rest]
    keep("EXP2_64", coeffs, err)
    check_f64(f"P(r), |r| <= {float(edge):.6f}", -edge, edge, partial(horner64, coeffs), lambda t: M(2) ** t)
    odd_fit("LOG64", lambda z: 2 * mp.atanh(z), near_one, 5)
    odd_fit("LOG2_64", lambda z: 2 * mp.atanh(z) / mp.ln(2), near_one, 6)


def constants() -> None:
    """Record the parts of pi/2, ln 2 and the bits of 2/pi."""
    with mp.workdps(100):
        half_pi = mp.pi / 2
        head = float(half_pi)
        keep("PIO2_HI_LO", (head, float(half_pi - M(head))))
        first = to_f32(half_pi)
        second = to_f32(half_pi - M(first))
        keep("PIO2_F32", (first, second, to_f32(half_pi - M(first) - M(second))))
        ln2 = mp.ln(2)
        keep("LN2_F64_HI_LO", (float(ln2), float(ln2 - M(float(ln2)))))
        bits = int(mp.floor(2 / mp.pi * M(2) ** 192))
        words = [bits >> shift & 0xFFFFFFFF for shift in range(160, -1, -32)]
        keep("TWO_OVER_PI", words)
        print("    most significant first: " + " ".join(f"{v:08X}" for v in words))


KEPT = (
    "EXP EXPM1 EXP2 LOG ERF_SMALL ERF_LARGE TAIL_P TAIL_Q SIN COS "
    "TAN ATAN ASIN SINH ASINH ACOSH ATANH EXP2_64 LOG64 LOG2_64 LOG2_OF_QUOTIENT TWO_OVER_PI"
).split()
"""What the functions of ops use."""


def main() -> None:
    """Fit everything, print the measurements, write ops/elementary_tables.py."""
    for step in (
        exp_family,
        log_family,
        tanh_family,
        erf_family,
        normal_tail,
        trig_f32,
        odd_family,
        log2_of_quotient,
        part_b,
        constants,
    ):
        step()
    head = (
        '"""Coefficients of elementary functions, lowest degree first; written by tools/fit_math.py."""\n\n'
    )
    tables = (f"{name} = (\n" + "".join(f"    {c!r},\n" for c in COEFFICIENTS[name]) + ")\n" for name in KEPT)
    TARGET.write_text(head + "".join(tables))


if __name__ == "__main__":
    main()
