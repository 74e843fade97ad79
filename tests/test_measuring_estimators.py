"""The scikit-learn estimators do what scikit-learn asks of one."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import (
    check_estimator,
    check_estimators_unfitted,
    check_fit2d_1sample,
    check_methods_subset_invariance,
)

from headcount.measuring import Classifier, Regressor

SMALL = {"steps": 200, "width": 16, "embed_dim": 16, "rates": (4e-3,)}


def data():
    x = 20 + 3 * np.random.default_rng(0).standard_normal((200, 4, 1))
    return x, x.max(axis=(1, 2))


def test_a_regressor_learns_a_maximum_and_scores_by_r_squared():
    x, y = data()
    model = Regressor(1, **SMALL).fit(x, y)
    assert model.score(x, y) > 0.8
    assert model.predict(x[:, :, 0]).shape == (200,)


def test_a_classifier_gives_back_classes_as_they_were_given():
    x, y = data()
    names = np.where(y > np.median(y), "high", "low")
    model = Classifier(1, **SMALL).fit(x, names)
    assert model.score(x, names) > 0.85 and set(model.predict(x)) == {"high", "low"}
    np.testing.assert_allclose(model.predict_proba(x).sum(axis=1), 1, rtol=1e-6)


def test_parameters_are_read_set_and_cloned_and_folds_can_be_made():
    model = Regressor(3, **SMALL)
    assert clone(model).get_params() == model.get_params() and model.get_params()["heads"] == 3
    assert len(cross_val_score(model.set_params(heads=1, steps=20), *data(), cv=2)) == 2


def test_the_same_seed_gives_the_same_network():
    x, y = data()
    one, two = (Regressor(1, **{**SMALL, "steps": 20}).fit(x, y).predict(x) for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", [Regressor, Classifier])
def test_an_estimator_that_is_not_fitted_or_has_one_sample_says_so(kind):
    for check in (check_estimators_unfitted, check_fit2d_1sample, check_methods_subset_invariance):
        check(kind.__name__, kind(1, **SMALL))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Regressor, Classifier])
def test_scikit_learns_own_checks_pass(kind):
    check_estimator(
        kind(1, steps=400, width=16, embed_dim=16, rates=(4e-3,)), on_skip=None
    )  # array API and pandas are not installed


def test_the_front_names_them_and_ragged_lists_letters_folds_and_searches_work():
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import headcount as hc

    assert hc.Classifier is Classifier and hc.Regressor is Regressor
    x, y = data()
    tiny = {**SMALL, "steps": 20}
    ragged = [one[: 2 + i % 3] for i, one in enumerate(x)]
    assert Regressor(1, **tiny).fit(ragged, y).predict(ragged).shape == (200,)
    words = ["abc"[: 1 + i % 3] for i in range(90)]
    letters = Classifier("auto", tokens="letters", **tiny).fit(words, [i % 3 for i in range(90)])
    assert set(letters.predict(words)) <= {0, 1, 2}
    assert len(cross_val_score(make_pipeline(StandardScaler(), Regressor(1, **tiny)), x[:, :, 0], y, cv=2)) == 2
    assert GridSearchCV(Regressor(**tiny), {"heads": [1, 2]}, cv=2).fit(x, y).best_params_["heads"] in (1, 2)


def test_ragged_objects_ids_and_missing_values_go_through_folds_searches_and_pipelines():
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline

    rng, tiny = np.random.default_rng(0), {**SMALL, "steps": 20}
    y = np.arange(90) % 2
    ragged = np.array([rng.standard_normal((2 + i % 4, 2)) for i in range(90)], dtype=object)
    ids = [rng.integers(0, 7, 3 + i % 3).tolist() for i in range(90)]
    for given in (ragged, list(ragged)):
        assert np.isfinite(cross_val_score(Classifier(1, **tiny), given, y, cv=2, error_score="raise")).all()
    piped = Pipeline([("model", Classifier(1, tokens="letters", **tiny))])
    assert GridSearchCV(piped, {"model__layers": [1, 2]}, cv=2, error_score="raise").fit(ids, y).predict(ids).shape == (
        90,
    )
    gaps = np.where(rng.random((90, 5, 2)) < 0.1, np.nan, rng.standard_normal((90, 5, 2)))
    assert np.allclose(Classifier(1, **tiny).fit(gaps, y).predict_proba(gaps).sum(axis=1), 1)


@pytest.mark.parametrize("wrong", [{"heads": 0}, {"heads": "many"}, {"layers": 0}, {"heads": 1.5}])
def test_heads_and_layers_that_are_none_are_refused_by_name(wrong):
    x, y = data()
    name = next(iter(wrong))
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1"):
        Regressor(**{**SMALL, "heads": 1, **wrong}).fit(x, y)
