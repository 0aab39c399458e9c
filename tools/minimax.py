"""What tools.fit_math fits with: minimax approximations by exchange (Remez), and the errors of float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp
import numpy as np
from numpy.typing import NDArray

mp.mp.dps = 40
M = mp.mpf
F = np.float32
D = np.float64
LD = np.longdouble
Array = NDArray[Any]


def to_ld(values: Sequence[mp.mpf] | Array) -> Array:
    """Convert mpmath numbers to longdouble, keeping all 64 bits."""
    if isinstance(values, np.ndarray):
        return values.astype(LD)
    return np.array([_one_ld(v) for v in values], LD)


def _one_ld(value: mp.mpf) -> np.longdouble:
    head = float(value)
    return LD(head) + LD(float(value - M(head)))


def _one_mp(value: np.longdouble) -> mp.mpf:
    head = float(value)
    return M(head) + M(float(value - LD(head)))


def nodes(low: mp.mpf, high: mp.mpf, count: int = 700) -> list[mp.mpf]:
    """Return Chebyshev-spaced points inside [low, high], ascending."""
    low, high = M(low), M(high)
    mid, half = (low + high) / 2, (high - low) / 2
    return [mid - half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]


def tabulate(function: Callable[[mp.mpf], mp.mpf], points: Sequence[mp.mpf]) -> Array:
    """Tabulate an mpmath function as longdouble."""
    return to_ld([function(p) for p in points])


def _alternation(error: Array, wanted: int) -> list[int]:
    """Pick extrema of alternating sign; drop the weakest down to ``wanted``."""
    cuts = np.flatnonzero(np.diff(np.sign(error)) != 0) + 1
    picks = [int(run[np.argmax(np.abs(error[run]))]) for run in np.split(np.arange(len(error)), cuts)]
    size = np.abs(error)
    while len(picks) > wanted:
        weak = min(
            range(len(picks) - 1),
            key=lambda i: max(size[picks[i]], size[picks[i + 1]]),
        )
        if len(picks) == wanted + 1 or weak in (0, len(picks) - 2):
            picks.pop(0 if size[picks[0]] < size[picks[-1]] else -1)
        else:
            del picks[weak : weak + 2]
    return picks


def exchange(
    target: Array, basis: Sequence[Array], weight: Array, rounds: int = 40
) -> tuple[list[mp.mpf], float]:
    """Minimise max(weight * |target - sum c_j basis_j|) over the grid.

    Returns the coefficients and the error reached.
    """
    weight = np.abs(weight)
    rows = [weight * b for b in basis]
    goal = weight * target
    count = len(basis)
    picks = [round((len(goal) - 1) * i / count) for i in range(count + 1)]
    best: tuple[list[mp.mpf], float] | None = None
    for _ in range(rounds):
        left = mp.matrix(count + 1, count + 1)
        right = mp.matrix(count + 1, 1)
        for row, at in enumerate(picks):
            for col in range(count):
                left[row, col] = _one_mp(rows[col][at])
            left[row, count] = (-1) ** row
            right[row] = _one_mp(goal[at])
        try:
            solved = mp.lu_solve(left, right)
        except ZeroDivisionError:
            break
        found = [solved[col] for col in range(count)]
        error = goal.copy()
        for value, row_values in zip(found, rows, strict=True):
            error = error - _one_ld(value) * row_values
        worst = float(np.max(np.abs(error)))
        if best is None or worst < best[1]:
            best = found, worst
        if worst <= abs(float(solved[count])) * 1.0005:
            break
        fresh = _alternation(error, count + 1)
        if len(fresh) <= count or fresh == picks:
            break
        picks = fresh
    if best is None:
        raise ArithmeticError("the exchange did not start")
    return best


def to_f32(value: mp.mpf) -> float:
    """Round to the nearest float32."""
    return float(F(float(value)))


def fit_f32(target: Array, basis: Sequence[Array], weight: Array) -> tuple[list[float], float]:
    """Fit with float32 coefficients, each rounding compensated by the rest."""
    rest = target.copy()
    out: list[float] = []
    for index in range(len(basis)):
        found, _ = exchange(rest, basis[index:], weight)
        out.append(to_f32(found[0]))
        rest = rest - LD(out[-1]) * basis[index]
    return out, float(np.max(np.abs(weight * rest)))


def fit_f64(target: Array, basis: Sequence[Array], weight: Array) -> tuple[list[float], float]:
    """Fit with coefficients rounded to float64 (rounding is negligible)."""
    found, _ = exchange(target, basis, weight)
    out = [float(c) for c in found]
    error = target - sum(LD(c) * b for c, b in zip(out, basis, strict=True))
    return out, float(np.max(np.abs(weight * error)))


def powers(x: Array, count: int) -> list[Array]:
    """Return 1, x, x^2, ... as basis functions."""
    return [x**j for j in range(count)]


def fit_rational(
    target: Array, x: Array, tops: int, bottoms: int, first: float | None
) -> tuple[list[float], list[float], float]:
    """Fit P/Q to ``target`` in relative error, Q(0) = 1, float64 coefficients.

    ``tops`` counts P's coefficients, ``bottoms`` those of Q after the 1.
    Linearised exchange: each round weights by the previous denominator.
    ``first`` fixes P(0) when given.
    """
    scale = np.max(np.abs(x))
    unit = x / scale
    weight = 1 / np.abs(target)
    top = powers(unit, tops)
    bottom = [-target * unit**k for k in range(1, bottoms + 1)]
    goal = target if first is None else target - LD(first)
    basis = (top if first is None else top[1:]) + bottom
    below = np.ones_like(target)
    best: tuple[list[float], list[float], float] | None = None
    for _ in range(8):
        found = [_one_ld(c) for c in exchange(goal, basis, weight / np.abs(below))[0]]
        head = [] if first is None else [LD(first)]
        p_unit = head + found[: len(found) - bottoms]
        q_unit = [LD(1), *found[len(found) - bottoms :]]
        below = sum(c * unit**k for k, c in enumerate(q_unit))
        p = [float(c / scale**j) for j, c in enumerate(p_unit)]
        q = [float(c / scale**j) for j, c in enumerate(q_unit)]
        ratio = sum(LD(c) * x**j for j, c in enumerate(p)) / sum(LD(c) * x**j for j, c in enumerate(q))
        worst = float(np.max(np.abs(weight * (ratio - target))))
        if best is None or worst < best[2]:
            best = p, q, worst
    if best is None:
        raise ArithmeticError("no rational fit")
    return best


# ------------------------------------------------------------- simulation


def fma(
    a: Array | float | np.floating[Any],
    b: Array | float | np.floating[Any],
    c: Array | float | np.floating[Any],
) -> Array:
    """Return the exactly rounded float32 a*b+c.

    The product is exact in float64; the sum is rounded to odd there (from the
    error term of a two-sum), which makes the second rounding harmless.
    """
    prod = np.asarray(a, F).astype(D) * np.asarray(b, F).astype(D)
    add = np.asarray(c, F).astype(D)
    total = np.atleast_1d(prod + add)
    back = total - prod
    lost = (prod - (total - back)) + (add - back)
    bits = total.view(np.int64).copy()
    even = (lost != 0) & ((bits & 1) == 0) & np.isfinite(total)
    bits += np.where(even, np.where((lost > 0) == (total > 0), 1, -1), 0)
    return bits.view(D).astype(F)


def horner(coeffs: Sequence[float], x: Array) -> Array:
    """Evaluate a float32 Horner chain of fmas."""
    value = np.full(x.shape, F(coeffs[-1]), F)
    for c in coeffs[-2::-1]:
        value = fma(value, x, F(c))
    return value


def horner64(coeffs: Sequence[float], x: Array) -> Array:
    """Evaluate a plain float64 Horner chain."""
    value = np.full(x.shape, coeffs[-1], D)
    for c in coeffs[-2::-1]:
        value = value * x + c
    return value


def sample(low: float, high: float, count: int = 1 << 19) -> Array:
    """Return float32 points, evenly and logarithmically spaced, on [low, high]."""
    even = np.linspace(low, high, count)
    if low > 0:
        even = np.concatenate([even, np.geomspace(low, high, count)])
    points = np.unique(even.astype(F))
    return points[(points >= F(low)) & (points <= F(high))]


def max_ulp(x: Array, got: Array, near: Array, exact: Callable[[mp.mpf], mp.mpf]) -> tuple[float, float]:
    """Return the largest error in float32 ulps and where it happens.

    ``near`` is a float64 reference; the 40 worst points by it are measured
    again against mpmath, and the largest of those is returned.
    """
    unit = np.ldexp(1.0, np.maximum(np.frexp(near)[1] - 24, -149))
    rough = np.abs(got.astype(D) - near) / unit
    worst, place = 0.0, 0.0
    for at in np.argsort(rough)[-40:]:
        true = exact(M(float(x[at])))
        if not true:
            continue
        exponent = max(mp.frexp(true)[1] - 24, -149)
        error = float(abs(M(float(got[at])) - true) / M(2) ** exponent)
        if error > worst:
            worst, place = error, float(x[at])
    return worst, place


def report_ulp(name: str, x: Array, got: Array, near: Array, exact: Callable[[mp.mpf], mp.mpf]) -> None:
    """Print one measurement."""
    worst, place = max_ulp(x, got, near, exact)
    print(f"    {name:<52} max {worst:.3f} ulp at {place:.8g}")
