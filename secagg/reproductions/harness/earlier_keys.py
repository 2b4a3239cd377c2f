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
    "d19820e53e4485dbe2b1d6b77ddffc63f907328233fb513487a5c067a8ba7503": (
        "sparse.regression",
        "35f5a06d9934cf195a7ce3a26374411709783e37458fc19d8bbdbeff5cc87318",
    ),
    "911d4cf4acfc5ea0fdbce4109ffbe425043933d396604cdf23fe69729e35bb5e": (
        "sparse.network",
        "0a54cf6f94c1e623b3297d4ef80b7f131e972f065919f56d2e71eae84cd83f2a",
    ),
    "4756cb6c5088af7c9a765d6cf4305c996638e664ce610a8423c67e65de835ab5": (
        "sparse.directed",
        "416b714c885706d1f455aae2ef9039facf8d1d123ef93ba6f0c83cd349d96d0c",
    ),
    "341c3498a7d5c8d3577ab84197e08c01217011e0b4b875d5275cc27180fc9bb2": (
        "sparse.deviating",
        "7584b0d3211f25c9a390a88b45befe30710377b26269cc7f95c7209fd9b19878",
    ),
    "4579782bca9e46f6e9a0bde73aa7c1677db80bbe22f8eca72061a7e1d297bc65": (
        "fedlin.covariance",
        "f4b87219b500fc45db8c6cf220fec43474b2c815319a44461d05c7eb46a3a63e",
    ),
    "ac4c81b95ce54f2c69dc692cd15a1cca6bff84275e7deb035a0722c078374bcc": (
        "fedlin.selection",
        "f1c3439253b0fcf3fa1c44d0f7b835b69c2d566aa6d25e5aabfcb6e90b9039cb",
    ),
    "3364b947b8f310c936c826143db830488b2f7ee979007018aefc095da670dfc4": (
        "fedlin.exact",
        "51c769375fadd35135c70faadaeb897b252519f460da1ad088ca1d11e29565f9",
    ),
    "5dc312f1e3657d5bf0c1547fc7331ef7f559801df6313ff07b8c3c62cda84117": (
        "fedlin.schools",
        "717c572467d8bb75fca406a47b5eb9f38e70d3539c273ac9999e318901a81d53",
    ),
    "584222fca741167be5bbc59b7867bd590383797149f81734e7694ef720c6ad70": (
        "fedlin.signals",
        "89b7fe8a5615ebb71c34f8b24a3f2203f3b0df504d49d0faba583caa0f08d62a",
    ),
    "dad111eff8b72501dc2ec7f5734da60faef91f95278886f27837009105a0b4d8": (
        "fedlin.rounds",
        "6fc65b526d51f2d79cc39f6b3cf9ab85e645ccc593a31bb8d7e5b8b1e1351e36",
    ),
}
"""For the digest of a task's code: the task's name and the digest of its code in 362eb56."""
