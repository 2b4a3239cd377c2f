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
    "7a70d40571ad3e9be724f7dae9cd75983e77fb4b12cd34a090bf8d3a7c2d6221": (
        "graphs.consensus",
        "f750ba487c8beab212c7072c2e0b2a9bdd6b2590dd14c957df523dcfa8e3ba8b",
    ),
    "c9a1c08ec5f24dbe13ed83d86bf87f2d02a3b14982ad625a009d92f4e5215c90": (
        "graphs.pooled",
        "7cd99f5c951f96761d4388bafe80fdd37c94de70ceceef391eebd7db61127d55",
    ),
    "f9aed91f129c635026ca195d92d50808b7e0dab7cbb85cbd9c7aad765d9d1a32": (
        "graphs.local",
        "8ae996b99ecf2ebe25daf0993ab01562ad5395e13f88ab8789e6251d4741f40f",
    ),
    "34e3115e3ebffc5f3936c3cd1413ce1b94efc770f3d200ac3c48696b0266a371": (
        "graphs.neural",
        "57c8e002b75984be9415bd47eb0e4158a8e5ce3428774b4fa6a95e9be9833a56",
    ),
    "7edfe5c9b3d2ee2fb0531c0a2fec412396495ee95a126c2d0ad2c6262f252a09": (
        "sparse.regression",
        "35f5a06d9934cf195a7ce3a26374411709783e37458fc19d8bbdbeff5cc87318",
    ),
    "a1ab8cf9b971dd21e15dfe421672bd6dcc9bdac77305ec904c42f9050fea17cd": (
        "sparse.network",
        "0a54cf6f94c1e623b3297d4ef80b7f131e972f065919f56d2e71eae84cd83f2a",
    ),
    "06aea22d76c08dd0ad5ed7dfa3ee096614d4eb857bfd70102390a5144e788f8d": (
        "sparse.directed",
        "416b714c885706d1f455aae2ef9039facf8d1d123ef93ba6f0c83cd349d96d0c",
    ),
    "2843cad1b560fdaeb56eb65421737a3c6e1a5ee316bd25f79d44865941f6b81f": (
        "sparse.deviating",
        "7584b0d3211f25c9a390a88b45befe30710377b26269cc7f95c7209fd9b19878",
    ),
    "897d033a1bbdde6b9f62cd015ea933d83c69e36a7ed74685de0afb96142056f0": (
        "fedlin.covariance",
        "f4b87219b500fc45db8c6cf220fec43474b2c815319a44461d05c7eb46a3a63e",
    ),
    "1477618da9f462115fcd421be7da2639a5895dffa6083405c88402292533ee3d": (
        "fedlin.selection",
        "f1c3439253b0fcf3fa1c44d0f7b835b69c2d566aa6d25e5aabfcb6e90b9039cb",
    ),
    "8802f7e18f28d36cce93f14f423a406f9df9a769a7cba71c1c90b678bff4e97c": (
        "fedlin.exact",
        "51c769375fadd35135c70faadaeb897b252519f460da1ad088ca1d11e29565f9",
    ),
    "600b81be011f044c66744257c69e1c7705cb4d747d29e9984130f6cbd9a6c90d": (
        "fedlin.schools",
        "717c572467d8bb75fca406a47b5eb9f38e70d3539c273ac9999e318901a81d53",
    ),
    "164f0c8764a4ebcbf90211a195781c4b760f12159871966c5a55d70d29c8ad6a": (
        "fedlin.signals",
        "89b7fe8a5615ebb71c34f8b24a3f2203f3b0df504d49d0faba583caa0f08d62a",
    ),
    "ca6f4ca23e80b04fa36cb91d02fdd7d2dcf95c6900d463366ced5f7728ab47f7": (
        "fedlin.rounds",
        "6fc65b526d51f2d79cc39f6b3cf9ab85e645ccc593a31bb8d7e5b8b1e1351e36",
    ),
}
"""For the digest of a task's code: the task's name and the digest of its code in 362eb56."""
