"""Puts the plan on the pull request: one comment, which is updated where it is there already, and
left alone where it says the same. Standard library only.

    python3 comment.py plan.md

GitHub: GITHUB_TOKEN, GITHUB_REPOSITORY, GITHUB_API_URL; PULL_REQUEST or GITHUB_REF tells which.
GitLab: GITLAB_TOKEN, CI_API_V4_URL, CI_PROJECT_ID, CI_MERGE_REQUEST_IID.
PLAN_ID: a word that tells this comment from others, where one repository has several plans.
"""

import json
import os
import re
import sys
import time
import urllib.error
import urllib.request

MARKER = "<!-- fleetctl-plan -->"
PAGE = 100  # comments per reply, as many as both give
PAGES_MAX = 50
TRIES = 4
TIMEOUT_S = 30.0
INSIDERS = ("OWNER", "MEMBER", "COLLABORATOR")  # at GitHub, who may write to the repository


class Forge:
    """list and create: addresses; change: that of one comment, with {id}. who: the address that
    tells whose token this is; "" where there is none.
    """

    def __init__(
        self, list_url: str, change_url: str, method: str, headers: "dict[str, str]", who: str = ""
    ) -> None:
        self.list_url, self.change_url, self.method = list_url, change_url, method
        self.who = who
        self.headers = {
            **headers,
            "Content-Type": "application/json",
            "User-Agent": "fleetctl-plan",
        }

    def put(self, text: str, marker: str) -> str:
        """Returns the outcome of the comment: created, updated, unchanged."""
        for page in range(1, PAGES_MAX + 1):
            found = self.ask("GET", f"{self.list_url}?per_page={PAGE}&page={page}")
            for comment in found:
                body = (comment.get("body") or "").replace("\r\n", "\n")
                if not body.startswith(marker) or not self.is_ours(comment):
                    continue
                if body.rstrip() == text.rstrip():
                    return "unchanged"
                self.ask(self.method, self.change_url.format(id=comment["id"]), {"body": text})
                return "updated"
            if len(found) < PAGE:
                break
        self.ask("POST", self.list_url, {"body": text})
        return "created"

    def is_ours(self, comment: "dict[str, object]") -> bool:
        """Returns True for a comment of ours: another author's comment with our marker is theirs to
        edit.
        """
        if self.who:
            author = comment.get("author") or {}
            return author.get("id") == self.ask("GET", self.who)["id"]
        author = comment.get("user") or {}
        return author.get("type") == "Bot" or comment.get("author_association") in INSIDERS

    def ask(self, method: str, url: str, content: "object" = None) -> "list[dict[str, object]]":
        """Again where the service is at fault, but for a comment that may have been made."""
        data = None if content is None else json.dumps(content).encode()
        for attempt in range(1, TRIES + 1):
            request = urllib.request.Request(  # noqa: S310
                url, data, self.headers, method=method
            )
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500 or method == "POST" or attempt == TRIES:
                    raise
            time.sleep(2 ** (attempt - 1))
        raise AssertionError


def find_forge() -> "Forge | None":
    env = os.environ
    number = env.get("PULL_REQUEST") or _parse_number(env.get("GITHUB_REF", ""))
    if env.get("GITHUB_TOKEN") and number:
        api = env.get("GITHUB_API_URL", "https://api.github.com")
        root = f"{api}/repos/{env['GITHUB_REPOSITORY']}/issues"
        headers = {"Authorization": f"Bearer {env['GITHUB_TOKEN']}"}
        return Forge(f"{root}/{number}/comments", root + "/comments/{id}", "PATCH", headers)
    if env.get("GITLAB_TOKEN") and env.get("CI_MERGE_REQUEST_IID"):
        notes = (
            f"{env['CI_API_V4_URL']}/projects/{env['CI_PROJECT_ID']}"
            f"/merge_requests/{env['CI_MERGE_REQUEST_IID']}/notes"
        )
        headers = {"PRIVATE-TOKEN": env["GITLAB_TOKEN"]}
        return Forge(notes, notes + "/{id}", "PUT", headers, env["CI_API_V4_URL"] + "/user")
    return None


def _parse_number(ref: str) -> str:
    match = re.match(r"refs/pull/(\d+)/", ref)
    return match[1] if match else ""


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    named = os.environ.get("PLAN_ID", "")
    marker = f"<!-- fleetctl-plan {re.sub('[^A-Za-z0-9._-]', '-', named)} -->" if named else MARKER
    there = find_forge()
    if there is None:
        print("no pull request or no token: the plan is not posted", file=sys.stderr)
        return 0
    try:
        print(f"comment {there.put(text.replace(MARKER, marker, 1), marker)}", file=sys.stderr)
    except (OSError, ValueError) as error:  # a token of a fork may read alone
        print(f"the comment cannot be written: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
