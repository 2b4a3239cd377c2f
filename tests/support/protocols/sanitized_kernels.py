"""Run every kernel at odd sizes, and compare with Python integers.

`python -m support.protocols.sanitized_kernels FOLDER`: the folder has the libraries, compiled with
-fsanitize=address,undefined. The process must be started with the sanitizers' own malloc
(LD_PRELOAD) and without Python's (PYTHONMALLOC=malloc). Arrays have no byte to spare, so that a
read or write beyond one of them ends the process.
"""

import ctypes
import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
from gmpy2 import gcd

from secagg.core import ring
from secagg.protocols import prg
from secagg.protocols.kernels import aes, lanes, library, modular

SIZES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
LARGE = (1023, 4099)
BITS = (3, 16, 51, 52, 53, 105, 191, 521)
BIG = (1024,)
DRAW = random.Random(7)
_LIBC = ctypes.CDLL(None)
_LIBC.aligned_alloc.restype = ctypes.c_void_p


def exact(*shape: int) -> np.ndarray:
    """Return an array as `lanes.empty` does, after which no byte is allocated."""
    size = 8 * math.prod(shape)
    address = _LIBC.aligned_alloc(ctypes.c_size_t(64), ctypes.c_size_t(size))
    memory = (ctypes.c_uint64 * math.prod(shape)).from_address(address)
    return np.ctypeslib.as_array(memory).reshape(shape) if size else np.empty(shape, np.uint64)


def rows(values: Sequence[int], size: int) -> np.ndarray:
    data = b"".join(value.to_bytes(size, "little") for value in values)
    return np.frombuffer(data, np.uint8).reshape(len(values), size).copy()


def numbers(array: np.ndarray) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in array]


def drawn(bound: int, count: int) -> list[int]:
    first = [0, bound - 1, 1 % bound, bound // 2][:count]
    return first + [DRAW.randrange(bound) for _ in range(count - len(first))]


def odd(bits: int) -> int:
    return DRAW.getrandbits(bits) | 1 << bits - 1 | 1


def masks() -> int:
    done = 0
    for bits in (32, 64, 128):
        for length in (*SIZES, *LARGE):
            for added, subtracted in ((0, 0), (1, 0), (0, 1), (3, 2), (33, 1)):
                seeds = [DRAW.randbytes(32) for _ in range(added + subtracted)]
                content = DRAW.randbytes(length * bits // 8)
                for offset in (0, 4, 8) if bits == 32 else (0, 8):
                    memory = np.frombuffer(bytes(offset) + content, np.uint8).copy()
                    like = ring.zeros(length, bits)
                    vector = memory[offset:].view(like.dtype).reshape(like.shape)
                    expected = vector.copy()
                    prg._apply_portably(expected, seeds[:added], seeds[added:])
                    aes.apply(vector, seeds[:added], seeds[added:])
                    assert (vector == expected).all(), (bits, length, added, offset)
                    done += 1
    return done


def arithmetic() -> int:
    done = 0
    for bits in (*BITS, *BIG):
        n = odd(bits)
        size = (bits + 7) // 8
        counts = (*SIZES, 513) if bits in (53, 105) else (0, 1, 7, 8, 9, 17)
        for count in counts if bits not in BIG else (1, 9):
            a, b = drawn(n, count), drawn(n, count)
            first, second = rows(a, size), rows(b, size)
            got = numbers(modular.products([first, second, first], n))
            assert got == [x * y * x % n for x, y in zip(a, b, strict=True)], (bits, count)
            for extra in (0, 1, 7, 13):
                wide = drawn(1 << 8 * (size + extra), count)
                long, factor = rows(wide, size + extra), DRAW.getrandbits(bits + 9)
                assert numbers(modular.scaled(long, factor, n)) == [x * factor % n for x in wide]
            for exponent in (0, 1, 2, 3, 31, 32, 33, DRAW.getrandbits(64), DRAW.getrandbits(67)):
                assert numbers(modular.powers(first, exponent, n)) == [
                    pow(x, exponent, n) for x in a
                ]
            low, high = modular.split_powers(rows(drawn(n * n, count), 2 * size), 5, n)
            assert len(low) == len(high) == count
            product = math.prod(modular.residue_product(first, n))
            assert (gcd(product, n) == 1) == all(gcd(x, n) == 1 for x in a)
            done += 1
    return done


def pairs() -> int:
    done = 0
    for bits in (*BITS, *BIG):
        n, size = odd(bits), (bits + 7) // 8
        for count in (0, 1, 7, 8, 9, 15, 16, 17) if bits not in BIG else (1, 9):
            values = drawn(n * n, count)
            for exponent in (0, 1, 2, 33, DRAW.getrandbits(70)):
                low, high = modular.split_powers(rows(values, 2 * size), exponent, n)
                expected = [pow(x, exponent, n * n) for x in values]
                assert [h * n + r for r, h in zip(numbers(low), numbers(high), strict=True)] == (
                    expected
                ), (bits, count)
            p = n - 2 if gcd(n, n - 2) == 1 else n
            q = n
            if bits > 3 and p != q:
                x = drawn(p * q, count)
                got = modular.chinese_remainders(
                    rows([v % p for v in x], size), rows([v % q for v in x], size), p, q
                )
                assert numbers(got) == x, (bits, count)
            done += 1
    return done


def tables() -> int:
    done = 0
    for bits, exponent_bits, window in (
        (16, 1, 1), (52, 9, 2), (53, 31, 3), (105, 33, 8), (208, 64, 5), (521, 65, 4),
    ):  # fmt: skip
        n, size = odd(bits), (bits + 7) // 8
        base = DRAW.randrange(2, n * n)
        while gcd(base, n) != 1:
            base += 1
        table = modular.FixedBaseTable(base, n, exponent_bits, window)
        for count in (0, 1, 7, 8, 9, 17, 65):
            exponents, values = drawn(1 << exponent_bits, count), drawn(n, count)
            done_rows = table.begin(
                rows(exponents, (exponent_bits + 7) // 8), rows(values, size), 3
            )()
            expected = [
                pow(base, e, n * n) * (1 + n * (3 * v % n)) % (n * n)
                for e, v in zip(exponents, values, strict=True)
            ]
            assert numbers(done_rows) == expected, (bits, count)
            done += 1
    return done


def main() -> None:
    library._FOLDER = Path(sys.argv[1])
    assert library.available() and aes.available()
    if sys.argv[2:] == ["overflow"]:  # shows that the sanitizers would find a fault
        short = np.zeros(63, np.uint8)
        library.call("store", short.ctypes.data, 8, 8, exact(1, 2, 8).ctypes.data, 2)
    with patch.object(lanes, "empty", exact), patch.object(modular, "empty", exact):
        for check in (masks, arithmetic, pairs, tables):
            print(check.__name__, check(), f"{time.process_time():.1f} s", flush=True)
    print("equal")


if __name__ == "__main__":
    main()
