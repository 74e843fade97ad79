"""InfoFlow: predictions beside trained networks, a battery of every family, and the published tables."""
