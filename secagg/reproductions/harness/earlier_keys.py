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
    "2a89addf0863aa99fdfc73a3a72b4a47c488cac9cec1586482dcb172184fba09": (
        "graphs.consensus",
        "f750ba487c8beab212c7072c2e0b2a9bdd6b2590dd14c957df523dcfa8e3ba8b",
    ),
    "3458311464fc3edfda37cc3a440017b2c142b7d5b9f0acf7650eba9e6362280f": (
        "graphs.pooled",
        "7cd99f5c951f96761d4388bafe80fdd37c94de70ceceef391eebd7db61127d55",
    ),
    "4138088726d6ff7fcb9aca461830864dfbeb7aae14ed23a3e16b0f7c25beeb6d": (
        "graphs.local",
        "8ae996b99ecf2ebe25daf0993ab01562ad5395e13f88ab8789e6251d4741f40f",
    ),
    "697718bd6ac7896b7f4f404335c7e426e95fac56a06af562aa3c03ba7627d793": (
        "graphs.neural",
        "57c8e002b75984be9415bd47eb0e4158a8e5ce3428774b4fa6a95e9be9833a56",
    ),
    "cf4e772dd78fec834b928c25224b926bf26df9803c03b65079240b8467ec11b5": (
        "sparse.regression",
        "35f5a06d9934cf195a7ce3a26374411709783e37458fc19d8bbdbeff5cc87318",
    ),
    "ea19892250c3dc0d2cc6d824b505873db96aedbe599004100babdcc17abda4a7": (
        "sparse.network",
        "0a54cf6f94c1e623b3297d4ef80b7f131e972f065919f56d2e71eae84cd83f2a",
    ),
    "7e1629b0c7c89552a1e02434880a448c3924d508165772650ff39e1ce5e1bf60": (
        "sparse.directed",
        "416b714c885706d1f455aae2ef9039facf8d1d123ef93ba6f0c83cd349d96d0c",
    ),
    "7740e050683df0c2660a019af0b1317bd90e91ce8a576eaf831d4bda77c9e37c": (
        "sparse.deviating",
        "7584b0d3211f25c9a390a88b45befe30710377b26269cc7f95c7209fd9b19878",
    ),
    "3ab327bb75520db6113500ed04658fd9c5957cfb1f836e8f747989660fefab9a": (
        "fedlin.covariance",
        "f4b87219b500fc45db8c6cf220fec43474b2c815319a44461d05c7eb46a3a63e",
    ),
    "17b75c337057e73a7a036e1dd2d697d05a15678466826e55c4089c4ba53797df": (
        "fedlin.selection",
        "f1c3439253b0fcf3fa1c44d0f7b835b69c2d566aa6d25e5aabfcb6e90b9039cb",
    ),
    "b4b9bf12ecfe91900e8b9f30211c2fcb97728b91e086cdd393bcb5994f3a85ce": (
        "fedlin.exact",
        "51c769375fadd35135c70faadaeb897b252519f460da1ad088ca1d11e29565f9",
    ),
    "77544b739907de2d9ddb33a88d72b57babed792c2ae9a24211b15fdb94a4c5a2": (
        "fedlin.schools",
        "717c572467d8bb75fca406a47b5eb9f38e70d3539c273ac9999e318901a81d53",
    ),
    "157000c4396c677416c67b80a1e2e1023df9328891fc3e9bbd8e58dd348a7801": (
        "fedlin.signals",
        "89b7fe8a5615ebb71c34f8b24a3f2203f3b0df504d49d0faba583caa0f08d62a",
    ),
    "00d266df689911b60c09ba273b46759efff011d0d89ac024b938c104892779d2": (
        "fedlin.rounds",
        "6fc65b526d51f2d79cc39f6b3cf9ab85e645ccc593a31bb8d7e5b8b1e1351e36",
    ),
}
"""For the digest of a task's code: the task's name and the digest of its code in 362eb56."""
