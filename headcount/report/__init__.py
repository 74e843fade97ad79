"""Rows into tables, figures and one self-contained page: pure functions of a stored study. No torch."""

from headcount.drawing.svg import Figure
from headcount.report.article import Exhibit, Passage, article
from headcount.report.curves import curves
from headcount.report.head_pictures import attention_page, hit_matrix
from headcount.report.heat_map import heat_map
from headcount.report.lengths import against_length
from headcount.report.page import figure, paper_figure, report, write

__all__ = [
    "Exhibit",
    "Figure",
    "Passage",
    "article",
    "attention_page",
    "against_length",
    "curves",
    "figure",
    "heat_map",
    "hit_matrix",
    "paper_figure",
    "report",
    "write",
]
