"""The element types of a problem, and of cuBLAS's products for it, for templates of exports."""

from autogemm.model.dtypes import Element
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import CONVERSION
from autogemm.model.results.stored import StoredKernel


def converts_operands(kernel: StoredKernel) -> bool:
    """Whether cuBLAS gets converted operands: where it multiplies no others, or has no call with
    these scales of blocks, as the baseline says.
    """
    is_told = (kernel.baseline or "").startswith(CONVERSION)
    return kernel.problem.converts or (bool(kernel.problem.epilogue.scales) and is_told)


def element_types(problem: Problem, *, converts: bool) -> dict[str, object]:
    """The element types of a problem as the templates read them; ``converts``: cuBLAS gets
    operands of 16 bits.
    """
    dtype = problem.dtype
    ab, c = dtype.ab, dtype.c
    # What cuBLAS multiplies; where C is made of it by a kernel of its own, that is of an epilogue.
    has_pass = problem.needs_pass and not problem.epilogue.is_plain
    called = dtype
    if has_pass or not problem.needs_pass:
        called = dtype.converted if converts else problem.multiplied
    return {
        "dtype": dtype.label,
        "dtype_c": c.label,
        "type_ab": ab.host_type,
        "type_b": dtype.b.host_type,
        "type_c": c.host_type,
        "bits_of_c": c.host_bits,
        "is_short_c": c.size_bytes < Element.F32.size_bytes,
        "roundoff_c": f"0x1p-{c.significant_bits}",
        # At least that of FP16, so that emitted texts for BF16 stay unchanged.
        "half_step_c": f"0x1p{max(c.half_step_exponent, Element.F16.half_step_exponent)}",
        "narrow": c.saturates,
        "largest_exponent_c": 0 if c.is_integer else c.largest_exponent,
        "type_product": called.c.host_type,
        "roundoff_product": f"0x1p-{called.c.significant_bits}",
        "has_gemm_ex": called.has_gemm_ex,
        "is_integer": ab.is_integer,
        "has_exact_sums": dtype.has_exact_sums,
        # As cuBLAS takes alpha and beta.
        "scalar": "int" if dtype.has_exact_sums else "float",
        "cublas_scalar": "int" if called.has_exact_sums else "float",
        # Whether products need memory of their own, and operands are converted for them.
        "has_other_sums": has_pass and called.c is not c,
        "rounds_sums": c.size_bytes < Element.F32.size_bytes and not called.c.is_integer,
        "dtype_wide": called.ab.label,
        "type_wide": called.ab.host_type if called.ab is not ab else "",
        # Whether cuBLAS takes scales of blocks, which are stored otherwise for it.
        "pads_scales": bool(problem.epilogue.scales) and not converts,
        "has_few_bits": called.adds_in_few_bits and not problem.epilogue.scales,
        "accum_fraction_bits": ab.accum_fraction_bits,
        "products_per_step": ab.products_per_step,
        "cublas_types": (
            *(called.ab.cuda_data_type, called.c.cuda_data_type),
            *(called.cublas_compute_type, called.cublas_scale_type),
        ),
        "cublas_type_b": called.b.cuda_data_type,
        "cublas_type_c": c.cuda_data_type,
        "cublas_type_added": dtype.of_arrays.cuda_data_type,
    }


def output_types(problem: Problem) -> dict[str, object]:
    """The element type of a second output, where there is one, as the templates read it."""
    if problem.epilogue.output is None:
        return {}
    element = problem.epilogue.output.element(problem.dtype)
    is_short = element.size_bytes < Element.F32.size_bytes
    return {
        "type_output": element.host_type,
        "roundoff_of_output": f"0x1p-{element.significant_bits}" if is_short else "0.0",
        "half_step_of_output": f"0x1p{element.half_step_exponent}" if is_short else "0.0",
    }
