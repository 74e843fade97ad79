"""To and from other people's systems: scipy.signal, python-control, diagonal layers as trained.

The kernel here is sum_i R_i lambda_i^t; theirs is D, C B, C A B, ... So R_i = c_i b_i / lambda_i for lambda_i != 0,
and what is left of D becomes the pole 0, which passes its input at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.signal
from jaxtyping import Complex, Float

from headcount.papers.ssm.layer import Numbers, complex_array
from headcount.papers.ssm.responses import gap
from headcount.papers.ssm.systems import DeepSSM, DiagonalSSM

StateSpace = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
TOLERANCE = 1e-6  # of the response, beyond which a conversion is refused rather than returned


def from_layer(poles: Numbers, inputs: Numbers, outputs: Numbers) -> DiagonalSSM:
    """A diagonal layer h(t+1) = diag(poles) h(t) + b x(t+1), y = c^T h: residues b_i c_i.

    >>> from_layer([0.5], inputs=[2], outputs=[3]).residues
    array([6.+0.j])
    """
    b, c = complex_array(inputs, "inputs", axes=1), complex_array(outputs, "outputs", axes=1)
    if len(b) != len(c):
        raise ValueError(f"{len(b)} inputs but {len(c)} outputs; each mode needs one of both")
    return DiagonalSSM(poles, b * c)


def from_continuous(poles: Numbers, inputs: Numbers, outputs: Numbers, step: float) -> DiagonalSSM:
    """A continuous diagonal layer (as S4D trains) held constant over each step: lambda = e^(a dt), b (lambda - 1)/a.

    >>> from_continuous([-1.0], inputs=[1.0], outputs=[1.0], step=np.log(2)).residues.real.round(12)
    array([0.5])
    """
    a, b = complex_array(poles, "poles", axes=1), complex_array(inputs, "inputs", axes=1)
    if not step > 0:
        raise ValueError(f"step must be above 0, got {step}")
    if (np.real(a) >= 0).any():
        raise ValueError(f"unstable: continuous poles need a negative real part, got {a[np.real(a) >= 0][0]:.6g}")
    return from_layer(np.exp(a * step), b * np.expm1(a * step) / a, outputs)


def from_zpk(zeros: Numbers, poles: Numbers, gain: complex) -> DiagonalSSM:
    """The filter k prod(z - z_i) / prod(z - p_i), as `scipy.signal` writes zeros, poles and gain.

    With w = 1/z it is k w^d prod(1 - z_i w) / prod(1 - p_i w), d = #p - #z, and the residue at p_i is the rest of it
    at w = 1/p_i. Poles must be distinct, and there must be no pure delay: no diagonal layer has one.

    >>> from_zpk([], [0.5], 1.0).impulse(3).real          # 1/(z - 1/2): a sample late
    array([0. , 1. , 0.5])
    """
    z, p = np.asarray(zeros, dtype=complex), complex_array(np.append(poles, 0), "poles", axes=1)[:-1]
    shift, z, p = len(p) - len(z), z[z != 0], p[p != 0]
    surplus = shift + len(z) - len(p)  # of the degree in w of the numerator over the denominator
    if surplus > 0:
        raise ValueError(
            f"the filter holds a delay of {surplus} samples beyond its poles (zeros of the numerator in excess), "
            "which no diagonal layer has; leave it out and delay the input instead"
        )
    if len(p) == 0:
        return DiagonalSSM([0], [gain])
    at = 1 / p
    rest = 1 - np.multiply.outer(at, p)
    np.fill_diagonal(rest, 1)
    if (rest == 0).any():
        twin = p[np.flatnonzero((rest == 0).any(axis=1))[0]]
        raise ValueError(f"pole {twin:.6g} is repeated, so the response holds t * pole^t, which no diagonal layer has")
    residues = gain * at**shift * (1 - np.multiply.outer(at, z)).prod(axis=1) / rest.prod(axis=1)
    if surplus < 0:
        return _symmetric(p, residues)
    constant = gain * np.prod(-z) / np.prod(-p)
    return _symmetric(np.append(p, 0), np.append(residues, constant))


def from_tf(b: Numbers, a: Numbers) -> DiagonalSSM:
    """The filter b(w)/a(w) in powers of w = z^-1, as `scipy.signal.lfilter(b, a, x)` reads it.

    >>> from_tf([1.0], [1.0, -0.75, 0.125]).residues.real.round(12)
    array([ 2., -1.])
    """
    b, a = (np.trim_zeros(complex_array(v, name, axes=1), "b") for v, name in ((b, "b"), (a, "a")))
    if len(a) == 0 or a[0] == 0:
        raise ValueError("a must start with a number other than 0, as lfilter asks")
    lead = np.trim_zeros(b, "f")
    if len(lead) == 0:
        return DiagonalSSM([0], [0])
    # In z: b_d z^(n-d) + ..., n the larger degree in w; leading zeros of b lower the degree in z.
    degree = max(len(a), len(b)) - 1
    in_z = np.concatenate([b, np.zeros(degree + 1 - len(b))])
    below = np.concatenate([a, np.zeros(degree + 1 - len(a))])
    system = from_zpk(np.roots(in_z), np.roots(below), complex(lead[0] / a[0]))
    _refuse_loss(system, np.asarray(scipy.signal.lfilter(b, a, np.eye(1, 4 * len(a) + 16)[0])))
    return system


def from_sos(sos: Numbers) -> DiagonalSSM:
    """Second-order sections, as `scipy.signal.sosfilt` reads them.

    >>> sos = scipy.signal.butter(4, 0.3, output="sos")
    >>> bool(np.allclose(from_sos(sos).impulse(8), scipy.signal.sosfilt(sos, np.eye(1, 8)[0])))
    True
    """
    table = np.ascontiguousarray(np.real(complex_array(sos, "sos", axes=2)))
    if table.shape[1] != 6:
        raise ValueError(f"sos must have 6 numbers per section (b0 b1 b2 a0 a1 a2), got {table.shape[1]}")
    # Section by section: scipy's own sos2zpk forgets the delay of a section that starts with b0 = 0.
    zeros, poles = (np.concatenate([np.roots(row) for row in part]) for part in (table[:, :3], table[:, 3:]))
    leads = [np.trim_zeros(row[:3], "f") for row in table]
    if any(len(lead) == 0 for lead in leads) or (table[:, 3] == 0).any():
        raise ValueError("a section of sos has no numerator at all, or a0 = 0")
    gain = np.prod([lead[0] for lead in leads]) / np.prod(table[:, 3])
    system = from_zpk(zeros, poles, complex(gain))
    _refuse_loss(system, scipy.signal.sosfilt(table, np.eye(1, 8 * len(table) + 16)[0]))
    return system


def from_state_space(a: Numbers, b: Numbers, c: Numbers, d: Numbers) -> DiagonalSSM:
    """s(t+1) = A s(t) + B x(t), y = C s + D x with one input and one output; A must be diagonalisable."""
    a, b, c, d = (np.atleast_2d(np.asarray(v, dtype=complex)) for v in (a, b, c, d))
    n = len(a)
    if a.shape != (n, n) or b.shape != (n, 1) or c.shape != (1, n) or d.shape != (1, 1):
        shapes = ", ".join(str(v.shape) for v in (a, b, c, d))
        raise ValueError(f"A, B, C, D of one input and one output have shapes (n,n), (n,1), (1,n), (1,1); got {shapes}")
    poles, vectors = np.linalg.eig(a)
    gains = (c @ vectors)[0] * np.linalg.lstsq(vectors, b, rcond=None)[0][:, 0]
    live = np.abs(poles) > 1e-12  # a tiny eigenvalue is a delay; the check below refuses it if it is excited
    residues = gains[live] / poles[live]
    system = _symmetric(np.append(poles[live], 0), np.append(residues, d[0, 0] - residues.sum()))
    _refuse_loss(system, markov(a, b, c, d, 4 * n + 16))
    return system


def from_control(system: Any) -> DiagonalSSM:
    """A python-control system (StateSpace or TransferFunction) in discrete time, one input, one output."""
    if not (hasattr(system, "dt") and (hasattr(system, "A") or hasattr(system, "num"))):
        raise ValueError(f"expected a python-control StateSpace or TransferFunction, got {type(system).__name__}")
    if system.dt in (None, 0):
        raise ValueError(
            "the system is in continuous time (dt is 0 or None); sample it first, with control.sample_system"
        )
    if hasattr(system, "A"):
        return from_state_space(system.A, system.B, system.C, system.D)
    num, den = (np.trim_zeros(np.atleast_1d(p[0][0]), "f") for p in (system.num, system.den))
    return from_tf(np.concatenate([np.zeros(max(len(den) - len(num), 0)), num]), den)


def to_state_space(system: DiagonalSSM | DeepSSM) -> StateSpace:
    """A, B, C, D of s(t+1) = A s + B x, y = C s + D x; real 2x2 blocks for conjugate pairs of a real kernel.

    A deep system keeps its layers: A is block lower triangular, complex in general.
    """
    if isinstance(system, DeepSSM):
        return _deep_state_space(system)
    flat = system.merged()
    if not system.is_real:
        p, r = flat.poles, flat.residues
        return np.diag(p), np.ones((len(p), 1), complex), (r * p)[None, :], np.array([[r.sum()]])
    real, upper = flat.poles.imag == 0, flat.poles.imag > 0
    # R lambda^(t+1) + conjugate = 2 Re(R lambda lambda^t): a rotation block, read out by (2 Re, -2 Im) of R lambda.
    turns = [np.array([[p.real, -p.imag], [p.imag, p.real]]) for p in flat.poles[upper]]
    a = np.asarray(scipy.linalg.block_diag(*flat.poles[real].real, *turns))
    b = np.concatenate([np.ones(real.sum()), np.tile([1.0, 0.0], upper.sum())])[:, None]
    first = flat.residues * flat.poles
    pairs = np.stack([2 * first[upper].real, -2 * first[upper].imag], axis=1).ravel()
    c = np.concatenate([first[real].real, pairs])[None, :]
    return a, b, c, np.array([[flat.residues.sum().real]])


def to_zpk(system: DiagonalSSM) -> tuple[np.ndarray, np.ndarray, complex]:
    """Zeros, poles and gain, as `scipy.signal` writes them; zeros from a pencil, never from a polynomial.

    >>> z, p, k = to_zpk(DiagonalSSM([0.5, 0.25], [2, -1]))
    >>> np.allclose(z, 0), k.real                        # z^2 / ((z - 1/2)(z - 1/4)), the unit cascade
    (True, 1.0)
    """
    flat = system.merged()
    live = flat.poles != 0  # in z the pole 0 is the direct term, no pole at all
    d = flat.residues.sum().real if flat.is_real else flat.residues.sum()
    if not live.any():
        return np.zeros(0, complex), np.zeros(0, complex), complex(d)
    a, b, c, _ = to_state_space(DiagonalSSM(flat.poles[live], flat.residues[live]))
    kernel = flat.impulse(len(a) + 1)
    delay = int(np.argmax(np.abs(kernel) > 1e-13 * np.abs(flat.residues).sum()))  # each sample is one zero fewer
    pencil = np.block([[a, b], [c, np.array([[d]])]])
    mass = scipy.linalg.block_diag(np.eye(len(a)), 0.0)
    above, below = np.asarray(scipy.linalg.eigvals(pencil, mass, homogeneous_eigvals=True))
    finite = np.argsort(-np.abs(below), kind="stable")[: len(a) - delay]
    zeros = above[finite] / below[finite]
    if flat.is_real:  # conjugate to the last bit, as `zpk2sos` wants them
        upper = zeros[zeros.imag > 0]
        zeros = np.concatenate([upper, upper.conj(), zeros[zeros.imag == 0]])
    return zeros, flat.poles[live], complex(kernel[delay])


def to_tf(system: DiagonalSSM) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients b, a in powers of z^-1, for `lfilter`; real when the kernel is. Ill-conditioned at high order."""
    poles = system.merged().poles
    a = np.poly(poles[poles != 0])
    degree = len(a) if (poles == 0).any() else max(len(a) - 1, 1)
    b = np.asarray(scipy.signal.lfilter(a, [1.0], system.impulse(degree)))  # b = a * kernel, which ends with its degree
    return (np.real(b), np.real(a)) if system.is_real else (b, a)


