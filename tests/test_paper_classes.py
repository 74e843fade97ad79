"""Laws over all papers: weights have the dtype of the certificate, what is handed out was examined, own cases go in."""

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.nets.blocks import Blocks
from headcount.papers.attention_svm import max_margin
from headcount.papers.born.circuits import neighbour
from headcount.papers.born.compiler import compile as compiled
from headcount.papers.consistency.decays import DecayCase, decay
from headcount.papers.consistency.networks import SmootherNet, SmootherShape
from headcount.papers.hardmax import interpolate
from headcount.papers.head_count.networks.enough_heads import enough_heads
from headcount.papers.induction.bounds import information_set
from headcount.papers.lr_law.loss_tables import read_losses
from headcount.papers.lr_law.two_roads import rate_law
from headcount.papers.prompts import PromptedLayer, attention_loss, reach
from headcount.papers.ssm import DiagonalSSM
from headcount.papers.ssm.rival_forms import form_rows
from headcount.papers.tensor_lens import NotAffine
from headcount.tasks import LinearMax, Neighbour
from headcount.tasks.counting_text import parse_program

G = np.random.default_rng(0)
THIRD = 1 / 3  # no float32 holds it


def built_networks():
    """Every construction with a certificate in float64, small, with numbers that float32 does not hold."""
    directions = (torch.eye(3, dtype=torch.float64)[:2] * THIRD * 3).tolist()
    yield "interpolation", lambda: interpolate(G.standard_normal((3, 4, 3)), np.eye(3) * THIRD).net
    yield "compiled program", lambda: compiled(parse_program("say 1 if 1000003 #[x = 0] - #[x = 1] >= 2"), 9).net
    yield "smoother", lambda: SmootherNet(SmootherShape(2, 100 * THIRD))
    yield "circuit", lambda: neighbour(Neighbour("left", "last", letters=4, length=8), 0.03).net
    yield "enough heads", lambda: enough_heads(LinearMax(directions=directions, length=6), 0.1).net
    yield "built", lambda: hc.build(LinearMax(directions=directions, length=6), eps=0.1).net


@pytest.mark.parametrize(("name", "make"), list(built_networks()), ids=lambda v: v if isinstance(v, str) else "")
def test_every_number_of_a_construction_has_the_dtype_its_certificate_speaks_of(name, make):
    net = make()
    numbers = [*net.parameters(), *net.buffers()]
    assert numbers or name == "circuit"
    assert {t.dtype for t in numbers if t.is_floating_point()} <= {torch.float64}


def test_a_smoother_is_the_smoother_of_its_beta():
    for beta in (1234.5678, 1e5 / 3, 4.0):
        net = SmootherNet(SmootherShape(3, beta))
        assert net.query[0, 0].item() == 2 * beta and net.query[-1, -1].item() == -beta


def test_what_the_operator_hands_out_is_what_was_certified():
    net, x = Blocks(2, 8, 2, 12), torch.randn(5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = hc.operator(net, x)
    for handed in (found.contributions().sum(1), torch.einsum("iajb,jb->ia", found.matrix(), x)):
        torch.testing.assert_close(handed + found.constant, found.output, atol=1e-12, rtol=0)
    assert found.certificate.adjoint < found.certificate.tolerance
    with pytest.raises(NotAffine, match="off the output"):
        found.certificate.holds(1.0, "the parts")


def test_the_prompt_that_is_handed_out_was_measured():
    layer = PromptedLayer(*(G.standard_normal((4, 4)) for _ in range(3)))
    last, contexts, targets = G.standard_normal(4), G.standard_normal((2, 3, 4)), G.standard_normal((2, 4))
    found = reach(layer, last, contexts, targets, 2)
    assert attention_loss(layer, last, contexts, targets, found.prompt) == found.prompt_loss >= found.floor


def own_cases(folder):
    """A value of the user's own for the main verb of every paper."""
    losses = [f"{n},{d},{0.001 * 2**i},{2 + 0.1 * (i - 4 + n / 300) ** 2}" for n in (100, 200, 400) for d in (50, 100)
              for i in range(9)]  # fmt: skip
    (folder / "mine.csv").write_text("\n".join(["parameters,steps,lr,loss", *losses]) + "\n")
    yield "rate law", lambda: rate_law(read_losses(folder / "mine.csv"), resamples=50).parameters
    yield "decay", lambda: decay(DecayCase(1, 0.5, (32, 64, 128), 0.5, function="|x|"), lambda x: abs(x[:, 0]),
                                 repetitions=2).exponent  # fmt: skip
    yield "vocabulary", lambda: information_set(0.5, 4, (1,), 2, kernels=5).lags
    yield "program", lambda: compiled(parse_program("say 1 if #[x = 1] - #[x = 0] >= 1"), 9).net
    yield "filter", lambda: form_rows(DiagonalSSM([0.5, 0.2], [1.0, 1.0]), bits=(8,))
    yield "module", lambda: hc.operator(torch.nn.Linear(3, 2).double().eval(), torch.ones(2, 3).double()).matrix()
    yield "sequences", lambda: interpolate([[[1.0, 0.0]]], [[1.0, 1.0]]).net
    yield "tokens", lambda: max_margin([[[1.0, 0.0], [0.0, 0.0]]], [[0.0, 2.0]], [0])


def test_every_papers_main_verb_takes_a_case_of_the_users_own(tmp_path):
    for name, ask in own_cases(tmp_path):
        assert ask() is not None, name
