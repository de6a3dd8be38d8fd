"""Provider `endpoint`: a model is asked for each unit that has a `prompt`; no sandbox is made."""
