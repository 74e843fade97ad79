"""Tasks over letters: what is to be said is what a loop over places says, and every string is a sample of its task."""

import pytest
import torch

from headcount.tasks.alternation import Alternation
from headcount.tasks.copies import Copy
from headcount.tasks.neighbours import Neighbour


def drawn(task, lengths, batch=400, seed=0):
    strings = task.strings(batch, lengths, generator=torch.Generator().manual_seed(seed))
    for ids, targets, judged in zip(
        strings.ids.tolist(), strings.targets.tolist(), strings.judged.tolist(), strict=True
    ):
        yield ids, {t: targets[t] for t, here in enumerate(judged) if here}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("which", ["only", "first", "last"])
def test_a_neighbour_is_the_one_a_loop_finds(side, which):
    task = Neighbour(side, which)
    bos, sep, eos = task.letters, task.letters + 1, task.letters + 2
    sizes = set()
    for ids, said in drawn(task, (4, 12)):
        end = ids.index(sep)
        context, query = ids[1:end], ids[end + 1]
        copies = [j for j, letter in enumerate(context) if letter == query]
        assert (len(copies) == 1) == (which == "only")
        place = copies[-1] if which == "last" else copies[0]
        answer = place + (1 if side == "right" else -1)
        assert 0 <= answer < len(context)
        assert said == {end + 1: context[answer]}
        assert ids[0] == bos and ids[end + 2] == context[answer] and set(ids[end + 3 :]) == {eos}
        sizes.add(len(context))
    assert sizes == set(range(4, 13))


def test_the_published_rule_for_left_of_the_first_takes_the_last_letter_in_a_quarter_of_its_samples():
    """The published generator reads context[pos - 1] with pos = 0; its share at lengths 4 to 49 is 25.1% exactly."""
    g = torch.Generator().manual_seed(0)
    wrong = total = 0
    while total < 20_000:
        n = int(torch.randint(4, 50, (1,), generator=g))
        context = torch.randint(5, (n,), generator=g)
        copies = (context == context[torch.randint(n, (1,), generator=g)]).nonzero()[:, 0]
        if len(copies) > 1:
            total += 1
            wrong += int(copies[0] == 0)
    assert wrong / total == pytest.approx(0.251, abs=0.01)


@pytest.mark.parametrize(("low", "high", "share"), [(4, 50, 0.251), (51, 100, 0.211), (101, 150, 0.2065)])
def test_the_share_of_mislabelled_samples_is_that_of_the_closed_form(low, high, share):
    """At length n a draw is kept with probability 1 - 0.8^(n-1), and stands first with (1/n)(1 - 0.8^(n-1)) +
    (1 - 1/n)/5; both are summed over n, for a rejected draw takes a new length."""
    kept = [1 - 0.8 ** (n - 1) for n in range(low, high)]
    first = [k / n + (1 - 1 / n) / 5 for n, k in zip(range(low, high), kept, strict=True)]
    assert sum(first) / sum(kept) == pytest.approx(share, abs=5e-4)
    g = torch.Generator().manual_seed(low)
    n = torch.randint(low, high, (40_000, 1), generator=g)
    context = torch.randint(5, (40_000, high), generator=g).masked_fill(torch.arange(high) >= n, -1)
    query = context.gather(1, (torch.rand((40_000, 1), generator=g) * n).long())
    copies = context == query
    good = copies.sum(dim=1) > 1
    assert copies[good, 0].double().mean().item() == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("distinct", [False, True])
def test_a_copy_is_the_source_or_its_reverse(backward, distinct):
    task = Copy(backward, distinct, letters=20 if distinct else 5)
    for ids, said in drawn(task, (3, 9)):
        end = ids.index(task.letters + 1)
        source = ids[1:end]
        wanted = [*(source[::-1] if backward else source), task.letters + 2]
        assert list(said.values()) == wanted and min(said) == end
        assert (len(set(source)) == len(source)) or not distinct


def test_the_share_of_repeats_stays_with_ambiguous_and_jumps_without():
    def shares(task):
        found = []
        for n in (10, 20, 40):
            strings = task.strings(200, (n, n), generator=torch.Generator().manual_seed(n))
            found.append(sum(1 - len(set(s[1 : n + 1])) / n for s in strings.ids.tolist()) / 200)
        return found

    assert max(kept := shares(Copy(distinct=False, letters=60, ambiguous=0.4))) - min(kept) < 0.06
    assert max(free := shares(Copy(distinct=False, letters=20))) - min(free) > 0.25


@pytest.mark.parametrize("blocks", [1, 2, 3, 6])
def test_an_alternation_says_yes_from_its_last_block_on(blocks):
    for ids, said in drawn(Alternation(blocks), (blocks, 14)):
        word = ids[1 : 1 + len(said)]
        block, expected = 1, {}
        for t, letter in enumerate(word):
            block += t > 0 and letter != word[t - 1]
            expected[t + 1] = 3 if block == blocks else 2
        assert said == expected and block == blocks and word[0] == 0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Neighbour("up"), "right or left"),
        (lambda: Neighbour(letters=1), "at least 2"),
        (lambda: Copy(ambiguous=0.5), "share"),
        (lambda: Alternation(0), "at least 1"),
        (lambda: Copy(letters=5).strings(1, (6, 6)), "distinct letters"),
        (lambda: Alternation(5).strings(1, (3, 4)), "5 blocks"),
        (lambda: Neighbour(which="last").strings(1, (1, 2)), "at least 3"),
    ],
)
def test_what_cannot_be_drawn_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
