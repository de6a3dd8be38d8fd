"""The part of the provider suite about tasks that share a sandbox: what of one reaches the next."""

from __future__ import annotations

import json

from tests.contracts.provider_worlds import World, python, script, story

SHARED = {"sandbox": "run-0", "run": "run-1"}
LOOKS = """
import os, signal, sys, warnings
seen = {
    "cwd": os.path.relpath(os.getcwd(), globals().get("START", os.getcwd())),
    "umask": os.umask(0o022),
    "term": getattr(signal.getsignal(signal.SIGTERM), "__name__", 0),
    "usr1": repr(signal.getsignal(signal.SIGUSR1)),
    "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "filters": [str(it) for it in warnings.filters],
    "argv": list(sys.argv),
    "streams": [type(it).__name__ for it in (sys.stdin, sys.stdout, sys.stderr)],
    "encoding": [sys.stdout.encoding, sys.stdout.errors],
    "stdin": sys.stdin.read(),
    "limit": globals().get("limit", 100),
    "variables": sorted(n for n in os.environ if n.startswith(("TASK_", "LEFT"))),
    "environ": type(os.environ).__name__,
    "helper": type(peek).__name__ + peek("text", 0, 2),
    "json": json.dumps([1]),
}
print("looked")
START = globals().get("START") or os.getcwd()
counted = globals().get("counted", 0) + 1
SPOILS
SUBMIT(**seen, counted=counted)
"""
SPOILS = """
import builtins, io
os.environ["LEFT"] = "yes"
os.environ = {"LEFT": "yes"}
os.mkdir("below")
os.chdir("below")
os.umask(0o077)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
signal.setitimer(signal.ITIMER_REAL, 3600.0)
warnings.simplefilter("error")
sys.argv.append("--more")
sys.stdin = io.StringIO("other")
sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="latin-1")
sys.stderr = io.StringIO()
report = peek = None
limit = limit * 2
send = SUBMIT
def SUBMIT(**fields):
    send(**fields)
"""


class ProviderSharing:
    """Mixed into ProviderSuite."""

    @story
    async def test_a_task_of_a_shared_sandbox_finds_what_a_fresh_one_finds(
        self, world: World
    ) -> None:
        rows = python(LOOKS.replace("SPOILS", "if params.get('spoils'):\n" + _indented(SPOILS)))
        first = await world.start(rows, params={"limit": 5, "spoils": True}, reusable=True)
        before = json.loads((await world.ended(first)).result or "{}")
        second = await world.start(rows, params={"scale": 2}, reusable=True, **SHARED)
        after = json.loads((await world.ended(second)).result or "{}")
        assert (before.pop("counted"), after.pop("counted")) == (1, 2)
        assert (before.pop("limit"), after.pop("limit")) == (5, 100)
        assert before.pop("variables") == ["TASK_LIMIT", "TASK_SPOILS"]
        assert after.pop("variables") == ["TASK_SCALE"]
        assert after == before
        assert await world.log(first) == await world.log(second) == b"looked\n"

    @story
    async def test_a_command_of_a_shared_sandbox_has_its_own_parameters_alone(
        self, world: World
    ) -> None:
        text = "env | grep ^TASK_ | sort; cat $FLEETCTL_PARAMS; umask; cd /; umask 000"
        first = await world.start(script(text), params={"limit": 5}, reusable=True)
        assert (await world.ended(first)).sandbox_open
        second = await world.start(script(text), params={"scale": 2}, reusable=True, **SHARED)
        await world.ended(second)
        assert await world.log(first) == b'TASK_LIMIT=5\n{"limit": 5}0022\n'
        assert await world.log(second) == b'TASK_SCALE=2\n{"scale": 2}0022\n'

    @story
    async def test_term_unwinds_a_task_whatever_the_one_before_made_of_it(
        self, world: World
    ) -> None:
        code = (
            "import signal, time\n"
            "if first: signal.signal(signal.SIGTERM, signal.SIG_IGN); SUBMIT()\n"
            "try:\n    print('begun', flush=True)\n    time.sleep(600)\n"
            "finally:\n    print('saved')"
        )
        first = await world.start(python(code), params={"first": True}, reusable=True)
        assert (await world.ended(first)).sandbox_open
        second = await world.start(python(code), params={"first": False}, reusable=True, **SHARED)
        await world.log_holds(second, b"begun")
        await world.provider.stop(second, grace_s=60)
        await world.ended(second)
        assert await world.log(second) == b"begun\nsaved\n"


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
