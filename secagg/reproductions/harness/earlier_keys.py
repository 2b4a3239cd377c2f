"""Keys under which version 362eb56 stored results that are still valid.

Until then a key also depended on the name of the task's module, and so did the digest of its code.
After the modules moved, every `--quick` cell of every task was computed by both versions: all
numbers were the same, bit for bit. So a cell that has no result under its own key may have one
under its earlier key.

The table holds for the code that was compared, and for no other: it is indexed by the digest of
the code. Once a task's code has changed, its row matches nothing and can be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from secagg.core import encoding
from secagg.reproductions.harness.cells import Cell, code_version

_TASKS: Final = "secagg.reproductions."


def earlier_key(cell: Cell) -> str | None:
    """Return the key of the cell's result in version 362eb56; None if its code has changed."""
    earlier = EARLIER.get(code_version(cell.task))
    if earlier is None:
        return None
    task, code = earlier
    return encoding.digest([_TASKS + task, dict(cell.settings), code])[:16].hex()


EARLIER: Final[Mapping[str, tuple[str, str]]] = {
    "6e60c6f026a3e23a65235e1cda5afef5ad07997da630d4fc7459a40ea4ddccd1": (
        "graphs.consensus",
        "f750ba487c8beab212c7072c2e0b2a9bdd6b2590dd14c957df523dcfa8e3ba8b",
    ),
    "39f65a7d37a738da2c8bb096e8a474647fa1a6f492817f802be8fe336271299a": (
        "graphs.pooled",
        "7cd99f5c951f96761d4388bafe80fdd37c94de70ceceef391eebd7db61127d55",
    ),
    "58d6fee66f1d4b11420a2fb94befe92ffeaadd576884201520089b8e73f62128": (
        "graphs.local",
        "8ae996b99ecf2ebe25daf0993ab01562ad5395e13f88ab8789e6251d4741f40f",
    ),
    "cbb88e0adf304b2d59b87ea97c2bb0845a5d494431f91340683d58b2dca4f718": (
        "graphs.neural",
        "57c8e002b75984be9415bd47eb0e4158a8e5ce3428774b4fa6a95e9be9833a56",
    ),
    "43dae93e4b4ff75ec76ce381ecbbe833b7be4445c151fd070e53b72a3d8df1e5": (
        "sparse.regression",
        "35f5a06d9934cf195a7ce3a26374411709783e37458fc19d8bbdbeff5cc87318",
    ),
    "1f912b14e5b2d482427206f23ca8dc0a288166e71040db889e482c759e80f702": (
        "sparse.network",
        "0a54cf6f94c1e623b3297d4ef80b7f131e972f065919f56d2e71eae84cd83f2a",
    ),
    "9f852850c715b7fc8f64bf36ff9eff50f22ed0589915c0388bd9c37a0f3cebac": (
        "sparse.directed",
        "416b714c885706d1f455aae2ef9039facf8d1d123ef93ba6f0c83cd349d96d0c",
    ),
    "2223937b4a1703faace21c5367094246dfb45403ac4aa811faefd1d523545c5f": (
        "sparse.deviating",
        "7584b0d3211f25c9a390a88b45befe30710377b26269cc7f95c7209fd9b19878",
    ),
    "dc53f315f5972b7a7f6701807ebeb14803f37c2801a81bcf7eddab1b96c4117a": (
        "fedlin.covariance",
        "f4b87219b500fc45db8c6cf220fec43474b2c815319a44461d05c7eb46a3a63e",
    ),
    "43df25a4e463e80bf8f87e7573ea8eb9e7c0599338ca7ab0f59273f76a0453a0": (
        "fedlin.selection",
        "f1c3439253b0fcf3fa1c44d0f7b835b69c2d566aa6d25e5aabfcb6e90b9039cb",
    ),
    "e8a7986bb069c779235887962168ffed7cc5a981b2bd694b22e104d8595a0269": (
        "fedlin.exact",
        "51c769375fadd35135c70faadaeb897b252519f460da1ad088ca1d11e29565f9",
    ),
    "0841cd4dab9e7254e7dc1c56c6b41afbe181b097932b60de745de28dfca0c4bc": (
        "fedlin.schools",
        "717c572467d8bb75fca406a47b5eb9f38e70d3539c273ac9999e318901a81d53",
    ),
    "2df5c6250fab9a0e83b9f7148fd25bf743cf08136820f0188a8383fcf0703aef": (
        "fedlin.signals",
        "89b7fe8a5615ebb71c34f8b24a3f2203f3b0df504d49d0faba583caa0f08d62a",
    ),
    "5a34ffe6f0093fd0f254304e100d6176c76d888bd8d463267a1deab56f7858f9": (
        "fedlin.rounds",
        "6fc65b526d51f2d79cc39f6b3cf9ab85e645ccc593a31bb8d7e5b8b1e1351e36",
    ),
}
"""For the digest of a task's code: the task's name and the digest of its code in 362eb56."""
