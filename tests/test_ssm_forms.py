"""One filter in four forms at equal bits: all agree unrounded, and the sentence names who lost least."""

import contextlib
import math

import numpy as np
import pytest
import scipy.signal

from headcount.papers.ssm import DiagonalSSM, by_angle, by_modulus
from headcount.papers.ssm.interchange import from_sos
from headcount.papers.ssm.rival_forms import form_rows, forms_of, winners
from studies.ssm_forms import filters

FILTERS = {
    "Butterworth": from_sos(scipy.signal.butter(6, 0.2, output="sos")),
    "elliptic": from_sos(scipy.signal.ellip(4, 0.5, 40, 0.3, output="sos")),
    "all-pole": DiagonalSSM([0.9, -0.5, 0.3], [1.0, 2.0, -0.5]),
}


@pytest.mark.parametrize("name", FILTERS)
def test_every_form_has_the_filters_own_kernel_when_hardly_rounded(name):
    system = FILTERS[name]
    wanted = np.real(system.impulse(64))
    for form in forms_of(system):
        found = np.real(form.kernel(48, 64))
        assert np.abs(found - wanted).max() < 1e-8 * np.abs(wanted).max(), form.name


@pytest.mark.parametrize("name", FILTERS)
def test_all_forms_are_paid_alike_and_float32_is_float32(name):
    rows = form_rows(FILTERS[name], bits=(12, 32))
    budget = next(r["numbers"] * 12 for r in rows if r["form"] == "sections")
    assert all(r["numbers"] * r["bits"] <= budget for r in rows if r["budget"] == 12)
    assert {r["bits"] for r in rows if r["budget"] == 32} == {32}
    assert all(r["gap"] < 1e-4 for r in rows if r["budget"] == 32)
    best = min((r for r in rows if r["budget"] == 12), key=lambda r: r["gap"])
    assert f"by {best['form']} at 12 bits" in winners(rows)


def test_close_poles_are_what_chains_are_for():
    rows = form_rows(DiagonalSSM([0.99, 0.985, 0.98, 0.975], [400.0, -900.0, 700.0, -199.0]), bits=(16,))
    by = {r["form"]: r["gap"] for r in rows}
    assert by["nested chains"] < 0.3 * min(gap for form, gap in by.items() if form != "nested chains")


def test_a_complex_kernel_has_no_real_rivals():
    with pytest.raises(ValueError, match="for real kernels"):
        forms_of(DiagonalSSM([0.5 + 0.2j], [1.0]))


@pytest.mark.parametrize("seed", range(10))
def test_the_least_depth_is_that_of_the_best_grouping(seed):
    g = np.random.default_rng(seed)
    poles = g.uniform(0.3, 0.95, 3) * np.exp(1j * g.uniform(0.1, 3.0, 3))
    residues = g.normal(size=3) * 30
    system = DiagonalSSM([*poles, *poles.conj()], [*residues, *residues])
    depths = [system.deepen_to(2.0, deal=deal).depth for deal in (by_modulus, by_angle)]
    assert system.deepen_to(2.0).depth == min(depths)
    assert math.isclose(np.abs(system.deepen_to(2.0).impulse(50) - system.impulse(50)).max(), 0.0, abs_tol=1e-9)


@pytest.mark.parametrize("most", [0.95, 1.0, 1.05, 2.0])
@pytest.mark.parametrize("name", filters())
def test_no_grouping_and_depth_has_the_entries_asked_for_in_fewer_layers(name, most):
    """Least depth over all groupings, by trying every depth up to twice the modes."""
    system, found = filters()[name], []
    for depth in range(1, 2 * system.modes + 2):
        for deal in (by_modulus, by_angle):
            with contextlib.suppress(ValueError):
                deep = system.deepen(depth, deal=deal)
                found += [depth] if deep.largest_entry <= most else []
    if found:
        assert system.deepen_to(most).depth == min(found)
