"""Degenerate keys of Curve25519, computed from the curve's equation with plain affine formulas."""

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ZERO = (0, 1)

Point = tuple[int, int]


def add(a: Point, b: Point) -> Point:
    """Return a + b by the addition law of x^2 + y^2 = 1 + d x^2 y^2 with -x^2."""
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2
    return (
        (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P,
        (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P,
    )


def times(n: int, a: Point) -> Point:
    """Return n a."""
    total = ZERO
    for bit in bin(n)[2:]:
        total = add(total, total)
        if bit == "1":
            total = add(total, a)
    return total


def point(y: int, sign: int) -> Point | None:
    """Return a point with this y: a root of x^2 = (y^2 - 1) / (d y^2 + 1), by trying."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    for root in (
        pow(square, (P + 3) // 8, P),
        pow(square, (P + 3) // 8, P) * pow(2, P // 4, P) % P,
    ):
        if root * root % P == square:
            return (root if root % 2 == sign else -root % P), y
    return None


def small_order() -> list[Point]:
    """Return the 8 points of order 1, 2, 4 and 8, from the first point whose L-th multiple does."""
    for y in range(2, 1000):
        start = point(y, 0)
        if start is not None:
            eighth = times(L, start)
            points = [times(n, eighth) for n in range(8)]
            if len(set(points)) == 8:
                return points
    raise AssertionError


def encode(a: Point) -> bytes:
    """Return the 32 bytes of RFC 8032, section 5.1.2."""
    return (a[1] | (a[0] & 1) << 255).to_bytes(32, "little")


def decode(key: bytes) -> Point:
    """Return the point of a canonical key."""
    number = int.from_bytes(key, "little")
    found = point(number % 2**255, number >> 255)
    assert found is not None
    return found


def bad_verify_keys(honest: bytes) -> dict[str, bytes]:
    """Return Ed25519 keys that nobody may use, by what is wrong with them.

    honest: a key of the prime-order subgroup
    """
    bad = {f"small order, {n}": encode(each) for n, each in enumerate(small_order())}
    bad |= {
        f"mixed order, {n}": encode(add(decode(honest), each))
        for n, each in enumerate(small_order()[1:])
    }
    for y in range(19):  # only these have a second encoding in 255 bits
        for sign in (0, 1):
            bad[f"y = p + {y}, sign {sign}"] = (P + y | sign << 255).to_bytes(32, "little")
    for x, y in small_order():
        if x == 0:
            bad[f"x = 0, sign 1, y = {y % 7}"] = (y | 1 << 255).to_bytes(32, "little")
    off = next(y for y in range(2, 100) if point(y, 0) is None)
    bad |= {"no point": off.to_bytes(32, "little"), "31 bytes": honest[:31], "": b""}
    return bad | {"33 bytes": honest + b"\x00", "64 bytes": bytes(64)}


def bad_seal_keys(honest: bytes) -> dict[str, bytes]:
    """Return X25519 keys that nobody may use, by what is wrong with them."""
    low = {(1 + y) * pow(1 - y, -1, P) % P for _, y in small_order() if y != 1}
    values = {f"order up to 8, {n}": u for n, u in enumerate(sorted(low))}
    values |= {"order 4 of the twist": P - 1}
    values |= {f"{name}, plus p": u + P for name, u in values.items() if u < 19}
    values |= {f"{name}, highest bit": u | 1 << 255 for name, u in values.items()}
    values["2 p"], values["2 p + 1"] = 2 * P, 2 * P + 1
    a = 486662
    twist = next(u for u in range(2, 100) if pow(u**3 + a * u * u + u, (P - 1) // 2, P) == P - 1)
    values["on the twist"] = twist
    x, y = add(point_of(honest), small_order()[2])
    assert x
    values["mixed order"] = (1 + y) * pow(1 - y, -1, P) % P
    values["highest bit"] = int.from_bytes(honest, "little") | 1 << 255
    bad = {name: value.to_bytes(32, "little") for name, value in values.items()}
    return bad | {"31 bytes": honest[:31], "": b"", "33 bytes": honest + b"\x00"}


def point_of(seal_key: bytes) -> Point:
    """Return a point of the curve of Ed25519 for an X25519 key."""
    u = int.from_bytes(seal_key, "little")
    found = point((u - 1) * pow(u + 1, -1, P) % P, 0)
    assert found is not None
    return found