def to_sos(system: DiagonalSSM) -> Float[np.ndarray, "sections 6"]:
    """Second-order sections of a real kernel, for `sosfilt`."""
    if not system.is_real:
        raise ValueError("second-order sections need a real kernel: every complex pole with its conjugate")
    zeros, poles, gain = to_zpk(system)
    sos = scipy.signal.zpk2sos(zeros, poles, gain.real)
    late = len(poles) - len(zeros)
    for section in sos:  # scipy fills missing zeros with zeros at 0, which drops the delay: put it back
        delay = min(late, 3 - len(np.trim_zeros(section[:3], "b")))
        section[:3], late = np.roll(section[:3], delay), late - delay
    return sos


def to_control(system: DiagonalSSM | DeepSSM) -> Any:
    """A python-control StateSpace in discrete time; needs the package `control` and a real kernel."""
    import control

    if isinstance(system, DiagonalSSM) and not system.is_real:
        raise ValueError("python-control holds real systems only, and this kernel is complex")
    if isinstance(system, DeepSSM):
        return to_control(_symmetric(*_flat(system)))
    return control.StateSpace(*to_state_space(system), True)


def _flat(system: DeepSSM) -> tuple[np.ndarray, np.ndarray]:
    flat = system.flatten()
    return flat.poles, flat.residues


