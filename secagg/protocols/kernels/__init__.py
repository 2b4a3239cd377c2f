"""Optional fast arithmetic in compiled C code, called kernels, for processors with AVX-512 IFMA.

The kernels for Paillier process eight long integers at a time. `lanes` arranges the numbers in
memory for the C code and calls it. `modular` has the operations that protocols use, on arrays of
bytes. If the kernels are not `available`, `secagg.protocols.paillier` uses gmpy2 instead. Both give
the same results (tested), and only the speed differs. `library` explains how to switch the kernels
off. `aes` has another kernel, for the masks of masked sums.
"""
