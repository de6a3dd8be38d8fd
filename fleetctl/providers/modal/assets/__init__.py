"""Prepares images, volumes and secrets at Modal before a sandbox or a function starts.

modal_images.py makes a recipe of the template, builds it once, and adds the guest and a frozen
copy of a local source; a repository is cloned in the sandbox instead. A build goes on at Modal
when the controller stops. Its output, which build_output.py collects, goes to the build's log.
modal_volumes.py finds a volume by its name or makes it; a missing secret refuses the run, and
values of Modal's secrets never come here. Images and volumes are remembered for a client of the
SDK, and looked up again once Modal reports that it does not know one.
"""
