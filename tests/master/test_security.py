"""A store is data: nothing in it is executed, and a master travels between processes as data too."""

from __future__ import annotations

import ast
import multiprocessing
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.master import LAYOUTS, Master

SOURCES = sorted(Path(ss.master.__file__).parent.rglob("*.py"))
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "marshal",
    "shelve",
    "runpy",
    "code",
    "jsonpickle",
}
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
METHODS = {"read_pickle", "allow_pickle", "unpickle"}


def execution_in(tree: ast.AST) -> list[str]:
    """Every way in which the code could run what it reads."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [name.name for name in names if name.name.split(".")[0] in MODULES]
            case ast.ImportFrom(module=str(module)):
                found += [module] if module.split(".")[0] in MODULES else []
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                found.append(name)
            case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS | {"eval", "exec"}:
                found.append(name)
            case ast.keyword(arg=name) if name in METHODS:
                found.append(name)
    return found


def test_the_search_finds_what_it_looks_for():
    code = (
        "import pickle.x\nfrom marshal import loads\neval('1')\nnp.load(f, allow_pickle=True)\n"
        "builtins.exec('')\n# import shelve\ntext = 'exec(1)'\n"
    )
    assert sorted(execution_in(ast.parse(code))) == ["allow_pickle", "eval", "exec", "marshal", "pickle.x"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_nothing_in_a_store_is_executed(path):
    assert execution_in(ast.parse(path.read_text())) == []


def test_all_files_were_searched():
    assert {"store.py", "manifest.py", "pageset.py", "sources.py", "change.py"} <= {
        path.name for path in SOURCES
    }


def read(master: Master) -> tuple[int, list[dict], list[str]]:
    loaded = sorted(set(vars(master)) - {"storage", "manifest"})
    return master.version, pa.Table.from_batches(list(master.scan())).to_pylist(), loaded


def test_a_master_is_used_in_another_process(tmp_path):
    rows = [{"id": i, "v": f"{i}"} for i in range(5000)]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for layout in LAYOUTS:
            master = ss.build_master(
                pa.Table.from_pylist(rows), tmp_path / layout, key="id", layout=layout, page_bytes=4096
            )
            small = len(pickle.dumps(master))
            assert master.index.nbytes > 0  # now it is in memory
            assert len(pickle.dumps(master)) == small, "the index is not carried along"
            version, found, loaded = pool.apply(read, (master,))
            assert (version, found) == (1, rows)
            assert loaded == [], "it arrives with nothing but its manifest"
            assert pickle.loads(pickle.dumps(master)) == master  # noqa: S301 - our own bytes
