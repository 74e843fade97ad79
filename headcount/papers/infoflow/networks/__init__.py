"""The multi-layer constructions of the InfoFlow paper as networks with certificates, and `build` that chooses one."""
