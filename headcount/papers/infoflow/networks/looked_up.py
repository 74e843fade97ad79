"""Own retrievals with an outer function: the certified networks of maxima, wells, places and ranks, side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from headcount.certificates.arithmetic import up
from headcount.certificates.attack import Attempt
from headcount.certificates.attempts import in_box
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate, Term
from headcount.certificates.deep_rounding import rounding_through
from headcount.certificates.domains import Box, radius_for
from headcount.certificates.network import ClassTokenNet, ReluNet
from headcount.certificates.outer_nets import OuterNet, lipschitz_net, ridge_net
from headcount.certificates.parallel_parts import SideBySide
from headcount.certificates.wiring import Hidden, Layout, wire
from headcount.papers.head_count.networks.assembling import assembled
from headcount.papers.head_count.networks.enough_heads import enough_heads
from headcount.papers.head_count.networks.worst_inputs import WorstTies
from headcount.papers.infoflow.networks.kth_largest import kth_largest
from headcount.papers.infoflow.networks.positions import Contrast, bump
from headcount.refusals import positive
from headcount.sources import Source, implements
from headcount.tasks import (
    KthLargest,
    LinearMax,
    LipschitzOuter,
    Lookups,
    MaxOf,
    PlaceOf,
    RankOf,
    Ridges,
    WellOf,
    Wells,
)

SOURCE = Source("headcount", "look-ups side by side with an outer function")
FOUND, OUTER = 0.7, 0.28  # of eps: for what the look-ups miss, and for the outer function; rounding has the rest
MARGIN = 0.1  # of the range of look-ups, beyond which none is ever found; slopes are taken up to there
INSIDE = 1e-9  # scores are kept this far inside [0, 1], more than rounding moves them


@dataclass(frozen=True, eq=False)
class Finder:
    """A network with |scale net(x) + shift - z| <= error for one look-up z, and what attacks it."""

    net: ClassTokenNet
    scale: float
    shift: float
    error: float
    attempts: tuple[Attempt, ...]
    low: float
    high: float


@implements(
    SOURCE,
    test="tests/test_tasks_own.py::test_every_composition_keeps_its_certificate_and_comes_near_it",
    status="proved here",
    hypotheses=("tokens in the box of the certificate", "an outer function of ridges or with a Lipschitz constant"),
)
def looked_up(task: Lookups, eps: float = 1e-2, *, radius: float | None = None) -> Built:
    """Look-ups side by side, each by its own construction, and the outer function as a ReLU network on what they find.

    With |z~_i - z_i| <= e_i and |dF/dz_i| <= s_i, |Phi(z~) - F(z)| <= |Phi - F| + sum_i s_i e_i. A rank next to an end
    takes two layers, everything else one. On [0, 1]^d for uniform tokens, else on [-radius, radius]^d.
    Source: Yu et al. 2025 (heads), Theorem 2(1), for maxima and wells; Yu et al. 2026 (InfoFlow) for places and ranks.
    """
    positive(eps=eps)
    if not isinstance(task.outer, Ridges | LipschitzOuter):
        raise ValueError(
            f"nothing is known of the outer function {task.outer}: give task(..., lipschitz=L) where it moves at most "
            "by L times the sum of what its numbers move by, or give Ridges"
        )
    box = _box(task, radius)
    low, high = _ends(task, box)
    slopes = _slopes(task, box)
    wanted = [min(FOUND * eps / (len(task.parts) * slope), MARGIN * (high - low)) for slope in slopes]
    finders = [_finder(part, box, error) for part, error in zip(task.parts, wanted, strict=True)]
    ranges = [(f.low - f.error, f.high + f.error) for f in finders]
    outer = _outer_net(task, ranges, OUTER * eps)
    net = SideBySide.of([finder.net for finder in finders], _reading(outer, finders))
    missed = math.fsum(s * f.error for s, f in zip(slopes, finders, strict=True))
    terms = (
        Term("look-ups", up(missed), f"{len(finders)} certified networks, times how fast the outer function moves"),
        Term("outer function", up(outer.error), outer.why),
        Term("rounding", up(2 * outer.rounding), "of the outer network, float64; the look-ups hold their own"),
    )
    attempts = in_box(*(a for finder in finders for a in finder.attempts))
    return Built(net, task, Certificate(terms, SOURCE, (str(box), f"length {task.length}")), box, attempts)


def _box(task: Lookups, radius: float | None) -> Box:
    if task.tokens == "uniform":
        if radius is not None:
            raise ValueError("tokens are uniform on [0, 1]^d; radius belongs to gaussian ones")
        return Box(task.length, task.token_dim, 0.0, 1.0)
    R = radius_for(task.length * task.token_dim) if radius is None else radius
    positive(radius=R)
    return Box(task.length, task.token_dim, -R, R)


def _slopes(task: Lookups, box: Box) -> list[float]:
    """How fast the outer function moves with each look-up at most, a little beyond what look-ups can find."""
    if isinstance(task.outer, LipschitzOuter):
        return list(task.outer.partial_bounds())
    assert isinstance(task.outer, Ridges)
    low, high = _ends(task, box)
    margin = MARGIN * (high - low)
    return [max(bound, 1e-12) for bound in task.outer.partial_bounds(low - margin, high + margin)]


def _ends(task: Lookups, box: Box) -> tuple[float, float]:
    ranges = [_range(part, box) for part in task.parts]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _range(part: object, box: Box) -> tuple[float, float]:
    if isinstance(part, WellOf):
        return 0.0, 1.0
    assert isinstance(part, MaxOf | PlaceOf | RankOf)
    return (
        math.fsum(min(a * box.low, a * box.high) for a in part.direction),
        math.fsum(max(a * box.low, a * box.high) for a in part.direction),
    )


def _outer_net(task: Lookups, ranges: list[tuple[float, float]], error: float) -> OuterNet:
    if isinstance(task.outer, Ridges):
        return ridge_net(task.outer, ranges, error)
    assert isinstance(task.outer, LipschitzOuter)
    return lipschitz_net(task.outer, ranges, error)


def _reading(outer: OuterNet, finders: list[Finder]) -> ReluNet:
    """The outer network with each look-up's scale and shift in its first map."""
    (weight, bias), *rest = outer.net.weights
    scale = torch.tensor([finder.scale for finder in finders], dtype=torch.float64)
    shift = torch.tensor([finder.shift for finder in finders], dtype=torch.float64)
    return outer.net.fill((weight * scale, bias + weight @ shift), *rest)


