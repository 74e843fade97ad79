"""Laws over all papers: weights have the dtype of the certificate, what is handed out was examined, own cases go in."""

import dataclasses
import importlib
import inspect
import pkgutil

import numpy as np
import pytest
import torch

import headcount
import headcount as hc
import headcount.papers
from headcount.certificates.built import load
from headcount.papers.attention_svm import max_margin, nuclear
from headcount.papers.born.circuits import neighbour
from headcount.papers.born.compiler import compile as compiled
from headcount.papers.born.length_study import SMALL, generalise
from headcount.papers.consistency.decays import DecayCase, decay
from headcount.papers.consistency.networks import SmootherNet, SmootherShape, smoother
from headcount.papers.consistency.smooth import Smooth
from headcount.papers.hardmax import interpolate
from headcount.papers.head_count import enough_heads, memorise, weight_bounded
from headcount.papers.icl.contexts import InContext, Spectrum
from headcount.papers.icl.descent_curves import descent_curve
from headcount.papers.icl.networks import descent
from headcount.papers.induction.bounds import information_set
from headcount.papers.induction.networks import generalised_induction
from headcount.papers.infoflow import (
    carried_retrievals,
    gated_second_largest,
    induction_head,
    kth_largest,
    opposite_pair,
    pair_max,
    position_sum,
    retrievals_by_position,
)
from headcount.papers.infoflow.networks.looked_up import looked_up
from headcount.papers.lr_law.loss_tables import read_losses
from headcount.papers.lr_law.two_roads import rate_law
from headcount.papers.prompts import PromptedLayer, attention_loss, reach
from headcount.papers.ssm import DiagonalSSM
from headcount.papers.ssm.rival_forms import form_rows
from headcount.papers.tensor_lens import NotAffine
from headcount.tasks import (
    Affine,
    Induction,
    KthLargest,
    LinearMax,
    MaxOf,
    Neighbour,
    NGram,
    OppositePair,
    PairMax,
    PositionSum,
    Ridges,
    Wells,
    task,
)
from headcount.tasks.counting_text import parse_program
from headcount.tasks.languages import Recognition, Spoken
from studies.site.calls import called
from tests.plain_blocks import Blocks

G = np.random.default_rng(0)
THIRD = 1 / 3  # no float32 holds it
MAX2 = LinearMax(directions=[[THIRD, 0.7], [0.1, -THIRD]], length=6)
WELLS = Wells(centres=[[THIRD, 0.9], [0.7, 0.1]], length=6)
PROGRAM = "say 1 if 33554433 #[x = 0] - #[x = 1] >= 2"
PLACES = PositionSum((0, 2), 5)

# Every function of the package that hands out a network with a certificate, by its name.
BUILT = {
    "build": lambda: hc.build(MAX2, eps=0.1),
    "carried_retrievals": lambda: carried_retrievals(MAX2, 0.1),
    "descent": lambda: descent(InContext(16, 4), 3),
    "enough_heads": lambda: enough_heads(MAX2, 0.1),
    "gated_second_largest": lambda: gated_second_largest(KthLargest(2, 5), 0.1),
    "generalised_induction": lambda: generalised_induction(NGram(parents=(1,), vocab=3, length=12), 10 * THIRD),
    "induction_head": lambda: induction_head(Induction(3, 6), 0.1),
    "kth_largest": lambda: kth_largest(KthLargest(2, 5), 0.1),
    "looked_up": lambda: looked_up(
        task(Ridges([[THIRD, 1.0]], (Affine(),)), length=5, retrievals=[MaxOf((1.0,)), MaxOf((-1.0,))]), 0.1
    ),
    "memorise": lambda: memorise(WELLS, 0.3),
    "neighbour": lambda: neighbour(Neighbour("left", "last", letters=4, length=8), 0.03),
    "opposite_pair": lambda: opposite_pair(OppositePair(5, 2), 0.1),
    "pair_max": lambda: pair_max(PairMax.random(1, 2, 5, seed=0), 0.1),
    "position_sum": lambda: position_sum(PLACES, 0.1),
    "retrievals_by_position": lambda: retrievals_by_position(MAX2, 0.1),
    "smoother": lambda: smoother(Smooth("sine", examples=36, dimension=1), 100 * THIRD),
    "weight_bounded": lambda: weight_bounded(enough_heads(WELLS, 0.1)),
}
OTHERS = {
    "compile": lambda: compiled(parse_program(PROGRAM), 9),
    "interpolate": lambda: interpolate(G.standard_normal((3, 4, 3)), np.eye(3) * THIRD),
}
DYADIC = {"neighbour", "gated_second_largest", "kth_largest", "position_sum"}  # whole numbers, or a shape alone


