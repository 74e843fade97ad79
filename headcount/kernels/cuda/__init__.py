"""Deep banks and decoders by programs in CUDA C++, one for every shape."""
