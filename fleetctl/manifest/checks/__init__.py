"""Finds specs that their models accept and that can never work, or are likely meant otherwise.

Each check is a pure function that takes a spec and yields findings with path, text and fix. The
rows of `fleetctl/manifest/rules.py` name each check with the specs and fields that it is for, and
import it when such a spec first needs it. `loader.py` applies them after the models; a finding's
severity decides between refusal and warning. A check sees the manifest alone: rules that need the
store or a provider are in `apply/predictions`.
"""