def constructions():
    """The names of all public functions that say they return a certified network."""
    found = set()
    for module in pkgutil.walk_packages(headcount.papers.__path__, "headcount.papers."):
        if module.name.endswith(("reproduce", "experiments", "page", "picture")):
            continue
        loaded = importlib.import_module(module.name)
        for name, value in vars(loaded).items():
            own = inspect.isfunction(value) and value.__module__ == module.name and not name.startswith("_")
            if own and inspect.signature(value).return_annotation in ("Built", "CompiledProgram", "Interpolation"):
                found.add(name)
    return found


def test_every_construction_of_the_package_stands_in_the_table():
    found = constructions()
    assert len(found) > 15 and found <= {*BUILT, *OTHERS}


@pytest.mark.parametrize("name", [*BUILT, *OTHERS])
def test_every_number_of_a_construction_has_the_dtype_its_certificate_speaks_of(name):
    """float64, and not float32 numbers in float64: some number of each is none that float32 holds."""
    numbers = [t for t in tensors_of({**BUILT, **OTHERS}[name]().net) if t.is_floating_point()]
    assert {t.dtype for t in numbers} <= {torch.float64}
    assert name in DYADIC or any((t != t.float().double()).any() for t in numbers)


def tensors_of(net):
    return [*net.parameters(), *net.buffers()]


@pytest.mark.parametrize("name", BUILT)
def test_a_construction_that_was_kept_and_read_is_the_one_that_was_examined(name, tmp_path):
    built = BUILT[name]()
    x = built.domain.sample(40, generator=torch.Generator().manual_seed(0))
    handed = built.net(x)
    assert (handed - built.task(x)).abs().max() <= built.certificate.error
    if name not in ("neighbour", "build"):  # a circuit is a formula; the other is one of these
        kept = load(built.save(tmp_path / "net.safetensors"))
        assert torch.equal(kept.net(x), handed) and kept.certificate.error == built.certificate.error


def test_a_smoother_is_the_smoother_of_its_beta():
    for beta in (1234.5678, 1e5 / 3, 4.0):
        net = SmootherNet(SmootherShape(3, beta))
        assert net.query[0, 0].item() == 2 * beta and net.query[-1, -1].item() == -beta


def test_what_the_operator_hands_out_is_what_was_certified():
    """Every road of the lens against the replay that was examined, at tokens other than its own."""
    net, g = Blocks(2, 8, 2, 12), torch.Generator().manual_seed(0)
    x, other = torch.randn(2, 5, 8, generator=g, dtype=torch.float64)
    found = hc.operator(net, x)
    T, u = found.matrix(), torch.randn(5, 8, generator=g, dtype=torch.float64)
    examined = found.replay(other[None])[0] - found.constant  # T x', by the road of the certificate
    torch.testing.assert_close(torch.einsum("iajb,jb->ia", T, other), examined, atol=1e-12, rtol=0)
    torch.testing.assert_close(found.apply(other) - found.constant, examined, atol=0, rtol=0)
    torch.testing.assert_close((found.adjoint(u[None])[0] * other).sum(), (u * examined).sum(), atol=1e-11, rtol=0)
    torch.testing.assert_close(found.read(u).tokens.sum() + found.read(u).constant, (u * found.output).sum())
    torch.testing.assert_close(found.contributions().sum(1) + found.constant, found.output, atol=1e-12, rtol=0)
    first = found.singular(1)
    moved = found.apply(first.tokens[0]) - found.constant
    torch.testing.assert_close(moved, first.values[0] * first.outputs[0], atol=1e-8, rtol=0)
    assert found.certificate.adjoint < found.certificate.tolerance
    with pytest.raises(NotAffine, match="off the output"):
        found.certificate.holds(1.0, "the parts")


