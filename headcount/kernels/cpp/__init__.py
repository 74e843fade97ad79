"""Banks on a CPU in C++, compiled once by the machine's own compiler."""