def _deep_state_space(system: DeepSSM) -> StateSpace:
    """One state space of all layers: h_k(t) = A_k h_k(t-1) + B_k h_{k-1}(t), s(t) = h(t-1)."""
    a = np.zeros((0, 0), complex)
    rows, now = np.zeros((1, 0), complex), np.ones((1, 1), complex)  # h_{k-1}(t) = rows s(t) + now x(t)
    inputs = np.zeros((0, 1), complex)
    for layer in system.layers:
        rows = np.concatenate([layer.weights @ rows, np.diag(layer.poles)], axis=1)
        now = layer.weights @ now
        a = np.concatenate([np.pad(a, ((0, 0), (0, layer.width))), rows])
        inputs = np.concatenate([inputs, now])
    return a, inputs, system.readout[None, :] @ rows, system.readout[None, :] @ now


def _symmetric(poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"]) -> DiagonalSSM:
    """A system whose conjugate modes are conjugate to the last bit, where rounding had left them nearly so."""
    p, r = np.asarray(poles, complex), np.asarray(residues, complex)
    twin = np.abs(p[:, None] - p.conj()).argmin(axis=1)
    near = np.abs(p - p[twin].conj()) <= 1e-12
    fits = np.abs(r - r[twin].conj()) <= 1e-6 * np.abs(r).max(initial=0.0)
    if not (near.all() and fits.all() and (twin[twin] == np.arange(len(p))).all()):
        return DiagonalSSM(p, r)
    return DiagonalSSM((p + p[twin].conj()) / 2, (r + r[twin].conj()) / 2)


def markov(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, count: int) -> Complex[np.ndarray, " count"]:
    """The kernel of a state space: D, C B, C A B, ..."""
    kernel, state = np.empty(count, complex), b
    kernel[0] = d[0, 0]
    for t in range(1, count):
        kernel[t], state = (c @ state)[0, 0], a @ state
    return kernel


def _refuse_loss(system: DiagonalSSM, wanted: np.ndarray) -> None:
    lost = gap(system.impulse(len(wanted)), wanted)
    if not lost <= TOLERANCE:
        raise ValueError(
            f"poles and residues of this filter reproduce its response only to {lost:.1g}: poles repeat or nearly do, "
            "or it holds a pure delay; neither fits a diagonal layer"
        )
