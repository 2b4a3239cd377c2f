"""Optional fast arithmetic for Paillier: eight long integers at a time, on AVX-512 IFMA.

`lanes` lays numbers out for the compiled code and calls it; `batches` has the operations that
protocols use, on arrays of bytes. Everything here has a portable equal in `secagg.protocols`
(gmpy2), which is used wherever this is not `available`: nothing depends on the kernels but speed,
and both give the same bits (tested). See `library` for how to switch them off.
"""
