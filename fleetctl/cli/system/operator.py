"""`fleetctl operator`: runs the controller in a cluster, with custom resources as desired state."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.specs.builtin import DEFAULT_PROVIDER

LEASE_S_MIN = 3

PAGE = """\
[--watch-namespace NAME] [--lease NAME] [--lease-namespace NAME]
         [--lease-seconds N] [--local-means PROVIDER] [--context NAME]
         [--kubeconfig FILE] [--health-port PORT] [--allow-env NAMESPACE=VARIABLE]
         [--allow-provider-secrets NAMESPACE=NAME]

Run the controller in a Kubernetes cluster: custom resources say what is wanted, and
their statuses how it stands. Of several, the one that holds the Lease works; its state
is in $FLEETCTL_HOME. `deploy/` has what a cluster needs for it.

examples:
  fleetctl operator --health-port 8081
  fleetctl operator --context kind-test --watch-namespace team
  fleetctl operator --health-port 8081 --local-means kubernetes
  fleetctl operator --allow-env team-a=HF_TOKEN,WANDB_API_KEY --allow-env '*=PROXY'
  kubectl apply -f deploy/crds && kubectl apply -k deploy/kustomize

exit codes:
  0 asked to end, 1 lost the lease, 3 the cluster cannot be reached by the kubeconfig
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "--watch-namespace",
        default="",
        metavar="NAME",
        help="the one namespace whose objects are looked at; default: all",
    )
    made.add_argument(
        "--lease",
        default="fleetctl-operator",
        metavar="NAME",
        help="the Lease that the leader holds; default: fleetctl-operator",
    )
    made.add_argument(
        "--lease-namespace",
        default="",
        metavar="NAME",
        help="where it is; default: that of the pod",
    )
    made.add_argument(
        "--lease-seconds",
        type=int,
        default=15,
        metavar="N",
        help="how long after a leader's last sign of life another one begins; default: 15",
    )
    made.add_argument(
        "--local-means",
        default=DEFAULT_PROVIDER,
        metavar="PROVIDER",
        help="provider of work that names `local` or none; default: this very container",
    )
    made.add_argument("--context", default="", metavar="NAME", help="of the kubeconfig")
    made.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="default: $KUBECONFIG, or the pod's own"
    )
    made.add_argument(
        "--health-port",
        type=int,
        default=0,
        metavar="PORT",
        help="answers /healthz, /readyz and /metrics",
    )
    made.add_argument(
        "--allow-env",
        action="append",
        default=[],
        metavar="NAMESPACE=VARIABLE",
        help="variables of its own that a namespace's Secrets may read, after commas; `*`: of all"
        " namespaces; default: none",
    )
    made.add_argument(
        "--allow-provider-secrets",
        action="append",
        default=[],
        metavar="NAMESPACE=NAME",
        help="the same of secrets that an account of a cloud keeps; default: none",
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    from fleetctl.operator.operator_process import OperatorOptions, run_operator

    if args.lease_seconds < LEASE_S_MIN:
        raise UsageError(
            f"--lease-seconds is {args.lease_seconds}; it must be at least {LEASE_S_MIN}",
            hint="a leader that is slow to answer must not lose its lease for that",
        )
    return run_operator(
        find_state_dir(),
        OperatorOptions(
            context=args.context,
            kubeconfig=args.kubeconfig,
            watch=args.watch_namespace,
            lease=args.lease,
            lease_namespace=args.lease_namespace,
            lease_s=args.lease_seconds,
            local_means=args.local_means,
            health_port=args.health_port,
            allow_env=_by_namespace("--allow-env", args.allow_env),
            allow_provider_secrets=_by_namespace(
                "--allow-provider-secrets", args.allow_provider_secrets
            ),
        ),
    )


def _by_namespace(flag: str, given: Sequence[str]) -> dict[str, frozenset[str]]:
    """Parses `NAMESPACE=NAME,...` arguments. Raises UsageError for a missing namespace or name."""
    found: dict[str, frozenset[str]] = {}
    for text in given:
        namespace, _, listed = text.partition("=")
        names = frozenset(name for name in listed.split(",") if name)
        if not namespace or not names:
            raise UsageError(
                f"{flag} is `{text}`; it must be `NAMESPACE=NAME`, or `NAMESPACE=NAME,NAME`",
                hint=f"such as `{flag} team-a=HF_TOKEN`; `*` is every namespace",
            )
        found[namespace] = found.get(namespace, frozenset()) | names
    return found
