"""Commands of the tutorials and guides that no other step executes, on the cluster of the examples."""

from __future__ import annotations

from e2e import access_control, documented
from e2e.brokers import NAMESPACE, TUTORIAL, stored
from e2e.errors import Failed
from e2e.kubernetes import Kubernetes


def commands_succeed(kubernetes: Kubernetes) -> None:
    """Execute the commands, after access control was turned off, and compare what they print and change."""
    before = stored(kubernetes, "demo", "flights")
    documented.execute(kubernetes, TUTORIAL, "Send and read", namespace=NAMESPACE)
    if (now := stored(kubernetes, "demo", "flights")) != before + 1:
        raise Failed(f"{before} messages before the tutorial sent one, {now} afterwards")
    create = ("raptormq", "topic", "create", "orders")
    kubernetes.kubectl("exec", "-n", NAMESPACE, "demo-namesrv-0", "--", *create)
    operator = "docs/guides/operator.md"
    text = documented.execute(kubernetes, operator, "Clients and the command line", namespace=NAMESPACE)
    if text.count("BatchCQ") != 2:
        raise Failed(f"the conversion of orders on two brokers prints {text!r}")
    documented.execute(kubernetes, "docs/guides/batches.md", "Encryption", namespace=NAMESPACE)
    password = documented.execute(kubernetes, operator, "Access control", namespace=NAMESPACE)
    if password != access_control.NEW_PASSWORD:
        raise Failed(f"the password of the administrator is {password!r}")
