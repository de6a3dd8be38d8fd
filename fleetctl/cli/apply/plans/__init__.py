"""Shows and saves plans: `fleetctl plan` as a screen, JSON or Markdown, and as a file for apply.

plan.py computes the plan in this process, from a read-only store, and changes nothing; over a
server, the server makes it. report_screen.py prints it, or writes a comment for a pull request in
which text of users stays inert. plan_file.py saves the manifests with the version of every object
and the losses shown; `apply FILE` then makes exactly those changes, or refuses a stale plan.
`--resolve` checks the packages of images with uv (package_resolution.py).
"""
