"""What mma.sync reaches at most on a GPU, and how near the best kernels of gemm_mma come to it.

    benchmarks/gpu_box.sh run python3 benchmarks/mma_ceiling.py --commit COMMIT --out FILE
    ... mma_ceiling.py --dtypes bf16 --shapes 4096 --budget 10s

Two ceilings: warps that multiply what lies in registers and do nothing else, and warps that load
each fragment from shared memory by ldmatrix before it is multiplied, a warp tile of 64 x 64 or
64 x 32, without stages, barriers or C. No kernel exceeds the first; the second holds for warp tiles
of these sizes. Operands are random: at the power limit zeros would be faster. The kernels are
searched by ``autogemm tune --family gemm_mma`` and are timed against cuBLAS in its finals.
"""

import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from typing import Any

import click
from jinja2 import Environment, StrictUndefined

TEXT = """
// A warp's tile: MT times 16 rows, NT times 8 columns.
constexpr int MT = {{ mt }}, NT = {{ nt }};

__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.{{ shape }}.row.col.f32.{{ type }}.{{ type }}.f32 "
                 "{ %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, { %0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void load(unsigned (&four)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3}, [%4];"
                 : "=r"(four[0]), "=r"(four[1]), "=r"(four[2]), "=r"(four[3])
                 : "r"(address));
}

extern "C" __global__ void __launch_bounds__({{ threads }})
    ceiling(float* out, const unsigned* words, int steps) {
    __shared__ __align__(16) unsigned tile[8192];
    for (int i = threadIdx.x; i < 8192; i += {{ threads }}) {
        tile[i] = words[i];
    }
    __syncthreads();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned base = (unsigned)__cvta_generic_to_shared(tile) + 16 * lane;
    unsigned a[MT][4], b[NT / 2][4];
    float c[MT][NT][4] = {};
    for (int i = 0; i < MT; ++i) {
        load(a[i], base + (warp + i) * 512);
    }
    for (int j = 0; j < NT / 2; ++j) {
        load(b[j], base + (warp + MT + j) * 512);
    }
    for (int step = 0; step < steps; ++step) {
        {% if loads %}
        const unsigned at = base + (step + warp) % 32 * 512;
        #pragma unroll
        for (int i = 0; i < MT; ++i) {
            load(a[i], at + i * 512);
        }
        #pragma unroll
        for (int j = 0; j < NT / 2; ++j) {
            load(b[j], at + (MT + j) * 512);
        }
        {% endif %}
        #pragma unroll
        for (int i = 0; i < MT; ++i) {
            #pragma unroll
            for (int j = 0; j < NT; ++j) {
                const unsigned two[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                multiply(c[i][j], a[i], two);
            }
        }
    }
    float sum = 0.0f;
    for (int i = 0; i < MT; ++i) {
        for (int j = 0; j < NT; ++j) {
            sum += c[i][j][0] + c[i][j][1] + c[i][j][2] + c[i][j][3];
        }
    }
    out[blockIdx.x * {{ threads }} + threadIdx.x] = sum;
}
"""
# An instruction's shape, operand type and depth.
INSTRUCTIONS = {
    "bf16": ("m16n8k16", "bf16", 16),
    "f16": ("m16n8k16", "f16", 16),
    "tf32": ("m16n8k8", "tf32", 8),
}
# A warp's rows and columns, and the warps of an SM.
TILES = ((64, 64, 8), (64, 32, 16))
# Each sample takes about so long; as many as are taken come before, so that clocks have settled.
SAMPLE_S, SAMPLES = 0.03, 15


def words_of(cupy: Any, dtype: str) -> Any:
    """32 KiB of random operands, normally distributed."""
    values = cupy.random.default_rng(1).standard_normal(16384).astype(cupy.float32)
    if dtype == "tf32":
        return values[:8192].view(cupy.uint32) & cupy.uint32(0xFFFFE000)
    if dtype == "f16":
        return values.astype(cupy.float16).view(cupy.uint32)
    return (values.view(cupy.uint32) >> 16).astype(cupy.uint16).view(cupy.uint32)


