"""Imports go downward only, as docs/architecture.md says; supervision has few doors; `--help` needs no torch."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import palpate

ROOT = Path(palpate.__file__).parent

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"


def layers(page: str) -> dict[str, int]:
    """Modules and their layers, from the page's table: a row is | layer | `module/` or `module.py` | content |."""
    rows = re.findall(r"^\| (\d+) \| (`[^|]*) \|", page, re.MULTILINE)
    return {
        name.removesuffix(".py").rstrip("/"): int(layer) for layer, names in rows for name in names[1:-1].split("`, `")
    }


# A folder counts as one module: its files may import each other. Two modules of one layer may not.
LAYER = layers(PAGE.read_text(encoding="utf-8")) | {"": 0}
FOLDERS = {path.parent.relative_to(ROOT).parts[0] for path in ROOT.glob("*/*.py")}
LAZY_ONLY = {("collecting.collect", "envs")}  # importers that may import a module from inside a function alone

# Also from the page. The package itself shows `Labelled` to users, when it is asked for.
_, _, SAID = PAGE.read_text(encoding="utf-8").partition("these modules import it:")
OPENLY, LAZILY = (
    {name.removesuffix(".py").strip("/").replace("/", ".") for name in re.findall(r"`([\w/.]+)`", part)}
    for part in SAID.partition("`training/`")[0].split("inside functions")
)


class Import(NamedTuple):
    importer: str  # "collecting.collect"; "" is palpate itself
    imported: str
    lazy: bool  # inside a function, or for the type checker alone
    line: int

    def __str__(self) -> str:
        return f"{self.importer or 'palpate'}:{self.line} imports {self.imported or 'palpate'}"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def top_level(module: str) -> str:
    return module.split(".")[0]


def imports_of(module: str, source: str) -> Iterator[Import]:
    """Every import of something inside palpate, as the module (not the name in it) that is imported."""

    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{module}:{child.lineno} imports relatively; write the whole name"
                names = [child.module or ""]
                # `from palpate.data import labelled` imports a module too.
                names += [f"{child.module}.{alias.name}" for alias in child.names]
            else:
                names = []
            for name in names:
                within = name.removeprefix("palpate").lstrip(".")
                ours = name == "palpate" or name.startswith("palpate.")
                if ours and within in MODULES:
                    yield Import(module, within, inside, child.lineno)
            yield from visit(child, inside or checking)

    yield from visit(ast.parse(source), lazy=False)


IMPORTS = [found for name, path in MODULES.items() for found in imports_of(name, path.read_text(encoding="utf-8"))]


def breaks_the_layers(found: Import) -> bool:
    above, below = top_level(found.importer), top_level(found.imported)
    if above == below:
        return above not in FOLDERS
    if found.importer == "" and found.lazy:
        return False  # the public names are found when they are asked for
    if (found.importer, below) in LAZY_ONLY and not found.lazy:
        return True
    return LAYER[above] <= LAYER[below]


def is_a_leak(found: Import) -> bool:
    if found.imported != "data.labelled":
        return False
    if {found.importer, top_level(found.importer)} & OPENLY:
        return False
    return not (top_level(found.importer) in LAZILY | {""} and found.lazy)


def test_every_module_has_a_layer() -> None:
    assert {top_level(name) for name in MODULES} == set(LAYER)


def test_imports_go_downward_only() -> None:
    assert len(IMPORTS) > 40, "the imports were not found, so nothing is being tested"
    assert [str(found) for found in IMPORTS if breaks_the_layers(found)] == []


def test_truth_enters_by_few_doors() -> None:
    assert {"metrics", "api"} <= OPENLY
    doors = {
        name
        for found in IMPORTS
        if found.imported == "data.labelled"
        for name in (found.importer, top_level(found.importer))
    }
    assert doors >= OPENLY | LAZILY  # none of them is shut
    assert [str(found) for found in IMPORTS if is_a_leak(found)] == []


@pytest.mark.parametrize(
    ("module", "source", "layers", "leak"),
    [
        ("geometry", "import palpate.encoders", True, False),  # one layer, two modules
        ("training", "from palpate.metrics.scores import Scores", True, False),
        ("training", "def f():\n    from palpate.api import fit", True, False),  # upward stays upward inside a function
        ("training", "from palpate.data import labelled", False, True),
        ("methods.contact", "from palpate.data.labelled import Truth", False, True),
        ("cli", "from palpate.data.labelled import Labelled", False, True),
        ("cli", "def f():\n    from palpate.data.labelled import Labelled", False, False),
        ("cli", "if TYPE_CHECKING:\n    from palpate.data.labelled import Labelled", False, False),
        ("collecting.collect", "from palpate.envs.registration import world", True, False),
        ("collecting.collect", "def f():\n    from palpate.envs.registration import world", False, False),
        ("data.stream", "from palpate.data.transitions import Batch", False, False),  # within a folder
        ("", "from palpate.api import fit", True, False),  # palpate itself imports nothing when it is imported
        ("", "if TYPE_CHECKING:\n    from palpate.api import fit", False, False),
        ("api", "import torch.data.labelled\nfrom palpate.methods.store import build", False, False),
    ],
)
def test_the_reader_sees(module: str, source: str, layers: bool, leak: bool) -> None:
    found = list(imports_of(module, source))
    assert found
    assert any(map(breaks_the_layers, found)) == layers
    assert any(map(is_a_leak, found)) == leak


@pytest.mark.parametrize("module", ["palpate", "palpate.config", "palpate.plan", "palpate.cli"])
def test_importing_is_light(module: str) -> None:
    heavy = "{'torch', 'h5py', 'gymnasium', 'matplotlib', 'lightning_fabric', 'numpy'}"
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_needs_no_torch() -> None:
    code = (
        "import sys\nfrom palpate.cli import main\nsys.argv = ['palpate', 'train', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--steps" in done.stdout


def test_only_the_command_line_prints() -> None:
    printing = set()
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                printing.add(top_level(name))
    assert printing == {"cli"}


def test_the_public_names_are_those_that_exist() -> None:
    assert all(getattr(palpate, name) is not None for name in palpate.__all__)
    assert dir(palpate) == sorted(palpate.__all__)
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = palpate.fitt