def test_the_matrix_that_is_handed_out_has_the_margin_and_the_norm_that_were_examined():
    x, z = G.standard_normal((3, 4, 5)), G.standard_normal((3, 5))
    for norm, size in ((None, np.linalg.norm), (nuclear, lambda w: np.linalg.norm(w, "nuc"))):
        found = max_margin(x, z, [0, 1, 2], norm)
        scores = np.einsum("itd,de,ie->it", x, found.weights, z)
        ahead = [scores[i, i] - np.delete(scores[i], i).max() for i in range(3)]
        assert min(ahead) == pytest.approx(found.margin) == pytest.approx(1) and size(found.weights) == pytest.approx(
            found.norm
        )


def test_the_prompt_that_is_handed_out_was_measured():
    layer = PromptedLayer(*(G.standard_normal((4, 4)) for _ in range(3)))
    last, contexts, targets = G.standard_normal(4), G.standard_normal((2, 3, 4)), G.standard_normal((2, 4))
    found = reach(layer, last, contexts, targets, 2)
    assert attention_loss(layer, last, contexts, targets, found.prompt) == found.prompt_loss >= found.floor


def own_cases(folder):
    """By paper: a value of the user's own for its main verb."""
    losses = [f"{n},{d},{0.001 * 2**i},{2 + 0.1 * (i - 4 + n / 300) ** 2}" for n in (100, 200, 400) for d in (50, 100)
              for i in range(9)]  # fmt: skip
    (folder / "mine.csv").write_text("\n".join(["parameters,steps,lr,loss", *losses]) + "\n")
    tiny = dataclasses.replace(SMALL, steps=16, batch=4, seeds=(0,))
    layer = PromptedLayer(*(G.standard_normal((3, 3)) for _ in range(3)))
    contexts, targets = [G.standard_normal((2, 3)), G.standard_normal((2, 3))], G.standard_normal((2, 3))
    return {
        "attention_svm": lambda: max_margin([[[1.0, 0.0], [0.0, 0.0]]], [[0.0, 2.0]], [0]).weights,
        "born": lambda: generalise("mine", tiny, task=Recognition(Spoken("say 1 if #[x = 1] >= 2"))).curve,
        "consistency": lambda: decay(DecayCase(1, 0.5, (32, 64, 128), 0.5), lambda x: abs(x[:, 0]), repetitions=2),
        "hardmax": lambda: interpolate([[[1.0, 0.0]]], [[1.0, 1.0]]).net,
        "icl": lambda: descent_curve(Spectrum(0.7), dimension=3, examples=9, contexts=20).means,
        "induction": lambda: information_set(0.5, 4, (1,), 2, kernels=5).lags,
        "lr_law": lambda: rate_law(read_losses(folder / "mine.csv"), resamples=50).parameters,
        "prompts": lambda: reach(layer, G.standard_normal(3), contexts, targets, 1).floor,
        "ssm": lambda: form_rows(DiagonalSSM([0.5, 0.2], [1.0, 1.0]), bits=(8,)),
        "tensor_lens": lambda: hc.operator(torch.nn.Linear(3, 2).double().eval(), torch.ones(2, 3).double()).matrix(),
    }


ELDER = {"allocation", "head_count", "infoflow"}  # their own cases have tests of their own (test_examples_own.py)


def test_every_papers_main_verb_takes_a_case_of_the_users_own(tmp_path):
    cases = own_cases(tmp_path)
    papers = {module.name for module in pkgutil.iter_modules(headcount.papers.__path__) if module.ispkg}
    assert set(cases) == papers - ELDER
    for name, ask in cases.items():
        assert ask() is not None, name


def test_every_command_of_these_papers_takes_a_value_of_the_users_own():
    """A file, a module or a model: an option or an argument that names it."""
    wanted = {
        "sweep": ("spec",),
        "lens": ("--text", "--own-run"),
        "theory margin": ("--model", "data"),
        "theory prompt": ("--model", "data"),
        "theory interpolate": ("data",),
        "fit": ("run",),
    }
    for command, names in wanted.items():
        shown = called([*command.split(), "--help"]).stdout.lower()
        assert all(name in shown for name in names), command
