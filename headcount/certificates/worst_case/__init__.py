"""The worst error of trained networks: folded banks, bounds over boxes of tokens, branch and bound, shares, recheck."""
