"""The module as such: what importing it does, what it says of itself, forks, and the layout of the structs."""

import ctypes
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys

import gdn
import pytest
from gdn import _native
from reference import error, extend, random_inputs

HEADER = pathlib.Path(__file__).parents[3] / "include"


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True
    )


def test_version_and_backends():
    assert gdn.version() == gdn.__version__
    assert "cpu" in gdn.features()
    found = {backend.name: backend for backend in gdn.backends()}
    assert found["cpu"].usable and found["cpu"].num_devices == 1 and found["cpu"].reason == ""
    for backend in found.values():
        assert backend.usable == (backend.reason == "")


def test_importing_imports_neither_framework():
    code = "import sys, gdn; gdn.version(); gdn.backends(); assert not {'numpy', 'torch'} & set(sys.modules)"
    assert run(code).returncode == 0


def test_a_missing_library_is_an_import_error():
    result = run("import gdn", GDN_LIBRARY="/nowhere/libgdn.so.0")
    assert result.returncode != 0 and "ImportError" in result.stderr and "GDN_LIBRARY" in result.stderr


def call_in_child(sender, inputs):
    sender.send(gdn.gdn_extend_chunkwise(**inputs))


def test_a_forked_child_calls():
    inputs = random_inputs(1, [300], dims=(64, 64))
    o, _ = extend(**inputs)
    initial = inputs["state_pool"].copy()
    gdn.gdn_extend_chunkwise(**inputs)
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)  # unlike a queue it needs no /dev/shm
    child = fork.Process(target=call_in_child, args=(sender, {**inputs, "state_pool": initial.copy()}))
    child.start()
    assert receiver.poll(60)
    assert error(receiver.recv(), o) < 2e-6
    child.join(60)
    assert child.exitcode == 0
    assert error(gdn.gdn_extend_chunkwise(**{**inputs, "state_pool": initial}), o) < 2e-6


@pytest.mark.skipif(shutil.which("cc") is None or not HEADER.exists(), reason="needs a C compiler and the header")
def test_structs_match_the_header(tmp_path):
    structs = {
        "gdn_tensor": _native.Tensor,
        "gdn_backend_report": _native.BackendReport,
        "gdn_allocator": _native.Allocator,
        "gdn_context_options": _native.ContextOptions,
    }
    lines, expected = [], []
    for name, struct in structs.items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        expected.append(ctypes.sizeof(struct))
        for field, *_ in struct._fields_:
            lines.append(f'printf("%zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
            expected.append((getattr(struct, field).offset, getattr(struct, field).size))
    for name, value in _native.DTYPES.items():
        short = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "int32": "I32", "int64": "I64", "uint8": "U8"}
        lines.append(f'printf("%d\\n", (int)GDN_DTYPE_{short[name]});')
        expected.append(value)
    for name in ("MAX_RANK", "WORKSPACE_ALIGNMENT"):
        lines.append(f'printf("%d\\n", GDN_{name});')
        expected.append(getattr(_native, name))
    lines.append('printf("%d %d\\n", GDN_VERSION_MAJOR, GDN_VERSION_MINOR);')
    expected.append(_native.EXPECTED_VERSION)
    source = tmp_path / "layout.c"
    source.write_text("#include <gdn/gdn.h>\n#include <stdio.h>\nint main(void) {" + "\n".join(lines) + "}\n")
    subprocess.run(["cc", "-I", HEADER, "-o", tmp_path / "layout", source], check=True)
    printed = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed == [" ".join(map(str, x)) if isinstance(x, tuple) else str(x) for x in expected]


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_bits_do_not_depend_on_the_number_of_threads(name):
    code = """
import sys, numpy as np; sys.path.insert(0, {!r})
import gdn; from reference import random_inputs
inputs = random_inputs(3, [200, 17], dims=(64, 64), dtype=np.{})
o = gdn.gdn_extend_chunkwise(**inputs)
print(hash(o.tobytes() + inputs["state_pool"].tobytes()))
""".format(str(pathlib.Path(__file__).parent), name)
    printed = {run(code, GDN_NUM_THREADS=str(n), PYTHONHASHSEED="0").stdout for n in (1, 2, 3)}
    assert len(printed) == 1 and printed != {""}
