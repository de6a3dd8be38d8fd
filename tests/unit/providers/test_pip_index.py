"""Package indexes of images: real uv against a small index on loopback, with a password and
without, and what each provider makes of the same field.
"""

from __future__ import annotations

import asyncio
import base64
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fleetctl.common.errors import Refused
from fleetctl.engine.execute.secrets import ResolvedSecrets, with_login
from fleetctl.providers.daytona import daytona_check as daytona
from fleetctl.providers.daytona.assets import daytona_images
from fleetctl.providers.kubernetes.kubernetes_check import of_template
from fleetctl.providers.kubernetes.manifests.pod_parts import image_of
from fleetctl.providers.local.assets import envs
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.remote.recipes import build_recipe
from fleetctl.providers.uv import PASSWORD, USERNAME, check_packages, index_options, index_variables
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.template import Image, PipIndex, Template
from tests.unit.providers.test_envs import wheel

SECRET = {USERNAME: "robot", PASSWORD: "hush/1"}
URL, MORE, LINKS = (
    "https://a.example.org/simple",
    "https://b.example.org/w",
    "https://c.example.org",
)


class Index:
    """An index of one package. password: who asks must know it; empty for everybody."""

    def __init__(self, place: Path, password: str = "") -> None:
        (place / "simple" / "fleetctl-greeting").mkdir(parents=True)
        wheel(place / "simple" / "fleetctl-greeting")
        known = base64.b64encode(f"robot:{password}".encode()).decode()

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                if password and self.headers.get("Authorization") != f"Basic {known}":
                    self.send_response(401)
                    self.send_header("WWW-Authenticate", "Basic")
                    self.end_headers()
                else:
                    super().do_GET()

            def log_message(self, format: str, *args: object) -> None:
                """The test's output is its own."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(place)))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/simple"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(tmp_path / "open")
    yield made
    made.close()


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Index]:
    made = Index(tmp_path / "private", SECRET[PASSWORD])
    yield made
    made.close()


def image(**index: Any) -> Image:
    return Image.model_validate({"pip": ["fleetctl-greeting"], "pipIndex": index})


def installed(tmp_path: Path, image: Image) -> str:
    """What the package says, in an environment of the image."""
    made = asyncio.run(envs.python_of(LocalLayout(tmp_path / "home"), image))
    code = "import fleetctl_greeting; print(fleetctl_greeting.text)"
    done = subprocess.run([made.python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_packages_come_from_the_index_that_is_named(index: Index, tmp_path: Path) -> None:
    assert installed(tmp_path, image(url=index.url)) == "hello"


def test_a_page_of_links_is_enough(index: Index, tmp_path: Path) -> None:
    found = image(findLinks=[f"{index.url}/fleetctl-greeting/"], url=f"{index.url}/none")
    assert installed(tmp_path, found) == "hello"


def test_a_password_comes_of_a_secret_and_is_in_no_log(private: Index, tmp_path: Path) -> None:
    template = Template(python="1", image=image(url=private.url, secret="corp"))
    asked: list[tuple[tuple[str, ...], str]] = []

    def values(names: tuple[str, ...], namespace: str) -> ResolvedSecrets:
        asked.append((names, namespace))
        return ResolvedSecrets({**SECRET, "OTHER": "x"})

    known = with_login(template, values, "ns")
    assert asked == [(("corp",), "ns")]
    assert known.image is not None and installed(tmp_path, known.image) == "hello"
    assert "hush" not in str(known) + known.model_dump_json()
    logs = "".join(it.read_text() for it in (tmp_path / "home").rglob("*.log"))
    assert logs and "hush" not in logs


def test_a_wrong_password_is_refused_and_not_shown(private: Index, tmp_path: Path) -> None:
    found = image(url=private.url, secret="corp")
    assert found.pip_index is not None
    wrong = found.pip_index.with_login({PASSWORD: "hush-wrong"})
    with pytest.raises(Refused) as caught:
        installed(tmp_path, found.model_copy(update={"pip_index": wrong}))
    assert "hush" not in str(caught.value)


def test_a_package_that_is_not_there_is_one_line(index: Index) -> None:
    missing = image(url=index.url).model_copy(update={"pip": ("torhc==1.0",)})
    with pytest.raises(Refused, match="torhc") as caught:
        asyncio.run(check_packages(missing))
    assert "\n" not in str(caught.value)
    asyncio.run(check_packages(image(url=index.url)))


def test_a_secret_without_its_variable_is_refused_with_its_name() -> None:
    index = PipIndex(url=URL, secret="corp")
    for known in (index, index.with_login({USERNAME: "robot"})):
        with pytest.raises(Refused, match=PASSWORD):
            index_variables(known)


def test_a_password_goes_to_the_host_of_the_index_alone() -> None:
    beside = "https://a.example.org/more"
    index = PipIndex(url=URL, extra=(MORE, beside), secret="corp").with_login(SECRET)
    found = index_variables(index)
    assert (
        found["UV_INDEX_URL"]
        == found["PIP_INDEX_URL"]
        == ("https://robot:hush%2F1@a.example.org/simple")
    )
    assert found["UV_EXTRA_INDEX_URL"] == f"{MORE} https://robot:hush%2F1@a.example.org/more"
    assert index_options(index) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"url": "packages.example.org/simple"},
        {"url": "https://me:hush@packages.example.org/simple"},
        {"extra": ["--pre"]},
        {"findLinks": ["dist"]},
        {"findLinks": [LINKS], "secret": "corp"},
    ],
)
def test_what_no_index_can_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PipIndex.model_validate(wrong)


# -- every provider carries it ---------------------------------------------------------------------

WHOLE = {"url": URL, "extra": [MORE], "findLinks": [LINKS]}
FLAGS = f"--index-url={URL} --extra-index-url={MORE} --find-links={LINKS}"


def template(**index: Any) -> Template:
    return Template(python="1", image=image(**index))


def test_a_dockerfile_of_daytona_names_it(tmp_path: Path) -> None:
    text = daytona_images.build_image(build_recipe(template(**WHOLE)), tmp_path).dockerfile()
    assert f"pip install fleetctl-greeting {FLAGS}" in text
    assert (
        "index"
        not in daytona_images.build_image(build_recipe(Template(python="1")), tmp_path).dockerfile()
    )


def test_a_pod_installs_from_it() -> None:
    made = image_of(template(**WHOLE), ClusterSettings())
    assert made.install == (*FLAGS.split(), "fleetctl-greeting")


def test_a_place_that_takes_no_password_says_so_before_anything_is_stored() -> None:
    asked = template(url=URL, secret="corp")
    (found,) = daytona.of_image(asked)
    assert "no way to give a password" in found.what
    assert "a mirror that asks for no password" in found.fix


def test_a_pod_installs_with_a_secret_of_its_namespace_and_no_other() -> None:
    asked = template(url=URL, extra=[MORE], secret="corp")
    assert not [*of_template(asked, ClusterSettings())]  # nobody knows yet which Secret it is
    kept = with_login(asked, lambda _names, _within: ResolvedSecrets(refs=("login",)), "default")
    made = image_of(kept, ClusterSettings())
    assert made.login == "login"
    assert made.install == (
        f"--index={MORE}",
        f"--default-index=FLEETCTL1={URL}",
        "fleetctl-greeting",
    )
    given = with_login(asked, lambda _names, _within: ResolvedSecrets(SECRET), "default")
    with pytest.raises(Refused, match="a Secret of their namespace alone") as caught:
        image_of(given, ClusterSettings())
    assert "fromProvider" in caught.value.hint


def test_an_index_is_part_of_an_image_and_its_password_is_not() -> None:
    keys = {build_recipe(template(url=it)).key for it in (URL, MORE)}
    plain = build_recipe(Template(python="1", image=Image(pip=("fleetctl-greeting",)))).key
    assert len({*keys, plain}) == 3
    asked = template(url=URL, secret="corp")
    known = with_login(asked, lambda _names, _within: ResolvedSecrets(SECRET), "default")
    assert build_recipe(known).key == build_recipe(asked).key
