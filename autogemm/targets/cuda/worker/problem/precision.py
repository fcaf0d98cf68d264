"""The accuracy of an FP32 sum as a whole, in any order; anything worse is not FP32.

A bound that each element must keep has to leave room for the unluckiest of all; the errors of all
elements together hardly vary. One rounding to nearest has a standard deviation of

    rho = u sqrt((1 - 1/4) / (2 ln 2) / 3) = 0.4247 u,    u = 2^-24,

relative to the number, errors being uniform within half a unit of the last place and significands
log-uniform. Rounding errors are independent and of mean zero (the model of Higham and Mary, SIAM
J. Sci. Comput. 41(5), 2019, A2815). Products of random signs add up to partial sums of which the
j-th has j times the variance of a product, so that n products, each rounded or not, leave at most

    E error^2 = rho^2 (n + 3) / 2 sum_k (a_k b_k)^2,

where all are added one by one, the order with the longest chain; in any other order it is less.
cuBLAS SGEMM has 1.00 times that from K = 512 to 8192 on normal inputs (emulated_accuracy_h100.csv).
With the roundings of alpha, beta and their sum this is predicted for each element; a kernel's
statistic is sqrt(sum of error^2 / sum of predictions) over all of C.

Because a chain of K products has errors that grow like sqrt(K), and inputs with fewer bits have
one that does not (TF32 2.7e-4, BF16x3 3e-6 of the norm), sums of all K products tell BF16x3 from
FP32 up to K = 10,000 only. So each kernel runs once more with few products: zero everywhere in A
but in 16 columns, spread over K. Zeros add nothing, so that FP32 in any order is as exact at every
K as a sum of 16, while TF32 has 3,000 times that, BF16x3 45, sums of 20 bits 4.8 to 15, of 21 bits
7 and FP32 from products of tensor cores (f16x3, tf32x3, bf16x6) 1.4 at most.

Sums of 8-bit floats that a kernel says to promote are held to the errors of such sums
(`autogemm.model.accuracy.short_sums`).
"""

from autogemm.model.accuracy.rounding import FAILURE_PROBABILITY, RMS_ROUNDING, chain_variance, most

__all__ = [
    "FAILURE_PROBABILITY",
    "FEW_PRODUCTS",
    "MOST_OF_ALL",
    "MOST_OF_FEW",
    "RMS_ROUNDING",
    "chain_variance",
    "few_step",
    "most",
    "num_few",
]

FEW_PRODUCTS = 16
# Limits. The second is half of what sums of 20 bits and, at K = 1,000,000, TF32 have;
# FP32 from tensor cores, which truncate, may drift in long chunks.
MOST_OF_FEW, MOST_OF_ALL = 3.0, 8.0


def few_step(k: int) -> int:
    """One product of so many is kept where few are: all, where K is few."""
    return -(-k // FEW_PRODUCTS)


def num_few(k: int) -> int:
    """The number of products that are kept."""
    return -(-k // few_step(k))
