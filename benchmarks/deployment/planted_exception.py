"""Plant an exception that quotes a record at a site, and search for the record at the server.

The text of an exception often quotes what it failed on. Over NVFLARE, an exception in a published
method would be sent to the server with its text and traceback. So a hook makes one hospital's code
fail at several places, with the number 987654.321 in the text and in the variables. Then the number
is searched for, as text, as base64 of the text, and as the eight bytes of a float in both orders:

* in all that the hospital's processes gave to TLS,
* in all files of the server's kit and of the coordinator's home, in which NVFLARE has its job store
  and its snapshots, also inside archives, and in the output of the server's process,
* in what an administrator downloads of the job, and in the administrator's kit.

Controls: each exception is raised, and the hospital's own log has the number. With a method that
lets the exception through (`through`), the number is found in what was sent. If the coordinator's
code passes it on, too (`kept`), it is found at the server, also in FLARE's job store and in the
download. It is also found, in each form, in an archive that is put into the server's kit. The exit
code is 1 if anything is not as it must be.

It needs the extra `nvflare`:  python benchmarks/deployment/planted_exception.py
"""

from __future__ import annotations

import base64
import io
import json
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hooked import HOOKS, install_hooks
from same_bits import CASES, COORDINATOR, RECORDS, Consortium, running

sys.path.insert(0, str(HOOKS))

from consortium import ADMIN
from planted import CANARY

SITE = "hungary"
PLACES = ("hello", "open", "records", "contribution", "home", "through", "kept")
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
            with suppress(FileNotFoundError, IsADirectoryError):  # the server is running
                yield from unpacked(path, path.read_bytes())


def unpacked(path: Path, content: bytes) -> Iterator[tuple[Path, bytes]]:
    """Yield a file, and all in it if it is an archive."""
    yield path, content
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield from unpacked(path / name, archive.read(name))


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
        install_hooks(orders)
        made = Consortium.make(folder / "consortium", RECORDS)
        made.approve(job)
        log = made.homes[SITE].folder / "log.txt"
        with running(made):
            print("| exception | raised | NVFLARE | own log | sent | server | downloaded |")
            print("|---|---|---|---|---|---|---|")
            server = (made.kit(COORDINATOR), made.homes[COORDINATOR].folder,
                      made.folder / f"{COORDINATOR}.out")  # fmt: skip
            for place in PLACES:
                (orders / "planted").write_text(json.dumps([SITE, place]))
                (orders / "fired").write_bytes(b"")
                log.write_bytes(b"")
                submitted = made.submit(job, place)
                status = made.wait(submitted, 180)
                downloads = folder / f"download-{place}"
                downloads.mkdir()
                made.admin.download_job_result(submitted, str(downloads))
                raised = len((orders / "fired").read_text().splitlines())
                own, sent = found([log]), found(orders.glob("*.sent"))
                there, taken = found(server), found([downloads, made.kit(ADMIN)])
                print(
                    f"| {place} | {raised} | {status} | {len(own)} | {len(sent)} | {len(there)} | "
                    f"{len(taken)} |", flush=True,
                )  # fmt: skip
                wrong |= not raised or status == "FINISHED:COMPLETED"
                wrong |= bool(sent) != (place in ("through", "kept"))
                wrong |= bool(there) != (place == "kept") or (bool(taken) and place != "kept")
                stored = found([made.homes[COORDINATOR].folder / "nvflare"])
                wrong |= place == "kept" and not (stored and taken)
                # The last three have no home to log in.
                wrong |= not own and place not in ("home", "through", "kept")
                for path in (*there, *taken):
                    print(f"  {path.relative_to(folder)}")
            captured = sum(path.stat().st_size for path in orders.glob("*.sent"))
            print(f"\nsearched: {captured / 1e6:.1f} MB before TLS, "
                  f"{sum(1 for _ in contents(server))} files at the server")  # fmt: skip
        said = b"cannot use the record " + _TEXT + b" of 303"
        forms = (
            said,
            *NEEDLES[1:3],
            *(base64.b64encode(b"x" * shift + said) for shift in range(3)),
        )
        missed = []
        for number, form in enumerate(forms):
            path = made.kit(COORDINATOR) / "control.zip"
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("record", form)
            missed += [] if found([path]) else [number]
        print(f"control, {len(forms)} forms in an archive at the server: {missed or 'all found'}")
    sys.exit(wrong or bool(missed))


if __name__ == "__main__":
    main()
