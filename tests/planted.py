"""Studies whose answer is known: published tables turned into rows, and curves with a planted knee or exponent."""

import numpy as np

from headcount.results import Study

LENGTHS = (8, 16, 32, 64, 128)

# NMSE by heads (down) and length (across), from the synthetic section of the head-count paper.
TABLE_2 = (  # four retrievals, head_dim 8; mean over seeds
    (7.01e-2, 1.09e-1, 1.10e-1, 1.14e-1, 1.45e-1),
    (7.31e-3, 8.41e-3, 9.42e-3, 1.31e-2, 1.47e-2),
    (6.94e-4, 6.40e-4, 9.09e-4, 1.31e-3, 1.58e-3),
    (6.10e-5, 4.36e-5, 4.80e-5, 8.75e-6, 5.23e-6),
    (3.35e-5, 1.10e-5, 4.91e-6, 4.19e-6, 3.99e-6),
)
TABLE_2_SPREAD = (  # standard deviation over seeds
    (5.99e-2, 9.93e-2, 9.36e-2, 8.53e-2, 1.05e-1),
    (4.75e-4, 7.97e-4, 6.42e-4, 1.16e-2, 1.21e-2),
    (2.90e-4, 3.87e-4, 4.31e-4, 5.10e-4, 5.21e-4),
    (1.52e-4, 1.93e-4, 2.30e-4, 5.58e-5, 5.67e-6),
    (5.84e-5, 2.36e-5, 6.32e-6, 8.39e-6, 4.29e-6),
)
TABLE_3 = (  # four retrievals, embed_dim 32
    (1.75e-2, 1.98e-2, 2.06e-2, 2.54e-2, 3.03e-2),
    (7.17e-3, 7.39e-3, 7.82e-3, 8.57e-3, 1.02e-2),
    (2.11e-4, 2.17e-4, 2.73e-4, 3.71e-4, 4.77e-4),
    (1.32e-6, 5.59e-7, 3.40e-7, 3.46e-7, 5.70e-7),
    (2.19e-6, 4.33e-7, 3.22e-7, 2.73e-7, 2.66e-7),
)
TABLE_4 = (  # three retrievals, embed_dim 32
    (1.38e-2, 1.63e-2, 1.84e-2, 2.17e-2, 2.31e-2),
    (1.09e-3, 7.08e-4, 7.24e-4, 7.76e-4, 1.11e-3),
    (4.18e-7, 1.72e-7, 1.17e-7, 3.58e-7, 2.11e-7),
    (5.56e-7, 1.22e-7, 6.89e-8, 1.85e-7, 3.48e-7),
)
TABLE_5 = (  # four retrievals, two layers: two heads in each are enough
    (2.12e-4, 1.85e-4, 2.22e-4, 3.13e-4, 4.28e-4),
    (7.22e-6, 2.69e-6, 3.50e-6, 3.07e-6, 3.83e-6),
    (8.16e-6, 1.83e-6, 1.73e-6, 3.86e-6, 3.50e-6),
    (3.68e-6, 1.87e-6, 2.60e-6, 4.32e-6, 5.98e-6),
    (6.15e-6, 3.02e-6, 3.31e-6, 3.78e-6, 5.34e-6),
)

ENVIRONMENT = {
    "python": "3.12.4",
    "torch": "2.13.0",
    "numpy": "2.5.0",
    "platform": "Linux x86_64",
    "device": "cpu",
    "threads": 2,
    "headcount": "0.1.0",
}


TOML = """\
seeds = 6

[task]
name = "LinearMax"
retrievals = RETRIEVALS
token_dim = 4

[grid]
lengths = [8, 16, 32, 64, 128]
heads = [1, 2, 3, 4, 5]
head_dim = 8
width = 32

[training]
samples = 8000
epochs = 1000
lr = 3e-3
"""


def row(heads, length, seed, nmse, **columns):
    """One row with every column a sweep writes."""
    whole = {
        "run": f"{heads:02d}{length:04d}{seed:02d}a7c3f1",
        "task": "LinearMax",
        "length": length,
        "heads": heads,
        "head_dim": 8,
        "layers": f"{heads}x8",
        "embed_dim": 8 * heads,
        "width": 32,
        "positions": 0,
        "parameters": 64 * heads**2 + 200,
        "feedforward_parameters": 600 * heads + 33,
        "seed": seed,
        "data_seed": 0,
        "lr": 0.003,
        "weight_decay": 0.0,
        "steps": 20000,
        "nmse": nmse,
        "final_nmse": nmse if nmse is None else 1.1 * nmse,
        "train_nmse": nmse if nmse is None else 0.8 * nmse,
        "best_step": 19000,
        "status": "done",
    }
    return {**whole, **columns}


