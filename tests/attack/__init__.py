"""An attack on every certificate that shares no line with the package's targets: `python -m tests.attack` prints it."""
