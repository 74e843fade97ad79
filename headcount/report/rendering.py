"""The one place where templates become pages; jinja2 is loaded by the first page, not by the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headcount.drawing.palette import stylesheet
from headcount.drawing.svg import Figure
from headcount.numerals import counted, short, spelt, today

if TYPE_CHECKING:
    from markupsafe import Markup


def render(template: str, *packages: str, date: str = "", **values: Any) -> str:
    """A page from a template of this room or of the `packages` given; `style` is the figures' stylesheet.

    Every page says when and by which version it was drawn: today, unless its data give a `date`.

    What a page is given is escaped in HTML, and stands as it is in Markdown.
    """
    import jinja2

    from headcount._version import __version__

    homes = [jinja2.PackageLoader(package, "templates") for package in (*packages, "headcount.report")]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(homes),
        autoescape=template.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "counted": counted,
        "nmse": lambda value: short(value, 2, padded=True),
        "number": lambda value: short(value, missing="-"),
        "sentence": lambda text: text[:1].upper() + text[1:],
        "slug": lambda text: text.replace(" ", "-"),
        "spelt": spelt,
    }
    date = date or today()
    loaded = environment.get_template(template)
    return loaded.render(style=trusted(stylesheet()), version=__version__, date=date, **values)


def trusted(text: str) -> Markup:
    """Text of our own making that a page takes as it is."""
    from markupsafe import Markup

    return Markup(text)


def both(name: str, wide: Figure, narrow: Figure) -> Markup:
    """A figure twice, for a desk and for a phone; the stylesheet shows one of them."""
    desk = f'<div class="wide">{wide.inline(name)}</div>'
    return trusted(desk + f'<div class="narrow">{narrow.inline(name + "-narrow")}</div>')
