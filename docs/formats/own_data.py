"""Sequences from a function of your own: headcount measure own_data:pairs."""

import numpy as np


def pairs():
    x = np.random.default_rng(0).normal(size=(60, 4, 2))
    return x, x[:, :, 0].max(axis=1)
