"""Every kind of page in a real browser, on a phone, a tablet and a desk: nothing cut off, nothing in the console."""

import re
from pathlib import Path

import numpy as np
import pytest

import headcount as hc
from headcount.cli.door import main
from headcount.files import write_text
from headcount.measuring import measured as measured_page
from headcount.nets import Transformer, save_net
from headcount.nets.saved import net_bytes
from headcount.papers.prompts.layer_files import PromptProblem, write_problem
from tests.browser import WIDTHS, chromium, faults_of, missing_browser
from tests.test_cli_conclusions import LETTERS

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.html"))


def command(*words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    assert not stop.value.code


def study(folder):
    command("report", ROOT / "docs/data/head_count.json", "--out", folder)
    return folder / "report.html"


def measurement(folder):
    """The page of made-up rows: what `headcount report` draws of a measurement that is kept."""
    rows = tuple(
        {
            "contestant": "zero heads" if h == 0 else f"{h} heads",
            "heads": h,
            "layers": str(h),
            "depth": min(h, 1),
            "attends": h > 0,
            "standard": h > 0,
            "length": 8,
            "seed": s,
            "nmse": 10.0 ** -min(h, 3) * (1 + s / 9),
            "inner": 10.0 ** -min(h, 3),
            "short": 10.0 ** -min(h, 3),
            "train_nmse": 1e-3,
            "final_nmse": 1e-3,
            "parameters": 12345,
        }
        for h in range(9)
        for s in range(4)
    )
    write_text(folder / "report.html", measured_page(hc.Measurement(hc.Study(rows))))
    return folder / "report.html"


def measured(folder):
    x = np.random.default_rng(0).standard_normal((80, 4, 2))
    np.savez(folder / "mine.npz", x=x, y=x[:, :, 0].max(axis=1))
    command(
        "measure",
        folder / "mine.npz",
        "--heads",
        "1-2",
        "--layers",
        "1",
        "--splits",
        "2",
        "--steps",
        "20",
        "--out",
        folder,
    )
    return folder / "report.html"


def classified(folder):
    x = np.random.default_rng(0).standard_normal((80, 4, 2))
    np.savez(folder / "mine.npz", x=x, y=np.where(x[:, :, 0].max(axis=1) > 1, "high", "low"))
    command(
        "measure",
        folder / "mine.npz",
        "--heads",
        "1-2",
        "--layers",
        "1",
        "--splits",
        "2",
        "--steps",
        "20",
        "--out",
        folder,
    )
    return folder / "report.html"


def interpolation(folder):
    x = np.random.default_rng(0).standard_normal((5, 4, 3))
    np.savez(folder / "labels.npz", x=x, y=np.array(list("abcab")))
    command("theory", "interpolate", folder / "labels.npz", "--out", folder)
    return folder / "interpolation.html"


def shaped(folder):
    command("shape", "135M", "--context", "8192", "--vocab", "49152", "--out", folder)
    return folder / "shape.html"


def margin(folder):
    g = np.random.default_rng(0)
    chosen = {"tokens": g.normal(size=(4, 5, 3)), "queries": g.normal(size=(4, 3)), "chosen": np.arange(4)}
    np.savez(folder / "chosen.npz", **chosen)
    command("theory", "margin", folder / "chosen.npz", "--out", folder, "--steps", "50")
    return folder / "margin.html"


def prompt(folder):
    layer = hc.prompts.random_layer(4, np.random.default_rng(3))
    trap = hc.prompts.prompt_trap(layer, 1.0, 3)
    write_problem(folder / "pair.npz", PromptProblem(layer, trap.last, trap.contexts, trap.targets), {})
    command("theory", "prompt", folder / "pair.npz", "--tokens", "1,4", "--starts", "1", "--out", folder)
    return folder / "prompt.html"


def prompt_beside_updates(folder):
    command("theory", "prompt", "--tokens", "1,4", "--starts", "1", "--out", folder)
    return folder / "prompt.html"


def worst(folder):
    net = Transformer(hc.Architecture(layers=((1, 4),), width=8), 2, seed=0)
    (folder / "net.safetensors").write_bytes(net_bytes(net, (0.0, 1.0)))
    sizes = ("--with", "retrievals=1", "--with", "token_dim=2", "--length", "2")
    command("certify", folder / "net.safetensors", "--task", "Wells", *sizes, "--out", folder)
    return folder / "worst.html"


def lens(folder):
    net = Transformer(hc.Architecture(layers=((2, 4), (2, 4)), width=8), 2, seed=0)
    save_net(net, folder / "net.safetensors")
    command("lens", "--own-run", folder / "net.safetensors", "--length", "24", "--out", folder)
    return folder / "lens.html"


def letters(folder):
    (folder / "letters.toml").write_text(LETTERS)
    command("sweep", folder / "letters.toml", "--store", folder / "kept")
    command("report", folder / "kept", "--out", folder)
    return folder / "lengths.html"


def deepened(folder):
    hc.ssm.save(hc.ssm.DiagonalSSM([0.9, -0.5, 0.3], [100.0, 5.0, 2.0]), folder / "system.json")
    command("ssm", "deepen", folder / "system.json", "--depth", "3")
    return folder / "system-deep.html"


QUICK = (study, measurement, interpolation, shaped, margin, prompt, lens, worst, letters, deepened)
SLOW = (measured, classified, prompt_beside_updates)
KINDS = [*QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    reason = missing_browser()
    if reason:
        pytest.skip(reason)
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_of_the_docs_reads_well_at_every_width(browser, page):
    assert {width: faults for width in WIDTHS if (faults := faults_of(browser, page, width))} == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_that_a_command_writes_reads_well_at_every_width(browser, kind, tmp_path):
    page = kind(tmp_path)
    assert {width: faults for width in WIDTHS if (faults := faults_of(browser, page, width))} == {}
    complain_of_words(page.read_text())


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_of_the_docs_says_its_date_and_version_and_names_its_tables(page):
    complain_of_words(page.read_text())


def complain_of_words(text):
    """The footer's date and version; a caption for every table, a scope for every heading of a row or column."""
    assert re.search(rf"<footer>Drawn by headcount {hc.__version__} on 20\d\d-\d\d-\d\d", text)
    tables = re.findall(r"<table.*?</table>", text, flags=re.DOTALL)
    assert all("<caption" in table for table in tables)
    assert not re.findall(r"<th(?![^>]*scope=)[^e][^>]*>", text)


BAD = """<!doctype html><html><head><style>
.hidden { overflow: hidden; width: 100px; white-space: nowrap; } .scroll { overflow-x: auto; }
</style></head><body><div class="hidden">much longer than a hundred pixels are wide</div>
<div class="scroll"><table><tbody><tr><td>first</td><td>
<div style="width:3000px">wide</div></td></tr></tbody></table></div>
<svg viewBox="0 0 100 20" width="100"><text x="90" y="15" font-size="12">outside</text>
<text x="0" y="9" font-size="4">tiny</text>
<text x="30" y="15" font-size="12">one</text><text x="32" y="15" font-size="12">two</text></svg>
<script>missing();</script></body></html>"""


def test_the_browser_sees_what_is_wrong(browser, tmp_path):
    (tmp_path / "bad.html").write_text(BAD)
    found = " ".join(faults_of(browser, tmp_path / "bad.html", 390))
    for fault in ("cut off", "scrolls without a hint", "outside its figure", "letters of 4.0 px", "overlap", "console"):
        assert fault in found, found
