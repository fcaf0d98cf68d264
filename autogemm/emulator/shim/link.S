// The borders of shared memory. Assembled twice: first in the link with AUTOGEMM_BEGIN defined, last
// with AUTOGEMM_DYNAMIC_NAMES set to labels for the kernel's `extern __shared__` arrays, and
// AUTOGEMM_DYNAMIC_OFFSET to the bytes by which these miss the next better alignment. Between the two lie
// the kernel's static shared arrays. The zones around it take accesses out of bounds.
#define ZONE 65536
    .section .tbss,"awT",%nobits
    .balign 1024
#ifdef AUTOGEMM_BEGIN
    .globl autogemm_zone_begin
autogemm_zone_begin:
    .zero ZONE
    // The kernel has its own where it has static arrays: at the first of them.
    .weak autogemm_static_begin
autogemm_static_begin:
#else
    .globl autogemm_static_end
autogemm_static_end:
    .zero ZONE + AUTOGEMM_DYNAMIC_OFFSET
    .globl autogemm_dynamic_begin
AUTOGEMM_DYNAMIC_NAMES
autogemm_dynamic_begin:
    .zero 262144
    .zero ZONE
    .globl autogemm_zone_end
autogemm_zone_end:
#endif
    .section .note.GNU-stack,"",%progbits