def _finder(part: object, box: Box, error: float) -> Finder:
    low, high = _range(part, box)
    if isinstance(part, MaxOf):
        return _largest(part.direction, box, error, 1.0)
    if isinstance(part, WellOf):
        built = enough_heads(Wells([part.centre], box.length), error)
        return Finder(_plain(built), 1.0, 0.0, built.certificate.error, _special(built), low, high)
    if isinstance(part, PlaceOf):
        return _placed(part, box, error)
    assert isinstance(part, RankOf)
    if part.rank in (1, box.length):
        return _largest(part.direction, box, error, 1.0 if part.rank == 1 else -1.0)
    if part.rank in (2, box.length - 1):
        return _second(part.direction, box, error, 1.0 if part.rank == 2 else -1.0)
    T = box.length
    raise ValueError(
        f"of {T} tokens, ranks 1, 2, {T - 1} and {T} have a certified network on all inputs, {part.rank} not"
    )


def _largest(direction: Sequence[float], box: Box, error: float, sign: float) -> Finder:
    """The largest of <a, x_t>, or for sign -1 the smallest as minus the largest of the opposite direction."""
    radius = max(abs(box.low), abs(box.high))
    built = enough_heads(LinearMax([[sign * a for a in direction]], box.length), error, radius=radius)
    return Finder(_plain(built), sign, 0.0, built.certificate.error, _special(built), *_range(MaxOf(direction), box))


def _second(direction: Sequence[float], box: Box, error: float, sign: float) -> Finder:
    """The second largest of s_t = (<a, x_t> - low) / (high - low): masking reads one number, whatever it is made of."""
    along = tuple(sign * a for a in direction)
    low, high = _range(MaxOf(along), box)
    width = (high - low) * (1 + 2 * INSIDE)
    start = low - INSIDE * (high - low)
    built = kth_largest(KthLargest(2, box.length), min(1.0, 0.99 * error / width))
    net = _on_direction(_plain(built), along, width, start, box)
    # The one unit that reads a token computes s off by less than INSIDE, and the second largest moves no more.
    off = width * (built.certificate.error + INSIDE)
    return Finder(net, sign * width, sign * start, off, (), *_range(MaxOf(direction), box))


def _on_direction(
    net: ClassTokenNet, direction: Sequence[float], width: float, start: float, box: Box
) -> ClassTokenNet:
    """The network of one number a token, reading (<direction, x> - start) / width for it."""
    (weight, bias), *rest = net.encoder.weights
    d = len(direction)
    wide = ClassTokenNet(replace(net.shape, encoder=(d + 1, *net.shape.encoder[1:])))
    read = torch.cat([weight[:, :1] * torch.tensor(direction, dtype=torch.float64) / width, weight[:, 1:]], dim=1)
    wide.encoder.fill((read, bias - weight[:, 0] * start / width), *rest)
    other_weights = {name: p for name, p in net.state_dict().items() if not name.startswith("encoder.")}
    wide.load_state_dict(other_weights, strict=False)
    return wide


def _placed(part: PlaceOf, box: Box, error: float) -> Finder:
    """One head on one position: the mass outside times the spread of values, which is attained."""
    d, outside = len(part.direction), box.length - 1
    low, high = _range(part, box)
    spread, largest = high - low, max(abs(box.low), abs(box.high))
    beta = math.log(max(2.0, outside * (spread / (0.98 * error)))) if outside else 1.0
    at = Layout(value=1, place=1, one=1, found=1)
    encoder, read_out = Hidden(d + 1, at.size), Hidden(at.size, 1)
    encoder.linear(dict(enumerate(part.direction)), {at["value"][0]: 1.0})
    bump(encoder, d, part.position + 1, at["place"][0])
    encoder.constant({at["one"][0]: 1.0})
    read_out.linear({at["found"][0]: 1.0}, {0: 1.0})
    net = assembled(encoder, ((1, 1),), (beta,), read_out, asks={at["one"][0]: 1.0})
    queries, keys, values = ([{at[name][0]: 1.0}] for name in ("one", "place", "value"))
    wire(net.attention[0], 0, query=queries, key=keys, value=values, out=[{at["found"][0]: 1.0}])
    mass = outside / (outside + math.exp(beta))
    off = up(mass * spread) + rounding_through(net, largest, box.length)
    return Finder(net, 1.0, 0.0, off, (Contrast((part.position,)),), low, high)


def _special(built: Built) -> tuple[Attempt, ...]:
    """What attacks the softmax: near-ties at the worst distance."""
    return tuple(attempt for attempt in built.attempts if isinstance(attempt, WorstTies))


def _plain(built: Built) -> ClassTokenNet:
    assert isinstance(built.net, ClassTokenNet)
    return built.net
