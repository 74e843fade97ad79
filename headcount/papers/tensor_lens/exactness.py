"""The certificate that a frozen network is one affine map: what is left to compute is linear, and the numbers agree."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from headcount.nets.recorded.tape import NotAffine, Tape

TOLERANCE = 500  # units of rounding


@dataclass(frozen=True)
class AffineCertificate:
    """Five relative gaps of the frozen network f at x, and what was frozen.

    `plain`: the model as it is against the recorded pass. `replay`: the tape replayed at x against the recorded pass.
    `affine`: f(a x + (1 - a) x') - a f(x) - (1 - a) f(x'), where x' is as large as x and independent of it.
    `adjoint`: <u, f(x') - f(x)> - <T^T u, x' - x> for random signs u, against |f(x') - f(x)|: the backward pass that
    `read` and `matrix` hand out is the transpose of the forward pass that was examined.
    `dependence`: how far f(x') is from f(x); a network frozen whole would have 0. Every operation that still depends
    on the tokens was checked to be linear in them; each input was replayed alone, so that nothing of one is in another.
    """

    plain: float
    replay: float
    affine: float
    adjoint: float
    dependence: float
    tolerance: float
    dtype: str
    frozen: tuple[tuple[str, int], ...]

    def as_dict(self) -> dict[str, object]:
        """The fields, ready for JSON."""
        return {**asdict(self), "frozen": dict(self.frozen)}

    def check(self) -> AffineCertificate:
        """The certificate itself, or a refusal that says which of its numbers is too large."""
        if self.plain != self.plain:
            raise NotAffine("the recorded pass holds NaN or infinity where the model's own does not")
        if not self.plain <= self.tolerance:
            raise NotAffine(f"the recorded pass is off the model's own by {self.plain:.1e}; is the model random?")
        if not self.replay <= self.tolerance:
            raise NotAffine(f"the replayed pass is off the recorded one by {self.replay:.1e}: something was not taped")
        if not self.affine <= self.tolerance:
            raise NotAffine(
                f"the frozen network is not affine: gap {self.affine:.1e}, tolerance {self.tolerance:.0e}; "
                "some of it was not seen (a compiled kernel, or numbers kept outside torch)"
            )
        if not self.adjoint <= self.tolerance:
            raise NotAffine(
                f"the backward pass is not the transpose of the forward one: gap {self.adjoint:.1e}, tolerance "
                f"{self.tolerance:.0e}; a part of the forward pass cannot be followed back"
            )
        if not self.dependence > self.tolerance:
            raise NotAffine(f"the frozen network no longer depends on its tokens: dependence {self.dependence:.1e}")
        return self

    def holds(self, gap: float, what: str) -> float:
        """A relative gap of a number that is handed out, or a refusal where it is above the tolerance."""
        if not gap <= self.tolerance:
            raise NotAffine(
                f"{what} and the constant are off the output by {gap:.1e} of it, tolerance {self.tolerance:.0e}; "
                "in float64 (model.double()) rounding would be far below"
            )
        return gap


def certify(
    tape: Tape, recorded: Tensor, plain: Tensor, rows: tuple[Tensor, Tensor, Tensor], a: float, adjoint: float
) -> AffineCertificate:
    """The gaps, from the recorded output, the model's own, and the replays at x, x' and a x + (1 - a) x'."""
    at_x, far, between = rows
    size = float(recorded.abs().max()) or 1.0
    larger = max(size, float(far.abs().max()))
    coarsest = max(tape.dtypes, key=lambda d: torch.finfo(d).eps, default=recorded.dtype)
    return AffineCertificate(
        plain=float((plain - recorded).abs().max()) / size,
        replay=float((at_x - recorded).abs().max()) / size,
        affine=float((between - a * at_x - (1 - a) * far).abs().max()) / larger,
        adjoint=adjoint,
        dependence=float((far - at_x).abs().max()) / size,
        tolerance=TOLERANCE * torch.finfo(coarsest).eps,
        dtype=str(coarsest)[6:],
        frozen=tuple(sorted((k, n) for k, n in tape.frozen.items())),
    )
