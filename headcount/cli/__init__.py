"""Doors only: each command parses, calls one function, and prints. A room's commands are one file here."""

from headcount.cli.door import app, main

__all__ = ["app", "main"]
