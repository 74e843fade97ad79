"""The machinery of promises: it works for any task and network, finds a break where there is one, and keeps files."""

import dataclasses
import json

import pytest
import torch
from torch import nn

from headcount.certificates import (
    Box,
    Built,
    Certificate,
    ClassTokenNet,
    Drawn,
    NetworkShape,
    Term,
    in_box,
    load,
    on_samples,
)
from headcount.certificates.attempts import AllEqual, NearTies, Random
from headcount.sources import Source
from headcount.tasks import Induction, KthLargest, LinearMax

SOURCE = Source("headcount", "a test")


class Exactly(nn.Module):
    """The task itself plus a bump of the given height where the first token is near a point."""

    def __init__(self, task, bump=0.0, where=0.83):
        super().__init__()
        self.task, self.bump, self.where = task, bump, where

    def forward(self, x):
        near = torch.exp(-200 * (x[:, 0, 0] - self.where) ** 2)
        return self.task(x) + self.bump * near


def promise(task, error, *, bump=0.0, domain=None, attempts=None):
    domain = domain or Box(task.length, task.token_dim, 0.0, 1.0)
    certificate = Certificate((Term("all", error, "by hand"),), SOURCE)
    return Built(Exactly(task, bump), task, certificate, domain, attempts or in_box())


@pytest.mark.parametrize("task", [KthLargest(2, 8), LinearMax([[1.0, 0.5]], 6)])
def test_a_true_promise_survives_every_attempt(task):
    check = promise(task, 1e-12).check()
    assert check.holds
    assert check.gap == 0
    assert {t.name for t in check.tried} == {a.name for a in in_box()}


def test_a_bump_that_random_inputs_miss_is_found_by_ascent():
    built = promise(KthLargest(1, 4), 0.2, bump=0.21, attempts=in_box())
    check = built.certificate.check(seed=1)
    assert not check.holds
    assert "BROKEN" in str(check)
    assert built.certificate.trial is not None
    assert float(built.certificate.trial.gaps(check.worst)) == check.gap


def test_a_discrete_domain_is_checked_on_its_samples_alone():
    task = Induction(4, 8)
    assert promise(task, 1e-12, domain=Drawn(task), attempts=on_samples()).check().holds
    with pytest.raises(ValueError, match="known only by its samples"):
        promise(task, 1e-12, domain=Drawn(task), attempts=(NearTies(),)).check()


def test_a_network_that_gives_nan_breaks_its_promise():
    class Broken(nn.Module):
        def forward(self, x):
            return x[:, 0, 0] * torch.nan

    task = KthLargest(1, 4)
    built = dataclasses.replace(promise(task, 1.0), net=Broken(), attempts=(Random(8), AllEqual(8)))
    assert not built.check().holds


def test_the_error_is_at_least_the_sum_of_the_terms_and_survives_json():
    certificate = Certificate(tuple(Term(str(i), 0.1, "because") for i in range(10)), SOURCE, ("a", "b"))
    assert 1.0 <= certificate.error <= 1.0 + 1e-15
    assert Certificate.from_json(json.loads(json.dumps(certificate.to_json()))) == certificate


def test_refusals_are_named():
    with pytest.raises(ValueError, match="finite"):
        Term("features", float("nan"), "")
    with pytest.raises(ValueError, match="distinct names"):
        Certificate((Term("a", 1.0, ""), Term("a", 1.0, "")), SOURCE)
    with pytest.raises(ValueError, match="about no network"):
        Certificate((Term("a", 1.0, ""),), SOURCE).check()
    with pytest.raises(KeyError, match="there are: a"):
        Certificate((Term("a", 1.0, ""),), SOURCE)["b"]
    with pytest.raises(ValueError, match="low < high"):
        Box(2, 2, 1.0, 1.0)
    with pytest.raises(ValueError, match="as many betas"):
        NetworkShape((2, 3, 2), ((1, 2),), (), (2, 3, 1))


def two_layers():
    shape = NetworkShape((3, 5, 4), ((2, 2), (1, 3)), (3.0, 7.0), (4, 6, 1), between=((4, 8, 4),))
    net = ClassTokenNet(shape)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
    task = LinearMax([[1.0, 0.0]], 6)
    return Built(net, task, Certificate((Term("a", 0.1, "b"),), SOURCE), Box(6, 2, -1.0, 1.0), in_box())


def test_two_layers_are_kept_and_loaded_bit_for_bit(tmp_path):
    built = two_layers()
    again = load(built.save(tmp_path / "deep" / "net.safetensors"))
    x = built.domain.sample(5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(built.net(x), again.net(x))
    assert again.certificate == built.certificate
    assert (again.task, again.domain, again.attempts) == (built.task, built.domain, built.attempts)


def test_files_that_are_not_ours_are_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.safetensors")
    (tmp_path / "text.safetensors").write_text("hello, this is not a network")
    with pytest.raises(ValueError, match="not a safetensors file"):
        load(tmp_path / "text.safetensors")
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, tmp_path / "plain.safetensors")
    with pytest.raises(ValueError, match="no certificate"):
        load(tmp_path / "plain.safetensors")
    foreign = json.dumps({"net": {"is": "os:system", "shape": {}}})
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign.safetensors", {"headcount": foreign})
    with pytest.raises(ValueError, match="not part of headcount"):
        load(tmp_path / "foreign.safetensors")
    with pytest.raises(ValueError, match=r"\.onnx or \.pt2"):
        two_layers().export(tmp_path / "net.txt")


def test_a_network_without_a_shape_is_not_saved_half(tmp_path):
    with pytest.raises(ValueError, match="no `shape`"):
        promise(KthLargest(1, 4), 1.0).save(tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []
