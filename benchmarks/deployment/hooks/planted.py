"""An exception that quotes a record, planted into the code of a party.

=============  ====================================================================================
hello          at every message of the engine
open           when the party checks whether the job is approved
records        when it reads its records
contribution   when it encodes its contribution
home           before it has a home, and so a log
through        in a published method that lets it through: the control, for what NVFLARE then sends
=============  ====================================================================================
"""

CANARY = 987654.321


def fail(*_, **__):
    """Raise an exception with the value in its text, and in the variables of its traceback."""
    record = [CANARY]
    raise ValueError(f"cannot use the record {record}: {record[0]!r}")


def plant(victim, place, party):
    """Plant it, if this process is the victim's."""
    # ruff: noqa: PLC0415
    if party != victim:
        return
    if place in ("home", "through"):
        from nvflare.collab import collab

        from secagg.deploy import nvflare_parties

        if place == "home":
            nvflare_parties._home = fail
        else:
            answer = collab.publish(lambda self, message: fail())
            answer.__name__ = "answer"
            nvflare_parties.PartyObject.answer = answer
        return
    from secagg.runtime import site_steps
    from secagg.runtime.engines import site_node, stored_party

    match place:
        case "hello":
            site_node.PartyNode._answered = fail
        case "open":
            site_node.check_approved = fail
        case "records":
            stored_party.read_records = fail
        case "contribution":
            site_steps.encode = fail
