"""Optional fast arithmetic for Paillier: eight long integers at a time, on AVX-512 IFMA.

`lanes` lays numbers out for the compiled code and calls it; `modular` has the operations that
protocols use, on arrays of bytes. gmpy2 does the same in `secagg.protocols.paillier` wherever the
kernels are not `available`. Both give the same bits (tested): only the speed differs.
`library` says how to switch the kernels off. `aes` has a kernel of its own for masks.
"""
