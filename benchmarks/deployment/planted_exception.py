"""Plant an exception that quotes a record at a site, and search for the record at the server.

The text of an exception often quotes what it failed on. Over NVFLARE, an exception in a published
method would be sent to the server with its text and traceback. So a hook makes one hospital's code
fail at several places, with the number 987654.321 in the text and in the variables. Then the number
is searched for, as text, as base64 of the text, and as the eight bytes of a float in both orders:

* in all that the hospital's processes gave to TLS,
* in all files of the server's kit and of the coordinator's home, in which NVFLARE has its job store
  and its snapshots, also inside archives,
* in what an administrator downloads of the job.

Controls: the hospital's own log must have the number; with a method that lets the exception
through, the number must be found in what was sent; and it must be found in an archive that is put
into the server's kit. The exit code is 1 if anything is not as it must be.

It needs the extra `nvflare`:  python benchmarks/deployment/planted_exception.py
"""

from __future__ import annotations

import base64
import json
import os
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from same_bits import CASES, COORDINATOR, HOOKS, RECORDS, Consortium, running

sys.path.insert(0, str(HOOKS))

from planted import CANARY

SITE = "hungary"
PLACES = ("hello", "open", "records", "contribution", "home", "through")
_TEXT = repr(CANARY).encode()
NEEDLES = (
    _TEXT, struct.pack("<d", CANARY), struct.pack(">d", CANARY),
    # In base64, a text has three forms. The ends depend on its neighbours, so they are left out.
    *(base64.b64encode(b"x" * shift + _TEXT)[4:-4] for shift in range(3)),
)  # fmt: skip


def contents(tops: Iterable[Path]) -> Iterator[tuple[Path, bytes]]:
    """Yield every file with its content, and the files in archives."""
    for top in tops:
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if not path.is_file():
                continue
            yield path, path.read_bytes()
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    for name in archive.namelist():
                        yield path / name, archive.read(name)


def found(tops: Iterable[Path]) -> list[Path]:
    """Return the files that have the number in any form."""
    return [path for path, content in contents(tops) if any(n in content for n in NEEDLES)]


def main() -> None:
    """Play all places, and print a table."""
    # Without the hospital there are too few sites, so no run goes on without it.
    job, wrong = CASES[0].job(12.0, min_sites="4"), False
    with tempfile.TemporaryDirectory(prefix="secagg-planted-") as scratch:
        folder = Path(scratch)
        orders = folder / "orders"
        orders.mkdir()
        (orders / "capture").write_text(SITE)
        os.environ |= {"SECAGG_HOOKS": str(orders), "PYTHONPATH": str(HOOKS)}
        made = Consortium.make(folder / "consortium", RECORDS)
        made.approve(job)
        log = made.homes[SITE].folder / "log.txt"
        with running(made):
            print("| the exception is raised | NVFLARE | own log | sent | server | downloaded |")
            print("|---|---|---|---|---|---|")
            for place in PLACES:
                (orders / "planted").write_text(json.dumps([SITE, place]))
                log.write_bytes(b"")
                submitted = made.submit(job, place)
                status = made.wait(submitted, 180)
                downloads = folder / f"download-{place}"
                downloads.mkdir()
                made.admin.download_job_result(submitted, str(downloads))
                server = (made.kit(COORDINATOR), made.homes[COORDINATOR].folder)
                own, sent = found([log]), found(orders.glob("*.sent"))
                there, taken = found(server), found([downloads])
                print(
                    f"| {place} | {status} | {len(own)} | {len(sent)} | {len(there)} | "
                    f"{len(taken)} |", flush=True,
                )  # fmt: skip
                control = place == "through"
                wrong |= bool(sent) != control or bool(there) or bool(taken)
                wrong |= not own and place not in (
                    "home",
                    "through",
                )  # these have no home to log in
                for path in (*there, *taken):
                    print(f"  {path}")
            captured = sum(path.stat().st_size for path in orders.glob("*.sent"))
            print(f"\nsearched: {captured / 1e6:.1f} MB before TLS, "
                  f"{sum(1 for _ in contents(server))} files at the server")  # fmt: skip
        with zipfile.ZipFile(
            made.kit(COORDINATOR) / "control.zip", "w", zipfile.ZIP_DEFLATED
        ) as archive:
            archive.writestr("record", struct.pack(">d", CANARY) * 100)
        control = bool(found(server))
        print(f"control, an archive at the server: {'found' if control else 'NOT FOUND'}")
    sys.exit(wrong or not control)


if __name__ == "__main__":
    main()
