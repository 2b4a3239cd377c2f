"""The kernels under the address and undefined-behaviour sanitizers, at odd sizes.

The portable build, whose accesses to memory are all in C, so that the sanitizers see each of them.
Without optimisation, with which compiling it takes minutes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.protocols import portable_kernels

pytestmark = pytest.mark.kernels

OPTIONS = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
           "-fno-omit-frame-pointer")  # fmt: skip


def runtimes() -> list[str]:
    """Return the compiler's sanitizer libraries; [] if it has none."""
    found = []
    for name in ("libasan.so", "libubsan.so"):
        command = [str(portable_kernels.compiler()), f"-print-file-name={name}"]
        path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if not Path(path).is_absolute():
            return []
        found.append(path)
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not portable_kernels.compiler():
        pytest.skip("no C compiler")
    if not runtimes():
        pytest.skip("the compiler has no sanitizers")
    folder = tmp_path_factory.mktemp("sanitized")
    portable_kernels.build(folder, *OPTIONS)
    return folder


def play(built: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "support.protocols.sanitized_kernels", str(built), *arguments],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
        env=os.environ | {
            "LD_PRELOAD": " ".join(runtimes()),
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",
            "UBSAN_OPTIONS": "print_stacktrace=1:exitcode=99",
            "SECAGG_KERNELS": "on",
        },
    )  # fmt: skip


def test_every_kernel_at_odd_sizes_is_clean_and_equal_to_python(built: Path) -> None:
    done = play(built)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("equal\n")


def test_a_write_beyond_an_array_is_found(built: Path) -> None:
    done = play(built, "overflow")
    assert done.returncode == 99 and "heap-buffer-overflow" in done.stderr
    assert "equal" not in done.stdout
