"""All methods on SmolLM2-135M, and self-distillation after the cut, on a device that has torch and transformers alone.

    python -m studies.language_model pack --texts FOLDER    # where the packages are: writes .gpu/lm_a, lm_b, lm_c
    python -m studies.language_model run --out DIR          # on the device, from lm_a and lm_b
    python -m studies.language_model teach --out DIR        # there, the teaching alone and longer
    python -m studies.language_model two-cores --out DIR    # the command's own bench on two cores, from lm_a and lm_b
    python -m studies.language_model encoder --out DIR      # `compress` on a sentence encoder, from lm_c
    python -m studies.language_model doors --folder MADE    # transformers and ONNX on what `compress` wrote
    python -m studies.language_model check --out DIR        # the first on a tiny random model, on a CPU
    python -m studies.language_model page                   # docs/compress.md, from docs/data

The quantised weights travel as they are, in two parts; the texts as token ids. Every figure is added to
DIR/language_model.json as soon as it is known, and what is there is not measured again.
WikiText-2 is calibrated, chosen and tuned on by its validation text alone, and judged on its test text. What is taught
on is passages of MS MARCO, abstracts of PubMedQA and tiny Shakespeare; parts of these that were kept apart are judged.
"""
