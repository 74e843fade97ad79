"""The house tests itself: arrows run one way, a name stands for one thing, nothing goes in a ring, and what promises to
need no torch needs none."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "headcount"

# From the roof down. A room may use every floor below its own, and of its own floor only what NEIGHBOURS names.
FLOORS = (
    ("cli", "__main__"),
    ("measuring", "sizing", "shrinking", "reproduction"),
    ("papers",),
    ("report", "fits", "certificates", "training"),
    ("kernels",),
    ("tasks", "nets", "drawing"),
    ("results",),
    (
        "_version",
        "sources",
        "structure",
        "refusals",
        "numerals",
        "notebook",
        "files",
        "frozen",
        "lazy",
        "code_cache",
        "visible",
        "limits",
        "listings",
    ),
)
NEIGHBOURS = {("report", "fits"), ("__main__", "cli")}
GROUND = FLOORS[-1]  # its files may use each other; the test of rings watches them
SHARED_FILES = {"__init__", "__main__", "bounds", "networks", "experiments", "published", "reproduce"}
HEAVY = ("torch", "scipy", "jinja2", "matplotlib")


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name; a folder by its own name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def named(node: ast.stmt) -> Iterator[str]:
    """The modules of the package that an import statement names."""
    if isinstance(node, ast.Import):
        wanted = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        inside = [f"{node.module}.{alias.name}" for alias in node.names if alias.name != "__version__"]
        wanted = [name if name in modules() else node.module for name in inside]
    else:
        wanted = []
    yield from (name for name in wanted if name.split(".")[0] == "headcount")


def on_loading(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is loaded: not those of functions, nor what only a type checker reads."""
    for node in statements:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from on_loading([*node.body, *node.orelse])
        elif isinstance(node, ast.Try | ast.With | ast.ClassDef):
            yield from on_loading(node.body)


def room_of(module: str) -> str:
    """The first name below the package, or the package's own front."""
    return [*module.split("."), "__init__"][1]


def paper_of(module: str) -> str:
    """The name of the paper whose folder holds the module, or nothing."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["papers"] and len(parts) > 2 else ""


def arrows() -> set[tuple[str, str]]:
    """Who names whom anywhere, also inside a function or for the type checker alone."""
    return {
        (module, target)
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        for target in named(node)
    }


def rings(graph: dict[str, set[str]]) -> list[str]:
    """The names from which some way leads back to themselves."""
    return [name for name in graph if name in reached(graph, graph[name])]


def reached(graph: dict[str, set[str]], start: set[str]) -> set[str]:
    seen, left = set(), list(start)
    while left:
        if (name := left.pop()) not in seen:
            seen.add(name)
            left += graph.get(name, ())
    return seen


def allowed(one: str, other: str) -> bool:
    """Whether a room may use another."""
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    if other == "__init__":  # the front knows every room, so only what stands above them all may use it
        return one in {"cli", "__main__", "reproduction"}
    if one in GROUND and other in GROUND:
        return True
    return one == other or floor[one] < floor[other] or (one, other) in NEIGHBOURS


def test_every_room_has_its_floor():
    rooms = {room_of(module) for module in modules()} - {"__init__"}
    assert rooms == {room for floor in FLOORS for room in floor}


def test_arrows_between_rooms_run_one_way():
    wrong = {f"{a} -> {b}" for a, b in arrows() if room_of(a) != "__init__" and not allowed(room_of(a), room_of(b))}
    assert wrong == set()


def test_the_rule_of_arrows_sees_each_kind_of_wrong_one():
    for one, other in (("training", "papers"), ("tasks", "nets"), ("nets", "tasks"), ("results", "drawing")):
        assert not allowed(one, other)
    assert not allowed("fits", "report") and not allowed("report", "certificates") and allowed("report", "fits")


def test_papers_cite_each_other_in_no_ring():
    graph = defaultdict(set)
    for a, b in arrows():
        if paper_of(a) and paper_of(b) and paper_of(a) != paper_of(b):
            graph[paper_of(a)].add(paper_of(b))
    assert rings(graph) == []


def test_no_modules_ask_each_other_in_a_ring_inside_functions_either():
    class Asked(ast.NodeVisitor):
        def __init__(self, tree: ast.Module) -> None:
            self.targets: set[str] = set()
            self.visit(tree)

        def visit_If(self, node: ast.If) -> None:
            if "TYPE_CHECKING" not in ast.unparse(node.test):
                self.generic_visit(node)

        def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
            self.targets |= set(named(node))

        visit_ImportFrom = visit_Import

    graph = {module: Asked(tree).targets - {module} for module, tree in modules().items()}
    assert [name for name in rings(graph) if name != "headcount"] == []


def test_no_modules_load_each_other_in_a_ring():
    graph = {
        module: {target for node in on_loading(tree.body) for target in named(node)} - {module}
        for module, tree in modules().items()
    }
    assert rings(graph) == []
    assert rings({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]


def test_a_public_class_has_a_name_of_its_own():
    homes = defaultdict(list)
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_a_file_has_a_name_of_its_own():
    homes = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        homes[path.stem].append(str(path.relative_to(PACKAGE)))
    assert {name: where for name, where in homes.items() if len(where) > 1 and name not in SHARED_FILES} == {}
    for name in SHARED_FILES - {"__init__", "__main__"}:
        assert all(where.startswith("papers/") for where in homes[name]), name


def test_a_lazy_package_has_no_file_named_as_a_function_it_exports():
    """Loading the file would set the package's attribute to the module, and the function would be gone."""
    for module, tree in modules().items():
        folder = PACKAGE.parent / module.replace(".", "/")
        files = {path.stem for path in folder.iterdir()} if folder.is_dir() else set()
        assert not set(lazy_names(tree)) & files, module
    assert lazy_names(ast.parse("a, b = lazily(__name__, {'x': ('One', 'two')}, modules=('x',))")) == ["One", "two"]


