"""Makes what an agent is started with: a short program that takes the rest over its input, once a
version, and becomes the agent in the same process. Called by agent_link.py; pure.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

from fleetctl.guest.ship.assemble import remote_source

MARK = "fleetctl-agent"  # begins our line: a shell of the machine may print others before
# Each after those that it needs.
_PARTS = (
    *("engines", "boxes", "warden", "environments", "file_digests", "machine_files"),
    *("containers", "allocation", "agent"),
)
_PACKAGE = "fleetctl.providers.machines.shipped"

# Arguments: the directory of ours, and the version. A file that is there is whole, and is our own:
# in a directory of another user, or of all, it could be anybody's program.
BOOT = f"""
import os,sys
os.umask(63)
d,h=sys.argv[1:3]
d=os.path.realpath(os.path.expanduser(d));p=os.path.join(d,"agent",h)
def r(n):
 b=b""
 while len(b)<n:
  c=os.read(0,n-len(b))
  if not c:sys.exit(1)
  b+=c
 return b
if sys.version_info<(3,9):
 os.write(1,b"{MARK} old "+sys.version.split()[0].encode()+b"\\n");sys.exit(1)
try:
 os.makedirs(d,0o700,exist_ok=True)
 s=os.stat(d)
 if s.st_uid not in(0,os.geteuid()):
  raise OSError("`%s` belongs to user %d, not to the one who logs in"%(d,s.st_uid))
 if s.st_mode&2:raise OSError("every user of the machine may write to `%s`"%d)
 if any(it[0]!="."for it in os.listdir(d+"/shell/boxes"))if os.path.isdir(d+"/shell/boxes")else 0:
  os.write(1,b"{MARK} shell\\n");sys.exit(1)
 if os.path.exists(p+"/agent.py"):os.write(1,b"{MARK} have\\n")
 else:
  os.makedirs(p,0o700,exist_ok=True)
  os.write(1,b"{MARK} need\\n")
  for f in("guest.py","agent.py"):
   b=r(int(r(12)));t=p+"/."+f+str(os.getpid())
   with open(t,"wb")as o:o.write(b)
   os.replace(t,p+"/"+f)
except OSError as e:
 os.write(1,b"{MARK} fault "+str(e).encode()+b"\\n");sys.exit(1)
exec(compile(open(p+"/agent.py").read(),p+"/agent.py","exec"),{{"ROOT":d,"HERE":p}})
"""

# Shows the shipped modules under their own names, beside those of the guest.
_HEAD = """
import sys
guest = {"__name__": "guest"}
with open(HERE + "/guest.py", encoding="utf-8") as file:
    exec(compile(file.read(), "guest.py", "exec"), guest)
sys.meta_path.insert(0, guest["OneFile"]())
import fleetctl
for name in PACKAGES:
    module = sys.modules[name] = type(sys)(name)
    module.__path__ = []
for name, text in SOURCES:
    module = sys.modules[name] = type(sys)(name)
    exec(compile(text, name, "exec"), module.__dict__)
    package, _, short = name.rpartition(".")
    setattr(sys.modules[package], short, module)
for name in WARM:
    __import__(name)
"""
_END = """
if "BOX" in globals():
    sys.modules["{package}.allocation"].Allocation(ROOT, HERE + "/guest.py", BOX).serve()
else:
    sys.modules["{package}.agent"].Agent(ROOT, HERE + "/guest.py").serve()
"""
# Of a batch job. Arguments: the directory of ours, that of the agent, and the boxes of its nodes.
JOB = """import os,sys
os.umask(63)
d,p,*b=sys.argv[1:]
b=b[int(os.environ.get("SLURM_PROCID") or 0) if b[1:] else 0]
exec(compile(open(p+"/agent.py").read(),p+"/agent.py","exec"),{"ROOT":d,"HERE":p,"BOX":b})
"""
_PACKAGES = ("fleetctl.providers", "fleetctl.providers.machines", _PACKAGE)
# What every run needs: compiled once a line, and not in each process that it forks.
_WARM = (
    *(f"fleetctl.guest.remote.{it}" for it in ("main", "supervise", "verbs", "place")),
    *(f"fleetctl.guest.remote.{it}" for it in ("stream", "process.worker", "process.tree")),
    *(f"fleetctl.guest.remote.run.{it}" for it in ("attempt", "files", "keeping")),
    "fleetctl.guest.task.task",
)


@cache
def build_bundle() -> tuple[str, tuple[bytes, bytes]]:
    """Returns (the version, the texts that are sent where it is missing)."""
    here = Path(__file__).parent / "shipped"
    sources = [(f"{_PACKAGE}.{it}", (here / f"{it}.py").read_text("utf-8")) for it in _PARTS]
    tables = f"PACKAGES = {_PACKAGES!r}\nSOURCES = {sources!r}\nWARM = {_WARM!r}\n"
    end = _END.format(package=_PACKAGE)
    agent = (tables + _HEAD + end).encode()
    guest = remote_source().encode()
    return sha256(guest + agent).hexdigest()[:16], (guest, agent)
