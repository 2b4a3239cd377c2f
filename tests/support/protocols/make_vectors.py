"""Write tests/vectors/*/*.json anew: run each protocol once and bend every request it makes.

Names of protocols on the command line: only theirs. (Sealed envelopes differ from run to run, so
writing a protocol's vectors changes them even where nothing else did.)
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.protocols.vectors import METHOD, PROTOCOLS, outcome, party_of, play
from support.protocols.world import World

from secagg.core import canonical_encoding
from secagg.core.frames import write_frame

FOLDER = Path(__file__).parents[2] / "vectors"
NUMBERS = {f"site_{i}": np.array([1.5 * i, -2.25, 1000.0]) for i in range(4)}
SEED = 11


def main() -> None:
    for name in sys.argv[1:] or PROTOCOLS:
        protocol = PROTOCOLS[name]
        world = World(protocol, NUMBERS, METHOD, min_sites=3)
        requests = record(world)
        by_phase: dict[str, list[dict[str, Any]]] = {}
        for (round_, phase, party), (state, request) in requests.items():
            vectors = by_phase.setdefault(phase, [])
            if (vectors and party != vectors[0]["party"]) or round_ > 1:
                continue  # one party a phase is enough; later rounds are like round 1
            base = describe(world, name, party, state)
            for about, changed in bend(world, requests, round_, phase, party, request):
                vector = {**base, **changed, "phase": phase, "round": round_, "about": about}
                vectors.append({**vector, "expect": outcome(play(vector), name, phase)})
        for phase, vectors in by_phase.items():
            path = FOLDER / name / f"{phase}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(vectors, indent=1) + "\n")
            print(name, phase, len(vectors), "vectors")


def record(world: World) -> dict[tuple[int, str, str], tuple[bytes, bytes]]:
    """Return, for each round, phase and party of an honest run, (state before, request)."""
    seen: dict[tuple[int, str, str], tuple[bytes, bytes]] = {}
    step = world.coordinator.start()
    while not step.done:
        for party, request in step.requests.items():
            state = world.engine.states.get(party) or world.engine.parties[party].first_state()
            seen[(step.state.round, step.state.phase, party)] = (state, request)
        step = world.coordinator.advance(step.state, world.engine.exchange(step.requests))
    return seen


def describe(world: World, protocol: str, party: str, state: bytes) -> dict[str, Any]:
    who = world.identities[party]
    return {
        "protocol": protocol,
        "party": party,
        "signing_key": who.signing_key.hex(),
        "opening_key": who.opening_key.hex(),
        "roster": [
            {"name": p.name, "role": p.role.value, "verify": p.verify_key.hex(),
             "seal": p.seal_key.hex()}
            for p in world.roster.parties.values()
        ],
        "session": world.session.hex(),
        "min_sites": 3,
        "numbers": NUMBERS[party].tolist() if party in NUMBERS else None,
        "random_seed": SEED,
        "state": state.hex(),
    }  # fmt: skip


def bend(
    world: World, requests: Any, round_: int, phase: str, party: str, request: bytes
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (what was done, changed fields): the good request first, then ones to be refused."""
    yield "good", {"request": request.hex()}
    header, signature, content = canonical_encoding.loads(request)
    body = canonical_encoding.loads(content)
    coordinator = world.identities["coordinator"]

    def signed(changed: dict[str, Any], **how: Any) -> dict[str, Any]:
        settings = {"identity": coordinator, "session": world.session, "round_": round_,
                    "phase": phase, "recipient": party, **how}  # fmt: skip
        return {"request": write_frame(**settings, body=changed).hex()}

    yield from bend_content(world, phase, party, body, signed)
    if round_ > 0:
        return
    flipped = bytes([content[-1] ^ 1])
    yield (
        "body changed",
        {"request": canonical_encoding.dumps([header, signature, content[:-1] + flipped]).hex()},
    )
    yield "cut off", {"request": request[: len(request) // 2].hex()}
    yield "byte appended", {"request": (request + b"N").hex()}
    yield (
        "signature of zeros",
        {"request": canonical_encoding.dumps([header, bytes(64), content]).hex()},
    )
    yield "another session", signed(body, session=bytes(16))
    yield "for another party", signed(body, recipient="site_3" if party != "site_3" else "site_1")
    yield "not from the coordinator", signed(body, identity=world.identities["site_3"])
    yield "unknown phase", signed(body, phase="nonsense")
    yield "an earlier round", signed(body, round_=-2)
    yield "empty body", signed({})
    after = party_of({**describe(world, world.protocol.name, party, b"")}).handle(
        request, requests[(round_, phase, party)][0]
    )
    yield "repeated", {"request": request.hex(), "state": after.state.hex()}


def bend_content(
    world: World, phase: str, party: str, body: dict[str, Any], signed: Any
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield requests that are well signed but ask for what must not be."""
    if "cohort" in body:
        yield "too few sites", signed({**body, "cohort": body["cohort"][:2]})
        yield "a site twice", signed({**body, "cohort": [*body["cohort"][:2], body["cohort"][0]]})
        others = [site for site in body["cohort"] if site != party]
        yield "without this site", signed({**body, "cohort": others})
        if body["records"] is None:
            yield "unknown stage", signed({**body, "stage": "other"})
        else:
            yield "another cohort than before", signed({**body, "cohort": body["cohort"][:3]})
            yield "records unknown", signed({**body, "records": None})
    if "claims" in body:
        first, second, *rest = body["contributors"]
        claims = body["claims"]
        yield "too few contributors", signed({**body, "contributors": [first, second]})
        yield "a contributor twice", signed({**body, "contributors": [first, first, second]})
        yield (
            "a contributor without proof",
            signed({**body, "claims": {k: v for k, v in claims.items() if k != first}}),
        )
        yield "proof of another site", signed({**body, "claims": {**claims, first: claims[second]}})
        yield "a stranger", signed({**body, "contributors": [*body["contributors"], "nobody"]})
        yield "one contributor fewer", signed({**body, "contributors": [second, *rest]})
    yield from bend_masked(party, body, signed)
    if "envelopes" in body:
        a, b = sorted(body["envelopes"])[:2]
        swapped = {**body["envelopes"], a: body["envelopes"][b], b: body["envelopes"][a]}
        yield "two sites' envelopes swapped: left out", signed({**body, "envelopes": swapped})
    if "envelope" in body:
        yield "envelope changed", signed({**body, "envelope": body["envelope"][:-1] + b"\0"})
        yield "envelope of another dealer", signed({**body, "dealer": "site_2"})
    if "ciphertexts" in body:
        sent = body["ciphertexts"]
        first, second, *_ = sorted(sent)
        yield "a ciphertext changed", signed({**body, "ciphertexts": {**sent, first: sent[second]}})
        swapped = {**sent, first: sent[second], second: sent[first]}
        yield "two sites' ciphertexts swapped", signed({**body, "ciphertexts": swapped})
        yield "no ciphertext of one site", signed({**body, "ciphertexts": {first: sent[first]}})
        rest = [site for site in body["contributors"] if site != party]
        yield "a sum of the others", signed({**body, "contributors": rest})
    if "product" in body:
        yield "ciphertext zero", signed({**body, "product": bytes(len(body["product"]))})
        yield "ciphertext too short", signed({**body, "product": body["product"][:-1]})
        yield "ciphertext above n^2", signed({**body, "product": b"\xff" * len(body["product"])})


def bend_masked(
    party: str, body: dict[str, Any], signed: Any
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what only the masked sum's requests can be bent to."""
    if "directory" in body:
        first, second, *_ = (site for site in sorted(body["directory"]) if site != party)
        keys = body["directory"]
        yield (
            "another site's keys for a site's own",
            signed({**body, "directory": {**keys, first: keys[second]}}),
        )
        fewer = {k: v for k, v in keys.items() if k != party}
        yield "a directory without this site's keys", signed({**body, "directory": fewer})
        pair = {k: v for k, v in keys.items() if k in (party, first)}
        yield "too few keys", signed({**body, "directory": pair})
        changed = keys[first][:-1] + bytes([keys[first][-1] ^ 1])
        yield "a key changed", signed({**body, "directory": {**keys, first: changed}})
    if "masking" in body:
        yield "too few sites mask", signed({**body, "masking": body["masking"][:2]})
        others = [site for site in body["masking"] if site != party]
        yield "masks without this site", signed({**body, "masking": others})
        withheld = dict(list(body["envelopes"].items())[1:])
        yield "a neighbour's shares withheld", signed({**body, "envelopes": withheld})
    if "statements" in body:
        signatures = body["statements"]
        few = dict(list(signatures.items())[:2])
        yield "too few signed the survivors", signed({**body, "statements": few})
        first, second, *_ = sorted(signatures)
        wrong = {**signatures, first: signatures[second]}
        yield "another site's signature", signed({**body, "statements": wrong})
    if "survivors" in body:
        others = [site for site in body["survivors"] if site != party]
        yield "survivors without this site", signed({**body, "survivors": others})
        yield "too few survivors", signed({**body, "survivors": body["survivors"][:2]})
        yield (
            "a survivor who did not mask",
            signed({**body, "survivors": [*body["survivors"], "nobody"]}),
        )
        yield "survivors that are no names", signed({**body, "survivors": [1, 2, 3]})


if __name__ == "__main__":
    main()