def lazy_names(tree: ast.Module) -> list[str]:
    """The names that a package promises to load from its files when they are first used."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "lazily"]
    given = [ast.literal_eval(call.args[1]) for call in calls]
    return [name for where in given for names in where.values() for name in names]


LIGHT = {
    "what a page in a browser loads": ["headcount", "headcount.papers.infoflow", "headcount.fits", "headcount.report"],
    "the ground floor and the rooms of values and pictures": [
        m for m in modules() if room_of(m) in {*GROUND, "results", "drawing", "fits", "report"}
    ],
    "what shapes cost and what is known of them": [
        f"headcount.sizing.{name}"
        for name in ("costing", "evidence", "expectation", "known_models", "meta_analysis", "model_configs")
    ]
    + ["headcount.sizing.ranked_shapes", "headcount.sizing.settling", "headcount.sizing.shape_page"],
    "every paper's bounds": [m for m in modules() if m.endswith(".bounds")],
}


@pytest.mark.parametrize("names", LIGHT.values(), ids=LIGHT)
def test_what_promises_to_be_light_loads_nothing_heavy(names):
    assert names
    code = f"import sys, {', '.join(names)}; print(*[h for h in {HEAVY!r} if h in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("words", [["tasks"], ["reproduce"], ["runs", "."], ["--help"], ["theory", "--help"]], ids=str)
def test_a_list_is_printed_without_torch(words, tmp_path):
    code = f"import sys\nfrom headcount.cli import main\ntry:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
    code += "print('loaded:', *[h for h in ('torch', 'scipy') if h in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "loaded:", done.stdout


def test_the_top_names_what_the_type_checker_sees_and_what_is_loaded_lazily_alike():
    import headcount

    tree = modules()["headcount"]
    checked = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headcount")
        for alias in node.names
    } - {"lazily"}
    papers = set(headcount.PAPERS)
    assert papers == {path.name for path in (PACKAGE / "papers").iterdir() if (path / "__init__.py").exists()}
    assert (checked | {"__version__"}) - papers == set(headcount.__all__) == set(dir(headcount))
    assert all(getattr(headcount, name) is not None for name in (*headcount.__all__, *papers))
    assert not {room for floor in FLOORS for room in floor} & set(headcount.__all__) - {"papers", "tasks"}


def descents(tree: ast.Module) -> set[str]:
    """What a module does by itself: optimisers of PyTorch that it makes, or "no optimiser" where it only goes back."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    made = {f.attr for call in calls if ast.unparse((f := call.func).value) in ("torch.optim", "optim")}
    back = any(call.func.attr == "backward" and not call.args for call in calls)  # of numbers, not a method of theirs
    return made or ({"no optimiser"} if back else set())


def test_every_descent_outside_a_bank_is_named_with_its_reason():
    lines = (PACKAGE / "kernels/README.md").read_text(encoding="utf-8").split("## What is trained outside a bank")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines() if "`headcount/" in line
    ]
    named_there = {file.strip("`"): {what} for file, what, _ in rows}
    kernels = {name for name in modules() if name.startswith("headcount.kernels")}
    found = {
        name.replace(".", "/") + ".py": what
        for name, tree in modules().items()
        if (what := descents(tree)) and name not in kernels
    }
    assert found == named_there and all(why for _, _, why in rows)
    assert sum(what != {"no optimiser"} for what in found.values()) == 4


def test_a_descent_is_seen_however_it_is_written():
    assert descents(ast.parse("torch.optim.SGD(p, lr=1)")) == {"SGD"}
    assert descents(ast.parse("loss(step).backward()")) == {"no optimiser"}
    assert descents(ast.parse("optim.lr_scheduler.StepLR(o, 1)")) == set()


def test_each_floor_is_listed_once():
    assert all(not set(one) & set(other) for one, other in combinations(FLOORS, 2))
