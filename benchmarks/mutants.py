"""How many single-line faults the tests catch.

    python benchmarks/mutants.py --count 50 --seed 0 --jobs 2

draws faults at random from the functions and classes that learn. It puts each one into a copy of the package and runs
the tests of that code until one fails. It prints the mutants that no test catches. The tests must pass without a fault.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCES = ("objectives", "bodies", "groups", "contacts", "methods", "training/loop.py", "training/step.py")
TESTS = (
    "objectives",
    "bodies",
    "test_groups.py",
    "contacts",
    "methods",
    "training",
    "test_objects.py",
    "test_refine.py",
    "test_store.py",
)
SWAPPED = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&",
    ast.Lt: ">=", ast.LtE: ">", ast.Gt: "<=", ast.GtE: "<", ast.Eq: "!=", ast.NotEq: "==",
    ast.And: "or", ast.Or: "and",
}  # fmt: skip
RENAMED = {
    "min": "max", "max": "min", "amin": "amax", "amax": "amin", "argmin": "argmax", "argmax": "argmin", "any": "all",
    "all": "any", "sum": "mean", "mean": "sum", "cos": "sin", "sin": "cos", "maximum": "minimum", "sqrt": "square",
    "square": "sqrt", "exp": "sigmoid", "log1p": "log",
}  # fmt: skip


class Mutant(NamedTuple):
    """One fault: a source file with a line replaced."""

    path: str  # below src/palpate
    line: int
    old: str
    new: str


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a file; each changes one operator, name, constant or call on one line."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()

    def replaced(node: ast.expr, new: str) -> Iterator[Mutant]:
        if node.lineno == node.end_lineno:
            old = lines[node.lineno - 1]
            head, tail = _cut(old, node.col_offset), old.encode()[node.end_col_offset or 0 :].decode()
            changed = head + new + tail
            if changed != old:
                yield Mutant(str(path.relative_to(ROOT / "src" / "palpate")), node.lineno, old, changed)

    for node in _walk(ast.parse(text)):
        if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
            yield from replaced(node, f"{_source(node.left)} {SWAPPED[type(node.op)]} {_source(node.right)}")
        elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPPED:
            new = f"{_source(node.left)} {SWAPPED[type(node.ops[0])]} {_source(node.comparators[0])}"
            yield from replaced(node, new)
        elif isinstance(node, ast.BoolOp):
            yield from replaced(node, f" {SWAPPED[type(node.op)]} ".join(map(_source, node.values)))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
            yield from replaced(node, _source(node.operand))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield from replaced(node, str(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield from replaced(node, repr(node.value + 1) if isinstance(node.value, int) else repr(3 * node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, of = node.func.attr, _source(node.func.value)
            if name in ("detach", "clamp"):
                yield from replaced(node, of)
            elif name in RENAMED:
                yield from replaced(node, ast.unparse(node).replace(f".{name}(", f".{RENAMED[name]}(", 1))


def _walk(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes but annotations and the constants of a module, which are tuned by benchmarks."""
    for outer in tree.body:
        if isinstance(outer, ast.FunctionDef | ast.ClassDef):
            annotations = {
                id(node)
                for part in ast.walk(outer)
                for annotation in (getattr(part, "annotation", None), getattr(part, "returns", None))
                if annotation is not None
                for node in ast.walk(annotation)
            }
            yield from (node for node in ast.walk(outer) if id(node) not in annotations)


def _source(node: ast.expr) -> str:
    return f"({ast.unparse(node)})" if isinstance(node, ast.BinOp | ast.BoolOp | ast.Compare) else ast.unparse(node)


def _cut(line: str, column: int) -> str:
    return line.encode()[:column].decode()


def caught(mutant: Mutant, seconds: float) -> bool:
    """Whether a test fails; one that takes too long has failed."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "palpate"
        shutil.copytree(ROOT / "src" / "palpate", package, ignore=shutil.ignore_patterns("__pycache__"))
        file = package / mutant.path
        lines = file.read_text(encoding="utf-8").splitlines()
        lines[mutant.line - 1] = mutant.new
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        room = mutant.path.partition("/")[0].removesuffix(".py")
        tests = sorted(TESTS, key=lambda name: room not in name)  # its own tests first
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += ["-m", "not slow and not gpu"]
        environment = os.environ | {"PYTHONPATH": folder, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [*command, *(f"tests/{name}" for name in tests)],
                cwd=ROOT, env=environment, capture_output=True, timeout=seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return True
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(done.stdout.decode()[-2000:] + done.stderr.decode()[-2000:])
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for the tests of one mutant")
    arguments = parser.parse_args()
    paths = [ROOT / "src" / "palpate" / name for name in SOURCES]
    files = sorted(file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path]))
    drawn = random.Random(arguments.seed).sample([m for file in files for m in mutants(file)], arguments.count)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = pool.map(lambda mutant: caught(mutant, arguments.timeout), drawn)
        count = 0
        for mutant, found in zip(drawn, outcomes, strict=True):
            count += found
            print(f"{'caught' if found else 'MISSED'}  {mutant.path}:{mutant.line}  {mutant.new.strip()}", flush=True)
            if not found:
                print(f"        it was  {mutant.old.strip()}", flush=True)
    print(f"{count} of {len(drawn)} mutants caught")


if __name__ == "__main__":
    main()
