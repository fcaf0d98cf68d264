"""Element types in C++: verification on a GPU and emulated tensor cores read the same bits."""

import ctypes
import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from autogemm.emulator.toolchain import find_toolchain
from autogemm.model.dtypes import Element
from autogemm.model.elements import loaded, rounded, stored, stored_type

pytestmark = pytest.mark.emulated

# The part of CUDA that verify.cu uses; subnormal floats become zero as on the GPU.
ON_CPU = """
#include <math.h>
#include <string.h>
#define __device__ static
static float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
static unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}
"""
EACH = """
#ifdef __x86_64__
#include <xmmintrin.h>
#endif
extern "C" void store_and_load(const float* values, float* back, void* data, int count, int type) {
#ifdef __x86_64__
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
#endif
    for (int i = 0; i < count; ++i) {
        set_element(data, i, type, values[i]);
        back[i] = element(data, i, type);
    }
#ifdef __x86_64__
    _mm_setcsr(before);
#endif
}
"""


@pytest.fixture(scope="module")
def verify_cu(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The part of verify.cu that knows element types, compiled for the CPU."""
    text = (
        files("autogemm.targets.cuda.worker.gpu").joinpath("verify.cu").read_text(encoding="utf-8")
    )
    part = text[: text.index("__device__ int64 first_index()")]
    folder = tmp_path_factory.mktemp("verify")
    source, library = folder / "elements.cpp", folder / "elements.so"
    source.write_text(ON_CPU + part + EACH)
    compile_and_link = [find_toolchain().gxx, "-std=c++17", "-O1", "-shared", "-fPIC"]
    subprocess.run([*compile_and_link, source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


def interesting(element: Element) -> npt.NDArray[np.float32]:
    """Values of every size that the type has, some between two of them, zeros and infinity; of
    integers each power of 2 and its neighbours, as far as floats hold them.
    """
    if element.is_integer:
        bits = min(8 * element.size_bytes - 1, 24)
        powers = 2.0 ** np.arange(bits)
        sizes = np.concatenate([powers - 1, powers, powers + 1])
        return np.concatenate([sizes, -sizes, [-(2.0**bits)]]).astype(np.float32)
    exponents = np.arange(max(element.least_exponent - element.fraction_bits, -125), 14)
    sizes = np.random.default_rng(0).uniform(1, 2, (200, len(exponents))) * 2.0**exponents
    ties = (1 + np.arange(1, 64) * element.unit_roundoff) * 2.0**-3
    special = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan])
    return np.concatenate([sizes.ravel(), -sizes.ravel(), ties, special]).astype(np.float32)


@pytest.mark.parametrize("element", list(Element), ids=str)
def test_the_gpu_rounds_and_stores_as_numpy_does(verify_cu: Any, element: Element) -> None:
    values = interesting(element)
    back = np.empty_like(values)
    data = np.zeros(len(values), stored_type(element))
    pointers = (x.ctypes.data_as(ctypes.c_void_p) for x in (values, back, data))
    verify_cu.store_and_load(*pointers, len(values), element.format_code)
    finite = ~np.isnan(rounded(values, element))
    assert np.array_equal(back[finite], rounded(values, element)[finite])
    assert np.array_equal(data[finite], stored(values, element)[finite])
    if element.exponent_bits < 8 and not element.is_integer:
        # Rounding in the bits of a float may make infinity of a NaN of many bits.
        assert np.isnan(back[~finite]).all()


@pytest.mark.parametrize("element", list(Element), ids=str)
def test_the_emulator_loads_what_numpy_stores(element: Element, tmp_path: Path) -> None:
    shim = files("autogemm.emulator").joinpath("shim")
    header = shim.joinpath("cuda_on_cpu.h").read_text(encoding="utf-8")
    source = shim.joinpath("tensor_cores.h").read_text(encoding="utf-8")
    types = re.search(r"enum class TensorElement.*?(?=\n//)", header, re.DOTALL)
    function = re.search(r"float float_of\(.*?\n}\n", source, re.DOTALL)
    assert types and function
    program = tmp_path / "elements.cpp"
    program.write_text(
        f"#include <cstdint>\n{types[0]}\n{function[0]}\n"
        'extern "C" void load(const unsigned* bits, float* values, int count, unsigned type) {\n'
        "    for (int i = 0; i < count; ++i) {\n"
        "        values[i] = float_of(static_cast<TensorElement>(type), bits[i]);\n    }\n}\n"
    )
    library = tmp_path / "elements.so"
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([find_toolchain().gxx, *options, str(program)], check=True)
    bits = stored(interesting(element), element)
    words = bits.view(f"u{element.size_bytes}").astype(np.uint32)
    values = np.empty(len(words), np.float32)
    pointers = (x.ctypes.data_as(ctypes.c_void_p) for x in (words, values))
    ctypes.CDLL(str(library)).load(*pointers, len(words), element.format_code)
    assert np.array_equal(values, loaded(bits, element), equal_nan=True)


@pytest.mark.parametrize("element", [one for one in Element if one.saturates], ids=str)
def test_the_emulator_rounds_bytes_as_numpy_does(element: Element, tmp_path: Path) -> None:
    shim = files("autogemm.emulator").joinpath("shim")
    header = shim.joinpath("cuda_on_cpu.h").read_text(encoding="utf-8")
    source = shim.joinpath("tensor_cores.h").read_text(encoding="utf-8")
    types = re.search(r"enum class TensorElement.*?(?=\n//)", header, re.DOTALL)
    function = re.search(r"unsigned byte_of_float\(.*?\n}\n", source, re.DOTALL)
    assert types and function
    program = tmp_path / "elements.cpp"
    program.write_text(
        f"#include <cstdint>\n{types[0]}\n{function[0]}\n"
        'extern "C" void store(const float* values, unsigned char* bits, int count, int of) {\n'
        "    for (int i = 0; i < count; ++i) {\n"
        "        bits[i] = byte_of_float(static_cast<TensorElement>(of), values[i]);\n    }\n}\n"
    )
    library = tmp_path / "elements.so"
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([find_toolchain().gxx, *options, str(program)], check=True)
    # Every number of the type, all ties, their neighbours, and what is too large.
    every = loaded(np.arange(256, dtype=np.uint8), element)
    numbers = np.sort(every[np.isfinite(every)])
    ties = ((numbers[1:] + numbers[:-1]) / 2).astype(np.float32)
    exact = np.concatenate([numbers, ties, 1.05 * numbers[[0, -1]], [3e38, -3e38]])
    near = [np.nextafter(exact, np.float32(end)) for end in (-np.inf, np.inf)]
    values = np.concatenate([exact, *near, interesting(element)]).astype(np.float32)
    bits = np.empty(len(values), np.uint8)
    pointers = (x.ctypes.data_as(ctypes.c_void_p) for x in (values, bits))
    ctypes.CDLL(str(library)).store(*pointers, len(values), element.format_code)
    # NaN has several forms, of which conversions give one.
    assert np.array_equal(bits, np.where(np.isnan(values), 0x7F, stored(values, element)))


def test_the_emulator_names_every_element_type() -> None:
    header = files("autogemm.emulator").joinpath("shim", "cuda_on_cpu.h")
    named = dict(re.findall(r"\bk(\w+) = (0x[0-9a-f]+),", header.read_text(encoding="utf-8")))
    assert named == {one.label.capitalize(): f"{one.format_code:#x}" for one in Element}
