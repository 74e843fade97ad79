"""One folder per paper: its bounds, networks, experiments, published numbers and how they are made again."""
