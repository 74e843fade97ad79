"""The site: Markdown, notebooks, docstrings and records in; a folder of pages that needs no network out.

`make site` builds it (`python -m studies.site`), and fails where a link inside it leads nowhere.
"""
