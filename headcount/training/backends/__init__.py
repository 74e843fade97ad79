"""The ways a bank is computed: plain products, one-layer kernels (fused), kernels by layer, and the choice."""
