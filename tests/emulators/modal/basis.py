"""What every emulated image begins with: a Python at /usr/local, pip, uv, and tools without effect.

Laid out once per emulator below its directory; boxes see it under their own files.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

SYSTEM_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
UV = "/__modal/.bin/uv"
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

# Installed packages go where the real image has them. The tools that every image of the real
# service brings along are not installed: nothing here needs them, and they cost a download.
_PIP = f"""#!/bin/sh
verb="$1"
[ "$verb" = install ] || exec {UV} pip "$@" --python /usr/local/bin/python
shift
for word in "$@"; do
  shift
  case "$word" in
    pip|pip[=~\\<\\>]*|wheel|wheel[=~\\<\\>]*|setuptools|setuptools[=~\\<\\>]*|uv|uv[=~\\<\\>]*) ;;
    --no-cache-dir) set -- "$@" --no-cache ;;
    *) set -- "$@" "$word"; case "$word" in -*) ;; *) wanted=1 ;; esac ;;
  esac
done
case " $* " in *" -r "*|*" --requirement"*|*" -e "*) wanted=1 ;; esac
[ -n "$wanted" ] || exit 0
exec {UV} pip install --python /usr/local/bin/python "$@"
"""
_PIP_MODULE = """import os, sys
os.execv("/usr/local/bin/pip", ["pip", *sys.argv[1:]])
"""
_NOTHING = '#!/bin/sh\necho "(emulated) $(basename "$0") $*"\n'
NO_EFFECT = ("apt-get", "apt", "apt-key", "debconf-set-selections", "add-apt-repository")


def lay_out(directory: Path) -> Path:
    """The tree, laid out from `/`."""
    local = directory / "usr/local"
    (local / SITE / "pip").mkdir(parents=True)
    (local / "bin").mkdir()
    real = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}"
    for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
        (local / "bin" / name).symlink_to(real)
    (local / "pyvenv.cfg").write_text(
        f"home = {real.parent}\ninclude-system-site-packages = false\n"
        f"version = {'.'.join(map(str, sys.version_info[:3]))}\n"
    )
    for name in ("pip", "pip3"):
        _script(local / "bin" / name, _PIP)
    (local / SITE / "pip/__init__.py").write_text("")
    (local / SITE / "pip/__main__.py").write_text(_PIP_MODULE)
    for name in NO_EFFECT:
        _script(directory / "usr/bin" / name, _NOTHING)
    tools = directory / "__modal/.bin"
    tools.mkdir(parents=True)
    _tool(Path(__file__).with_name("fs_tools.py"), tools / "modal-sandbox-fs-tools")
    _link_or_copy(Path(_uv()), tools / "uv")
    return directory


def _uv() -> str:
    """uv of this environment, else any on PATH."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise FileNotFoundError("the emulator builds images with uv, which is not installed")
    return os.path.realpath(found)


def _tool(source: Path, target: Path) -> None:
    real = Path(sys.base_prefix) / "bin/python3"
    _script(target, f"#!{real} -ISB\n" + source.read_text())


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
