"""The card beside a cut model: what it is, what became of it, and the lines that load it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headcount.shrinking.report_rows import BeforeAfter


def card_of(title: str, headline: str, sentence: str, rows: Sequence[BeforeAfter], causal: bool) -> str:
    """A README in the form that model hubs read.

    >>> card_of("tiny", "x 1.01", "less is left", [], causal=True).splitlines()[5]
    '# tiny, with smaller attention heads'
    """
    kind = "AutoModelForCausalLM" if causal else "AutoModel"
    table = "\n".join(f"| {row['']} | {_figure(row.get('original'))} | {_figure(row.get('compact'))} |" for row in rows)
    return f"""---
library_name: transformers
tags: [compressed, attention]
---

# {title}, with smaller attention heads

{headline}.

{sentence[0].upper() + sentence[1:]}.

| | original | this model |
|---|---:|---:|
{table}

```python
from transformers import {kind}, AutoTokenizer

# runs modeling_headcount.py, which lies beside this file
model = {kind}.from_pretrained(folder, trust_remote_code=True, dtype="float32")
tokenizer = AutoTokenizer.from_pretrained(folder)
```

`headcount.nets.pretrained.load(folder)` and every command of headcount read it too. Every key head has its own number
of dimensions and every value head its own width (`headcount_layout.json`), so stock code without the file beside it
cannot hold these weights; a folder `padded`, where it was asked for, has them filled up with zeros for stock code.
Figures were measured by headcount on the text that the command named, not on a benchmark of tasks.
"""


def _figure(value: Any) -> str:
    if isinstance(value, int) or (isinstance(value, float) and value >= 1000):
        return f"{value:,.0f}"
    return "-" if value is None else f"{value:.4g}"
