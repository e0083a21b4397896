"""Does a cluster manager own this host?"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding
from fleet.audit.rule import Rule, Sample, Wanted, rule


@rule(
    "preflight.kubelet",
    gate=True,
    reads=("kubelet.active",),
    known_bad=Sample({"kubelet.active": True, "kubelet.evidence": "kubelet.service"}),
)
def kubelet(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The host is no Kubernetes node: its driver, runtime and toolkit belong to the cluster's operators."""
    if fact(facts, "kubelet.active"):
        yield self.finding(
            f"kubelet is active ({fact(facts, 'kubelet.evidence') or 'running'}): this is a Kubernetes node",
            observed="active",
            limit="inactive",
            source="changing the engine under kubelet evicts or breaks its pods",
            remedy="let the cluster manage the node, or drain it and stop kubelet first",
        )


@rule(
    "preflight.slurmd",
    gate=True,
    reads=("slurmd.active",),
    needs_leave=True,
    known_bad=Sample({"slurmd.active": True}),
)
def slurmd(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The host runs no Slurm jobs. ``--disrupt`` overrules: the operator has drained it."""
    if fact(facts, "slurmd.active"):
        yield self.finding(
            "slurmd is active: Slurm may run jobs here",
            observed="active",
            limit="inactive, or leave given",
            source="a job does not survive what provisioning may restart",
            remedy="drain it (scontrol update nodename=HOST state=drain reason=fleet), then give leave",
        )
