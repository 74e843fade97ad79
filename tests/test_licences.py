"""Every data set, model and file that comes from elsewhere has its row in docs/licences.md."""

import re
import subprocess
from pathlib import Path

import pytest

from headcount.nets.pretrained.model_places import packaged_folder
from studies.measure.sets import REAL

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/licences.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]
CODE = {
    path: path.read_text()
    for room in ("studies", "headcount", "examples", "benchmarks")
    for path in (ROOT / room).rglob("*.py")
}
KINDS = r"(?:npz|csv|txt|json\.gz|tsv|ts)"
FOREIGN = re.compile(
    r"wikitext|shakespeare|ms ?marco|cranfield|cifar|pubmed|minilm|smollm|spoken digit|etth1|mnist|\"digits\"", re.I
)


def folders_of_data() -> set[str]:
    """The folders from which code reads data: `wikitext2/valid.txt` names wikitext2."""
    named = (re.findall(rf"\"([a-z0-9_]+)/[\w.{{}}/]+\.{KINDS}\"", text) for text in CODE.values())
    return {folder for found in named for folder in found} - {"out"}  # where runs write


def loaders() -> set[str]:
    named = (re.findall(r"from sklearn.datasets import ([\w, ]+)", text) for text in CODE.values())
    return {name.strip() for found in named for names in found for name in names.split(",")}


def packages() -> set[str]:
    calls = r"(?:model_and_tokenizer|packaged_folder)\(\"([a-z0-9-]+)\""
    return {name for text in CODE.values() for name in re.findall(calls, text)}


def tracked(*places: str) -> list[str]:
    done = subprocess.run(["git", "ls-files", *places], capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout.split() or [str(p.relative_to(ROOT)) for place in places for p in (ROOT / place).rglob("*")]


def test_every_folder_of_data_has_its_terms():
    found = folders_of_data()
    assert {"msmarco", "wikitext2", "fsdd"} <= found
    assert [name for name in sorted(found) if f"`{name}`" not in PAGE] == []


def test_every_loader_of_a_wheel_and_every_package_of_weights_has_its_terms():
    assert len(loaders()) >= 4 and len(packages()) == 2
    assert [name for name in sorted(loaders() | packages()) if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("one", REAL, ids=lambda one: one.name)
def test_a_real_set_of_the_bench_stands_under_the_terms_that_the_bench_states(one):
    name = one.name.removesuffix(" rows").removesuffix(" windows")
    (row,) = [row for row in ROWS if re.search(rf"\b{re.escape(name)}\b", row.split("|")[1])]
    said = row.split("|")[4].strip()
    assert said == "none stated" or said in one.terms


def test_every_file_that_speaks_of_data_of_others_says_so_on_the_page():
    files = [f for f in tracked("docs/data", "docs/images", "headcount") if f.endswith((".json", ".toml", ".svg"))]
    foreign = [file for file in files if FOREIGN.search((ROOT / file).read_text())]
    assert len(foreign) > 10
    assert [file for file in foreign if file not in PAGE] == []
    assert [file for file in re.findall(r"(?:docs|headcount)/[\w/.-]+\.(?:json|svg|png|toml)", PAGE)
            if not (ROOT / file).exists()] == []  # fmt: skip


def test_no_data_and_no_weights_of_others_are_in_the_repository():
    large = (".npz", ".npy", ".gz", ".csv", ".parquet", ".safetensors", ".gguf", ".bin", ".pt")
    found = [file for file in tracked("docs", "headcount", "studies", "examples", "benchmarks") if file.endswith(large)]
    made = [file for file in found if file.startswith("docs/formats/")]  # by studies.site.format_files, from seeds
    assert found == made and sum((ROOT / file).stat().st_size for file in made) < 100_000
    assert packaged_folder("a-package-that-nobody-has") is None
