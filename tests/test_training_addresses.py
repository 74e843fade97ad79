"""Stored rows are found by these addresses: a change of a class, a field or a module must leave every one as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headcount.nets import Architecture
from headcount.tasks import KthLargest, LinearMax, PairMax, Wells
from headcount.training import Given, Member, Recipe, Schedule

SMALL = Recipe(samples=64, validation=32, epochs=2, batch=32)
ONE = Architecture(layers=((1, 4),), width=8)
DEEP = Architecture(layers=((2, 8), (3, 4)), width=16)
MAX = KthLargest(rank=1, length=4)


def stored() -> Iterator[tuple[Member, Recipe]]:
    """Members of every kind that a store may hold."""
    yield Member(MAX, ONE), SMALL
    yield Member(MAX, ONE), Recipe()
    yield Member(KthLargest(rank=2, length=16), ONE, seed=3, data_seed=5), SMALL
    yield Member(LinearMax(((1.0, 0.0), (0.6, 0.8)), length=8), DEEP, lr=1e-2), SMALL
    yield Member(Wells.random(2, 3, 8), ONE, weight_decay=0.0), SMALL
    yield Member(PairMax.random(2, 3, 8), DEEP), SMALL
    yield Member(MAX, Architecture(layers=((2, 4),), width=8, positions=2)), SMALL
    yield Member(MAX, Architecture(layers=((2, 4),), width=8, embed_dim=12)), SMALL
    yield Member(MAX, Architecture(layers=((2, 4), (2, 4)), width=8, class_token="last")), SMALL
    yield Member(MAX, Architecture(layers=((2, 4), (2, 4)), width=8, residual=False)), SMALL
    yield Member(MAX, Architecture(layers=((2, 4),), width=8, embedding="linear", activation="gelu")), SMALL
    yield Member(Given("0123456789abcdef", length=4, token_dim=3), ONE), SMALL
    yield Member(Given("0123456789abcdef", length=4, token_dim=3), Architecture(((1, 4),), 8, outputs=5)), SMALL
    yield Member(MAX, DEEP, base=Architecture(layers=((1, 4), (1, 4)), width=8)), SMALL
    yield Member(MAX, ONE, start="built"), SMALL
    yield Member(MAX, ONE), Recipe(schedule=Schedule("wsd", 0.2))
    yield Member(MAX, ONE), Recipe(noise=0.1, read_out=0.0)
    yield Member(MAX, ONE), Recipe(fresh=True, patience=3, warmup=0.1, evaluations=7)
    yield Member(MAX, ONE), Recipe(dtype="float64")


ADDRESSES = (
    "0e494dabe0fadd7c",
    "09f7853e64a995c4",
    "15f6bb3e9dfbc30e",
    "b78d38633a027e22",
    "2062371c5af319b4",
    "f2bf1c67a7a48f70",
    "ffaf29a85e0dfa0b",
    "8c833c1eb066eb97",
    "cfd6bc12dd8db326",
    "fe4abf4ab6ccca1e",
    "15c6ff2167b6ada2",
    "ca2293c3469a7c24",
    "cf10b3294771706d",
    "1d6a7115f0c7b7a5",
    "4c81d8e383dff396",
    "214d54d0bab8ad0f",
    "4ef9e1aa22514408",
    "b5ef0b255a7bb47b",
    "6b6f9907570e5f90",
)
OWN = "cb85730f6e182996"


@pytest.mark.parametrize("number", range(len(ADDRESSES)))
def test_the_address_of_a_stored_row_is_what_it_was(number: int) -> None:
    member, recipe = list(stored())[number]
    assert member.run(recipe) == ADDRESSES[number]


def test_every_stored_kind_has_its_address() -> None:
    assert len(list(stored())) == len(ADDRESSES) == len(set(ADDRESSES))


def test_an_own_task_is_addressed_by_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_golden_task.py").write_text(
        "from dataclasses import dataclass\n"
        "from headcount.tasks import KthLargest\n\n\n"
        "@dataclass(frozen=True)\nclass Second(KthLargest):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from own_golden_task import Second  # pyright: ignore[reportMissingImports]

    assert Member(Second(rank=2, length=4), ONE).run(SMALL) == OWN
