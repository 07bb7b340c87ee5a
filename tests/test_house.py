"""Architecture rules: named modules are of lower layers, files and functions stay small, attribute checks are rare.

Scripts and messages name targets and functions that exist.
"""

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "beamwood"
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = [
    [room.strip().removeprefix("beamwood.") for room in line.split("|")]
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
]
FLOOR = {room: len(ROOMS) - height for height, rooms in enumerate(ROOMS) for room in rooms}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def test_every_package_has_a_layer():
    top = {"__init__", "__main__"}
    assert {room_of(path) for path in FILES} - top == set(FLOOR)


def test_modules_named_in_strings_are_of_lower_layers():
    """`lint-imports` does not see a module that is named in a string, as for `import_module`."""
    for path in FILES:
        own = room_of(path)
        for other in re.findall(r"""["']beamwood\.(\w+)[\w.]*["']""", path.read_text()):
            if own in FLOOR and other in FLOOR and other != own:
                assert FLOOR[other] < FLOOR[own], f"{path.name} of {own} names {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_are_small(path):
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            length = node.end_lineno - node.lineno + 1
            assert length <= 55, f"{node.name} has {length} lines"


def exported(tree: ast.Module) -> set[str]:
    """The names of `__all__`."""
    named = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    return {each.value for node in named for each in ast.walk(node.value) if isinstance(each, ast.Constant)}


# A docstring of a command is its help.
@pytest.mark.parametrize(
    "path", [path for path in FILES if room_of(path) != "cli"], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_docstrings_of_public_functions_say_what_is_refused(path):
    tree = ast.parse(path.read_text())
    public = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in exported(tree)]
    for function in public:
        raised = [node.exc for node in ast.walk(function) if isinstance(node, ast.Raise) and node.exc is not None]
        if any(ast.unparse(each).startswith("InputError(") for each in raised):
            assert re.search("[Ee]rror|[Rr]aise", ast.get_docstring(function) or ""), f"{function.name} has no errors"


def test_attribute_checks_are_rare():
    text = "\n".join(path.read_text() for path in FILES)
    assert len(re.findall(r"\bhasattr\(", text)) <= 5
    assert len(re.findall(r"\bgetattr\(", text)) <= 8


def test_targets_that_a_text_names_are_in_the_makefile():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = [path for part in ("src", "tests", "docs", "native", "benchmarks") for path in (ROOT / part).rglob("*.*")]
    for path in [*texts, *ROOT.glob("*.md"), ROOT / "Makefile"]:
        if path.suffix in ("", ".py", ".md", ".sh"):
            assert set(re.findall(r"`make ([a-z0-9-]+)", path.read_text())) <= targets, path


def test_scripts_import_names_that_exist():
    for path in (ROOT / "native").glob("*.sh"):
        for code in re.findall(r"-c '([^']+)'", path.read_text()):
            for node in ast.walk(ast.parse(code)):
                for each in node.names if isinstance(node, ast.ImportFrom) else ():
                    assert each.name in dir(importlib.import_module(node.module)), f"{path.name}: {each.name}"


TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if "time()" in path.read_text())


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_names_of_tests_do_not_contain_the_present_time(path):
    """Two processes that collect at different seconds would otherwise not agree on the tests to share."""
    tree = ast.parse(path.read_text())
    present = {"time.time()"}
    for node in tree.body:
        if isinstance(node, ast.Assign) and mentions(node.value, present):
            present |= {ast.unparse(name) for name in node.targets}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert not any(mentions(each, present) for each in node.decorator_list), node.name


def mentions(tree: ast.AST, expressions: set[str]) -> bool:
    """Whether one of the expressions is in the code, except in a dict, which a test's name leaves out."""
    if isinstance(tree, ast.Dict):
        return False
    return ast.unparse(tree) in expressions or any(mentions(each, expressions) for each in ast.iter_child_nodes(tree))
