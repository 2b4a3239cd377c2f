"""The files of this checkout, as they would be committed."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def checkout_files(below: str = ".") -> list[str]:
    """Return the paths, relative to ROOT, of the files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", below],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    return sorted(path for path in set(listed) if path and (ROOT / path).exists())


def copy_checkout(target: Path) -> Path:
    """Copy the checkout's files, links as links, into `target`: a place to build and run in."""
    for path in checkout_files():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target / path, follow_symlinks=False)
    return target
