"""The architecture: layers import one way, and what need not load the large libraries does not."""

import ast
import doctest
import importlib
import re
import subprocess
import sys
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

import anydml
from tools import generate_docs, generate_functions

ROOT = Path(anydml.__file__).parent
LAYERS = """
cached dataclass locks errors files display ops ir directml codegen runtime
onnx.protos onnx.types onnx.arrays onnx.subgraphs onnx.schema onnx.ops onnx.node_validation onnx.providers onnx.from_directml onnx.serde onnx.partial_eval
onnx.closeness onnx.targets onnx.node_builder onnx.input_shapes onnx.conditions onnx.feeds onnx.rewrites onnx.opsets onnx.if_conversion onnx.execute onnx.inference_session onnx.random_inputs onnx.model_pair onnx.verification
heavy expression call_signature eager lazy templates eager_tensors names functions compiled_graph device builder session flatten_report flattening check_report checking comparison compilation drawing inspection benchmark backend sample
dxdispatch cli __init__ __main__
""".split()
"""Packages and modules; each imports only from those before it, and from itself."""
LIBRARIES = {
    "llvmlite": {"codegen"},
    "onnxruntime": {"onnx.providers"},
    "onnx": {n for n in LAYERS if n.startswith("onnx.")} | {"backend", "sample"},
}
"""Which layers import libraries that take long to load."""
MODULES = sorted(ROOT.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found.add(node.module or "")
            found |= {
                f"{node.module}.{a.name}"
                for a in node.names
                if node.module in ("anydml", "dataclasses", "functools")
            }
    return found


def layer_of(name: str) -> str | None:
    """The layer of a module; None for the names of packages of layers."""
    return next((n for n in LAYERS if f"{name}.".startswith(f"{n}.")), None)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_one_way(path):
    name = module_name(path).removesuffix(".__init__") or "__init__"
    layer = layer_of(name)
    if layer is None:
        assert name == "onnx"
        assert not imports(path)
        return
    for target in imports(path):
        package, _, inner = target.partition(".")
        if package == "anydml" and (its := layer_of(inner)) is not None:
            assert LAYERS.index(its) <= LAYERS.index(layer), f"{name} imports {target}, a layer below"
        assert layer in LIBRARIES.get(package, {layer}), f"{name} imports {package}"


@pytest.mark.parametrize("path", [p for p in MODULES if p.stem not in ("backend", "sample")], ids=module_name)
def test_onnx_is_imported_by_those_who_call_it_only(path):
    """It takes longer than to load and run a small model; its messages are in anydml.onnx.protos."""
    for node in tree(path).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            assert "onnx" not in {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_property_has_a_lock(path):
    """Before Python 3.12 that of functools has one, which another thread may hold when a process forks."""
    assert "functools.cached_property" not in imports(path)


@pytest.mark.parametrize("path", [p for p in MODULES if p.name != "dataclass.py"], ids=module_name)
def test_dataclasses_are_quick_to_define(path):
    """The standard ones take most of a millisecond, and an import defines 140."""
    assert "dataclasses.dataclass" not in imports(path)


@pytest.mark.parametrize("path", [p for p in MODULES if "runtime" in p.parts], ids=module_name)
def test_what_kernels_rely_on_is_looked_at_without_assertions_too(path):
    """`python -O` leaves out assert: there it only tells the type checker what is not None, or of which class."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Assert):
            text = ast.unparse(node.test)
            assert text.endswith(" is not None") or text.startswith("isinstance("), f"{text}: errors.require"


def test_what_signals_handlers_raise_is_not_taken_for_something_else():
    """Who catches whatever somebody else's code raises looks whether a handler raised it, or raises it again."""
    own_threads = {"onnx.inference_session"}
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ExceptHandler) and "Exception" in ast.unparse(
                node.type or ast.Name("Exception")
            ):
                text = ast.unparse(node)
                again = "by_a_handler" in text or text.endswith("\n    raise")
                assert again or "BaseException" in text or module_name(path) in own_threads, f"{path}: {text}"


def test_warnings_filters_are_the_users():
    """Before Python 3.14 they are those of all threads, and two that set them back may leave them changed."""
    for path in MODULES:
        if "cli" not in path.parts:
            names = {ast.unparse(n.func) for n in ast.walk(tree(path)) if isinstance(n, ast.Call)}
            assert not names & {
                "warnings.catch_warnings",
                "warnings.simplefilter",
                "warnings.filterwarnings",
            }, path


def loaded_by(statement: str, names: list[str]) -> str:
    code = f"{statement}; import sys; print([m for m in {names} if m in sys.modules])"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_importing_the_package_loads_none_of_the_heavy_libraries():
    assert loaded_by("import anydml", ["llvmlite", "onnx", "onnxruntime", "numpy"]) == "[]"


def test_devices_and_functions_load_neither_onnx_nor_onnxruntime():
    assert loaded_by("import anydml; anydml.if_, anydml.Device", ["onnx", "onnxruntime"]) == "[]"


def test_every_public_name_exists_and_is_listed():
    for name in anydml.__all__:
        assert getattr(anydml, name) is not None
    assert set(anydml.__all__) <= set(dir(anydml))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        anydml.nothing  # noqa: B018


@pytest.mark.parametrize("path", [p for p in MODULES if p.stem != "__main__"], ids=module_name)
def test_examples_in_docstrings(path):
    name = (
        "anydml"
        if module_name(path) == "__init__"
        else f"anydml.{module_name(path)}".removesuffix(".__init__")
    )
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_files_can_be_read_in_one_sitting(path):
    assert len(path.read_text("utf-8").splitlines()) <= 450


def test_the_map_names_every_module():
    """But those of families, a file of which is like the others."""
    told = (ROOT.parent / "docs" / "map.md").read_text("utf-8")
    named = set(re.findall(r"`([\w*]+)\.py`", told))
    alike = "cli. ops. onnx.ops. onnx.rewrites. onnx.targets.".split()
    missing = [
        name
        for name in map(module_name, MODULES)
        if not name.startswith(tuple(alike))
        and not any(fnmatch(name.rpartition(".")[2], n) for n in named | {"__init__", "__main__"})
    ]
    assert missing == []


def test_generated_files_are_what_the_catalog_gives():
    """`python -m tools.generate_functions` has nothing to do."""
    assert generate_functions.source() == generate_functions.TARGET.read_text("utf-8")
    assert generate_functions.names() == generate_functions.NAMES.read_text("utf-8")


def test_the_operators_pages_are_what_the_catalog_gives():
    """`python -m tools.generate_docs` has nothing to do."""
    pages = generate_docs.pages()
    assert {p.name for p in generate_docs.FOLDER.iterdir()} == set(pages)
    for name, text in pages.items():
        assert (generate_docs.FOLDER / name).read_text(encoding="utf-8") == text


def test_nothing_from_disk_is_unpickled_or_evaluated():
    """No pickle, eval or exec in the package; NumPy files without pickle. Methods of dataclasses are made of
    their fields' names."""
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in {"eval", "np.fromstring"}, path
                assert name != "exec" or path.name == "dataclass.py", path
                assert not re.search("pickle|marshal", name), path
                if name == "np.load":
                    assert "allow_pickle=False" in ast.unparse(node), path
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert not re.search("pickle|marshal", ast.unparse(node)), path