def spec(retrievals, asked=None):
    """A spec that predicts `retrievals` heads."""
    structure = {"length": 32, "token_dim": 4, "retrievals": [{"name": "maxima", "count": retrievals}]}
    recipe = {"samples": 8000, "validation": 2000, "epochs": 1000, "batch": 256, "warmup": 0.05}
    toml = TOML.replace("RETRIEVALS", str(retrievals))
    return {"structure": structure, "recipe": recipe, "toml": toml, **({} if asked is None else {"asked": asked})}


def tabled(table, retrievals):
    """A published table as a study of one seed a cell."""
    rows = [row(h, T, 0, table[h - 1][j]) for h in range(1, len(table) + 1) for j, T in enumerate(LENGTHS)]
    return Study(tuple(rows), spec(retrievals))


def published(seeds=6, seed=0):
    """Table 2 with seeds: most near a typical value, a few stuck where one head fewer would be.

    The chance of sticking and the typical value are those that give the published mean and standard deviation.
    It is one reading of the two numbers; `log_normal` is the other, and six seeds of that decide less.
    """
    generator = np.random.default_rng(seed)
    rows = []
    for h in range(1, 6):
        for j, T in enumerate(LENGTHS):
            mean, spread = TABLE_2[h - 1][j], TABLE_2_SPREAD[h - 1][j]
            stuck = TABLE_2[min(h - 2, 2)][j] if h > 1 else 1.0
            chance = min((spread / stuck) ** 2, 0.5)
            typical = max(mean - chance * stuck, mean / 10)
            middle = np.where(generator.random(seeds) < chance, stuck, typical)
            drawn = middle * 10 ** (0.12 * generator.standard_normal(seeds))
            rows += [row(h, T, s, float(min(value, 1.0))) for s, value in enumerate(drawn)]
    return Study(tuple(rows), spec(4, asked=len(rows)), ENVIRONMENT, "head-count-table-2")


def log_normal(seeds=6, seed=0):
    """Table 2 with seeds drawn log-normally to the same means and standard deviations."""
    generator = np.random.default_rng(seed)
    rows = []
    for h in range(1, 6):
        for j, T in enumerate(LENGTHS):
            mean, spread = TABLE_2[h - 1][j], TABLE_2_SPREAD[h - 1][j]
            wide = np.log1p((spread / mean) ** 2)
            drawn = np.exp(np.log(mean) - wide / 2 + np.sqrt(wide) * generator.standard_normal(seeds))
            rows += [row(h, T, s, float(min(value, 1.0))) for s, value in enumerate(drawn)]
    return Study(tuple(rows), spec(4))


def planted(generator, *, knee, heads, seeds, lengths=(8,), noise=0.2, fail=0.15, drift=0.1, falls=(0.5, 2.5)):
    """A study whose log NMSE falls irregularly up to `knee` heads and drifts after it, with failing seeds."""
    rows = []
    for T in lengths:
        fall = np.where(
            np.arange(1, heads + 1) <= knee, generator.uniform(*falls, heads), generator.normal(0, drift, heads)
        )
        levels = np.concatenate([[0.0], -np.cumsum(fall)])
        for h in range(1, heads + 1):
            stuck = generator.random(seeds) < fail  # as good as one head fewer
            logs = levels[h - stuck] + noise * generator.standard_normal(seeds)
            rows += [row(h, T, s, float(10.0**value)) for s, value in enumerate(logs)]
    return Study(tuple(rows), spec(knee))


def power_study(generator, *, exponent, share, sizes=(8, 16, 32, 64, 128, 256, 512), seeds=5, noise=0.12, fail=0.1):
    """A study whose NMSE is a power law in width, the floor being `share` of it at the largest, with failing seeds."""
    floor = share / (1 - share) * sizes[-1] ** -exponent
    rows = []
    for w in sizes:
        logs = np.log10(floor + w**-exponent) + noise * generator.standard_normal(seeds)
        logs += np.where(generator.random(seeds) < fail, generator.uniform(0.3, 1.5, seeds), 0.0)
        rows += [row(4, 8, s, float(10.0**value), width=w) for s, value in enumerate(logs)]
    return Study(tuple(rows))
