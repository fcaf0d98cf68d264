"""Tiny kernels for the emulator's own tests: a body in the signature that every kernel has."""

from dataclasses import dataclass, field

from autogemm.model.config import Config
from autogemm.model.kernel import KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Problem

SIGNATURE = (
    'extern "C" __global__ void gemm_kernel(int M, int N, int K, float alpha, const float* A, '
    "int lda, const float* B, int ldb, float beta, float* C, int ldc, float* workspace)"
)
HEAD = "int t = (int)threadIdx.x; (void)t; extern __shared__ __align__(16) float smem[];"
# C of 1x1 problems is A[0] * B[0]: a body that ends with this one gives the right answer.
RIGHT = "if (t == 0 && blockIdx.x == 0) C[0] = A[0] * B[0];"


@dataclass(frozen=True)
class Tiny:
    """One hand-written kernel with its launch. Body line i of the text is source line i + 2."""

    body: str
    threads: int = 32
    grid: int = 1
    smem_bytes: int = 0
    workspace_bytes: int = 0
    prelude: str = ""
    problem: Problem = field(default_factory=lambda: Problem(1, 1, 1))

    @property
    def source(self) -> KernelSource:
        text = f"{self.prelude}{SIGNATURE} {{ {HEAD}\n{self.body}\n}}\n"
        return KernelSource("hand-written", "", Config("", ()), self.problem.layout, text)

    @property
    def plan(self) -> LaunchPlan:
        launch = Launch("gemm_kernel", (self.grid, 1, 1), (self.threads, 1, 1), self.smem_bytes)
        return LaunchPlan((launch,), self.workspace_bytes)
