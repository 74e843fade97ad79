"""Head count in the theorem's norm: the proved worst error of some ten thousand trained networks.

    python -m studies.worst --device cuda --seconds 450 --out OUT        (on a GPU; goes on from OUT/worst.json)
    python -m studies.worst --small --out OUT                            (a minute on a CPU: the same, in small)

Wells on [0,1]^(length x token_dim), one layer, every network certified to a ratio of 1.5.
"""