def ceiling_tflops(cupy: Any, dtype: str, tile: tuple[int, int, int], loads: bool) -> float:
    """TFLOP/s of all SMs, the median of samples."""
    shape, name, depth = INSTRUCTIONS[dtype]
    rows, columns, warps = tile
    template = Environment(undefined=StrictUndefined).from_string(TEXT)
    text = template.render(
        mt=rows // 16, nt=columns // 8, shape=shape, type=name, threads=32 * warps, loads=loads
    )
    kernel = cupy.RawModule(code=text, backend="nvrtc").get_function("ceiling")
    num_sms = cupy.cuda.Device().attributes["MultiProcessorCount"]
    out = cupy.empty(num_sms * 32 * warps, cupy.float32)
    words = words_of(cupy, dtype)

    def seconds(steps: int) -> float:
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        kernel((num_sms,), (32 * warps,), (out, words, cupy.int32(steps)))
        end.record()
        end.synchronize()
        took_ms: float = cupy.cuda.get_elapsed_time(begin, end)
        return 1e-3 * took_ms

    few = 20_000
    seconds(few)
    steps = int(few * SAMPLE_S / seconds(few))
    taken = [seconds(steps) for _ in range(2 * SAMPLES)][SAMPLES:]
    operations: float = 2.0 * rows * columns * depth * steps * warps * num_sms
    return operations / statistics.median(taken) / 1e12


def best_kernel(dtype: str, shape: str, budget: str, folder: str) -> dict[str, Any]:
    """The finals of a search in gemm_mma alone: autogemm tune's JSON."""
    command = [sys.executable, "-m", "autogemm", "tune", "--size", shape, "--dtype", dtype]
    command += ["--family", "gemm_mma", "--budget", budget, "--trials", "400", "--rounds", "12"]
    command += ["--no-certify", "--json", "--db", f"{folder}/mma.db"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    finals: dict[str, Any] = json.loads(done.stdout)["finals"]
    return finals


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--dtypes", default="bf16,f16,tf32", show_default=True, help="By commas.")
@click.option("--shapes", default="1024,4096,8192", show_default=True, help="By commas.")
@click.option("--budget", default="8s", show_default=True, help="Search time a shape.")
@click.option("--commit", default="unknown", help="Which commit this is, for the record.")
@click.option("--out", default="-", type=click.File("w"), help="File of results.")
def main(dtypes: str, shapes: str, budget: str, commit: str, out: Any) -> None:
    """What mma.sync reaches, and what gemm_mma reaches of it."""
    import cupy
    import pynvml

    if unknown := set(dtypes.split(",")) - set(INSTRUCTIONS):
        raise click.UsageError(f"no type {min(unknown)!r}; there are {', '.join(INSTRUCTIONS)}")
    name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    words = ["OUT" if one == out.name else one for one in sys.argv[1:]]
    arguments = shlex.join(["benchmarks/mma_ceiling.py", *words])
    pynvml.nvmlInit()
    driver, today = pynvml.nvmlSystemGetDriverVersion(), f"{datetime.now(UTC):%Y-%m-%d}"
    say(out, f"{name}, {driver}, {today}, commit {commit}; command: {arguments}")
    say(out, "TFLOP/s of mma.sync alone; of it the kernel's share, and its ratio to cuBLAS\n")
    say(out, f"{'type':>5} {'warp tile':>9} {'warps':>5} {'registers':>9} {'ldmatrix':>9}")
    highest: dict[str, float] = {}
    for dtype in dtypes.split(","):
        for tile in TILES:
            alone, loading = (ceiling_tflops(cupy, dtype, tile, loads) for loads in (False, True))
            highest[dtype] = max(highest.get(dtype, 0.0), loading)
            size = f"{tile[0]}x{tile[1]}"
            say(out, f"{dtype:>5} {size:>9} {tile[2]:>5} {alone:9.1f} {loading:9.1f}")
    say(out, f"\n{'type':>5} {'shape':>9} {'gemm_mma':>9} {'share':>6} {'ratio':>6}  config")
    with tempfile.TemporaryDirectory() as folder:
        for dtype in dtypes.split(","):
            for shape in shapes.split(","):
                best = best_kernel(dtype, shape, budget, folder)["entries"][0]
                share = best["tflops"] / highest[dtype]
                config = " ".join(f"{key}={value}" for key, value in best["config"].items())
                numbers = f"{best['tflops']:9.1f} {share:6.3f} {best['ratio']:6.3f}"
                say(out, f"{dtype:>5} {shape:>9} {numbers}  {config}")


def say(out: Any, line: str) -> None:
    """A line for the file and for who waits."""
    print(line, file=out, flush=True)
    if out.name != "<stdout>":
        click.echo(line)


if __name__ == "__main__":
    main()
