"""One folder a paper: its bounds, networks, experiments, published numbers and how they are made again."""
