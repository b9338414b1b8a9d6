"""The commands of mqadmin 5.3.3 for users and permissions, signed by a super user (``conf/tools.yml``).

`mqadmin` runs them. Two brokers are needed, because users and policies are copied from one to the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.interop.mqadmin import Place, reduced, run
from tests.interop.rocketmq_java import JavaBuild

_SCRIPT = """
listUser|-b|{broker}
listAcl|-b|{broker}
getUser|-b|{broker}|-u|nobody
createUser|-b|{broker}|-u|anna|-p|anna-secret
createUser|-b|{broker}|-u|anna|-p|other
createUser|-c|DefaultCluster|-u|ben|-p|ben-secret|-t|Super
createUser|-c|NoSuchCluster|-u|ben|-p|ben-secret
createUser|-b|{broker}|-u|carl|-p|carl-secret|-t|Emperor
createUser|-b|{broker}|-u|dora|-p|
createUser|-b|{broker}|-u|grüße|-p|geheim
getUser|-b|{broker}|-u|anna
getUser|-b|{broker}|-u|carl
getUser|-c|DefaultCluster|-u|ben
listUser|-b|{broker}
listUser|-c|DefaultCluster|-f|n
listUser|-b|{broker}|-f|nothing
updateUser|-b|{broker}|-u|anna|-p|newer-secret
updateUser|-c|DefaultCluster|-u|anna|-s|disable
updateUser|-b|{broker}|-u|anna|-t|Super
updateUser|-b|{broker}|-u|anna|-s|asleep
updateUser|-b|{broker}|-u|nobody|-s|disable
getUser|-b|{broker}|-u|anna
createAcl|-b|{broker}|-s|User:anna|-r|Topic:orders|-a|Pub|-d|Allow
createAcl|-b|{broker}|-s|User:anna|-r|Topic:ord*,Group:workers|-a|Pub,Sub|-i|10.0.0.0/8,192.168.1.7|-d|Deny
createAcl|-c|DefaultCluster|-s|User:ben|-r|*|-a|All|-d|Allow
createAcl|-b|{broker}|-s|User:nobody|-r|Topic:x|-a|Pub|-d|Allow
createAcl|-b|{broker}|-s|anna|-r|Topic:x|-a|Pub|-d|Allow
createAcl|-b|{broker}|-s|User:anna|-r|Planet:x|-a|Pub|-d|Allow
createAcl|-b|{broker}|-s|User:anna|-r|Topic:x|-a|Fly|-d|Allow
createAcl|-b|{broker}|-s|User:anna|-r|Topic:x|-a|Any|-d|Allow
createAcl|-b|{broker}|-s|User:anna|-r|Topic:x|-a|Pub|-d|Perhaps
createAcl|-b|{broker}|-s|User:anna|-r|Topic:x|-a|Pub|-i|10.0.0.0/33|-d|Allow
getAcl|-b|{broker}|-s|User:anna
getAcl|-b|{broker}|-s|User:carl
getAcl|-b|{broker}|-s|User:nobody
getAcl|-c|DefaultCluster|-s|User:ben
updateAcl|-b|{broker}|-s|User:anna|-r|Topic:orders|-a|Sub|-d|Allow
updateAcl|-c|DefaultCluster|-s|User:carl|-r|Group:*|-a|Sub|-d|Allow
updateAcl|-b|{broker}|-s|User:nobody|-r|Topic:x|-a|Pub|-d|Allow
listAcl|-b|{broker}
listAcl|-c|DefaultCluster|-s|anna
listAcl|-b|{broker}|-r|Group
listAcl|-b|{broker}|-s|nothing
copyUser|-f|{broker}|-t|{other}|-u|anna,nobody
copyUser|-f|{broker}|-t|{other}
copyUser|-f|{other}|-t|127.0.0.1:1|-u|anna
listUser|-b|{other}
copyAcl|-f|{broker}|-t|{other}|-s|User:anna
copyAcl|-f|{broker}|-t|{other}|-s|User:nobody
updateAcl|-b|{broker}|-s|User:ben|-r|Topic:late|-a|Pub|-d|Allow
copyAcl|-f|{broker}|-t|{other}
listAcl|-b|{other}
deleteAcl|-b|{broker}|-s|User:anna|-r|Topic:orders
deleteAcl|-b|{broker}|-s|User:anna|-r|Topic:none
deleteAcl|-b|{broker}|-s|User:nobody
getAcl|-b|{broker}|-s|User:anna
deleteAcl|-c|DefaultCluster|-s|User:anna
deleteAcl|-b|{broker}|-s|User:anna
deleteUser|-b|{broker}|-u|carl
deleteUser|-c|DefaultCluster|-u|nobody
copyAcl|-f|{other}|-t|{broker}|-s|User:carl
listUser|-b|{broker}
listAcl|-b|{broker}
"""
COMMANDS = [line.split("|") for line in _SCRIPT.split("\n") if line]
"""The commands, in this order; ``{other}`` is the address of the second broker."""
NAMES = [
    " ".join(command) + (f" ({count})" if (count := COMMANDS[:index].count(command)) else "")
    for index, command in enumerate(COMMANDS)
]
"""Names of the commands in the reference. A repeated command has a number."""
PROVIDERS = {
    f"{kind}Provider": f"org.apache.rocketmq.auth.{kind}.provider.Default{kind.capitalize()}Provider"
    for kind in ("authentication", "authorization")
} | {
    f"{kind}MetadataProvider": f"org.apache.rocketmq.auth.{kind}.provider.Local{kind.capitalize()}MetadataProvider"
    for kind in ("authentication", "authorization")
}
"""Apache RocketMQ has access control only with these classes; RaptorMQ ignores them."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """Addresses of the commands: the broker of the name server, and another one."""

    name_server: str
    broker: str
    other: str
    folder: Path


def printed(built: JavaBuild, brokers: Brokers, *, user: str, secret: str) -> dict[str, list[str]]:
    """Run `COMMANDS`, signed by ``user``. Return the normalized outputs, which keep remarks of refusals and
    addresses.
    """
    (brokers.folder / "conf").mkdir(exist_ok=True)
    tools = f"accessKey: {user}\nsecretKey: {secret}\n"
    (brokers.folder / "conf" / "tools.yml").write_text(tools, encoding="utf-8")
    place = Place(brokers.name_server, brokers.broker, brokers.folder)
    commands = [[word.replace("{other}", brokers.other) for word in command] for command in COMMANDS]
    outputs = run(built, place, commands)
    return dict(zip(NAMES, map(_kept, outputs), strict=True))


def _kept(output: str) -> list[str]:
    output = re.sub(r"CODE: ?(\d+) +DESC: ?", r"CODE \1, ", output)  # `reduced` would replace it by the code
    output = re.sub(r"(\d+)\.(\d+)\.(\d+)\.(\d+)(?![\d:])", r"\1-\2-\3-\4", output)  # address in a policy
    return reduced(output)
