"""Does a cluster manager own this host?

A host that has all that is wanted is left alone by a play, so there a cluster manager is only told of. One that
lacks something is not touched without leave: its work is another's to plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.audit.facts import Facts, fact
from fleet.audit.findings import Finding, Severity
from fleet.audit.rule import Rule, Sample, Wanted, rule
from fleet.audit.settled import settled


@rule(
    "preflight.kubelet",
    gate=True,
    reads=("kubelet.active",),
    needs_leave=True,
    known_bad=Sample(
        {
            "kubelet.active": True,
            "kubelet.evidence": "unit kubelet.service is active",
            "engine.responding": False,
        }
    ),
)
def kubelet(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The host is no Kubernetes node: its driver, runtime and toolkit belong to the cluster's operators."""
    if fact(facts, "kubelet.active"):
        evidence = fact(facts, "kubelet.evidence") or "running"
        yield _judged(
            self,
            facts,
            wanted,
            f"kubelet is active ({evidence}): this is a Kubernetes node",
            why="changing the engine under kubelet evicts or breaks its pods",
            remedy="let the cluster manage the node, or drain it"
            " (kubectl drain HOST --ignore-daemonsets --delete-emptydir-data), then give leave",
        )


@rule(
    "preflight.slurmd",
    gate=True,
    reads=("slurmd.active",),
    needs_leave=True,
    known_bad=Sample({"slurmd.active": True, "engine.responding": False}),
)
def slurmd(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The host runs no Slurm jobs. ``--disrupt`` overrules: the operator has drained it."""
    if fact(facts, "slurmd.active"):
        yield _judged(
            self,
            facts,
            wanted,
            "slurmd is active: Slurm may run jobs here",
            why="a job does not survive what provisioning may restart",
            remedy="drain it (scontrol update nodename=HOST state=drain reason=fleet), then give leave",
        )


@rule(
    "preflight.gpu_operator",
    gate=True,
    reads=("gpu_operator.active",),
    needs_leave=True,
    known_bad=Sample(
        {
            "gpu_operator.active": True,
            "gpu_operator.evidence": "/run/nvidia/validations exists",
            "engine.responding": False,
        },
    ),
)
def gpu_operator(self: Rule, facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """The GPU Operator does not manage the host: driver and toolkit would be installed twice."""
    if fact(facts, "gpu_operator.active"):
        yield _judged(
            self,
            facts,
            wanted,
            f"the GPU Operator manages this host ({fact(facts, 'gpu_operator.evidence') or 'its files are there'})",
            why="the operator brings driver and toolkit in containers of its own",
            remedy="let the operator manage the host, or take the node from it"
            " (kubectl label node HOST nvidia.com/gpu.deploy.operands=false), then give leave",
        )


def _judged(self: Rule, facts: Facts, wanted: Wanted, what: str, why: str, remedy: str) -> Finding:
    """The finding: information on a host that has all that is wanted, else one that waits for leave."""
    there = settled(facts, wanted)
    return self.finding(
        what,
        observed="active",
        limit="inactive, or leave given",
        source=why,
        remedy="nothing to do: what is wanted is there" if there else remedy,
        severity=Severity.INFO if there else Severity.ERROR,
    )
