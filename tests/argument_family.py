"""A small family whose kernels take arguments of their own: a gain and a bias."""

from pathlib import Path

from autogemm.space import Family, load_family

ARGUMENTS_YAML = """
family: biased
summary: One thread for each element of C, with a gain and a bias.
dtypes: {a: f32, b: f32, c: f32, accumulate: f32}
architectures: ">=70"
parameters:
  BM: {values: [16, 32], doc: threads per block}
  SPLIT_K: {values: [1, 2], default: 1, doc: whether there is a workspace}
launch:
  - {kernel: gemm_kernel, threads: BM, grid: "ceil_div(M * N, BM)"}
workspace_bytes: 4 * M * N if SPLIT_K > 1 else 0
arguments:
  - {name: gain, type: f32, neutral: 1, doc: a factor of the whole result}
  - {name: bias, type: c, extent: N, neutral: 0, doc: what is added to each row of C}
seeds:
  - {BM: 32}
  - {BM: 16, SPLIT_K: 2}
"""

ARGUMENTS_TEMPLATE = """\
constexpr int BM = {{ config.BM }};
using Element = {{ type_ab }};

extern "C" __global__ void __launch_bounds__(BM)
{% filter filled %}
    gemm_kernel({{ signature.in_kernel("Element", unrestricted=["workspace"]) }}) {
{% endfilter %}
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int m = i / N;
    const int n = i % N;
    if (m >= M) {
        return;
    }
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) {
        const float a = A[(long long){{ "k * lda + m" if trans_a else "m * lda + k" }}];
        const float b = B[(long long){{ "n * ldb + k" if trans_b else "k * ldb + n" }}];
        sum += a * b;
    }
    const float with_bias = alpha * gain * sum + bias[n];
    float& c = C[(long long)m * ldc + n];
    c = beta == 0.0f ? with_bias : with_bias + beta * c;
}
"""


def biased_family(folder: Path, *edits: tuple[str, str]) -> Family:
    """The family, in a folder of its own; each edit replaces a text in the YAML or the template."""
    texts = [ARGUMENTS_YAML, ARGUMENTS_TEMPLATE]
    for old, new in edits:
        assert any(old in text for text in texts), old
        texts = [text.replace(old, new) for text in texts]
    folder.mkdir(exist_ok=True)
    (folder / "biased.yaml").write_text(texts[0])
    (folder / "biased.cu.jinja").write_text(texts[1])
    return load_family(folder)
