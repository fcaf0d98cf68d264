from autogemm.compile.ptxas_log import first_error, parse_resources
from autogemm.model.kernel import Resources

# As NVRTC 12.9 prints it for sm_80: two kernels that call one function, which is not inlined.
LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'split' for 'sm_80'
ptxas info    : Function properties for split
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 117 registers, used 1 barriers, 512 bytes smem, 372 bytes cmem[0]
ptxas info    : Compile time = 25.485 ms
ptxas info    : Function properties for _Z1fPKfPfii
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'gemm_kernel' for 'sm_80'
ptxas info    : Function properties for gemm_kernel
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 568 bytes cumulative stack size
ptxas info    : Compile time = 43.753 ms
ptxas info    : Function properties for _Z1fPKfPfii
ptxas         .     552 bytes stack frame, 896 bytes spill stores, 916 bytes spill loads
"""


def test_every_kernel_has_its_own_resources_with_the_spills_of_what_it_calls() -> None:
    assert parse_resources(LOG) == (
        Resources("gemm_kernel", 32, 904, 920, 568, 0),
        Resources("split", 117, 0, 0, 0, 512),
    )


def test_a_stack_frame_counts_where_no_sum_is_printed() -> None:
    log = """\
ptxas info    : Compiling entry function 'k' for 'sm_90'
ptxas info    : Function properties for k
ptxas         .     160 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 29 registers, used 0 barriers
"""
    assert parse_resources(log) == (Resources("k", 29, 0, 0, 160, 0),)


def test_a_log_without_kernels_has_no_resources() -> None:
    assert parse_resources("ptxas info    : 0 bytes gmem") == ()


def test_first_error_is_not_a_warning_or_a_summary() -> None:
    log = """\
kernel.cu(11): warning #177-D: variable "no_error" was declared but never referenced
kernel.cu(12): error: identifier "x" is undefined
kernel.cu(13): error: identifier "y" is undefined
2 errors detected in the compilation of "kernel.cu".
"""
    assert first_error(log) == 'kernel.cu(12): error: identifier "x" is undefined'


def test_first_error_of_the_assembler() -> None:
    log = "ptxas application ptx input, line 27; error   : Not a name of any known instruction"
    assert first_error(f"ptxas info    : 0 bytes gmem\n{log}\nptxas fatal   : aborted") == log


def test_no_error() -> None:
    assert first_error("ptxas info    : 0 bytes gmem") == ""
