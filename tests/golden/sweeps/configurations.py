"""Configurations that the oracle and ours are asked about. Plain data, no import: oracle.py reads
it in an environment where there is nothing of ours.
"""

BASE = {"program": "t.py"}
CHOICE = {"x": {"values": [1, 2]}}
RANGE = {"x": {"min": 0.1, "max": 0.9}}
LOSS = {"name": "loss"}


def grid(**parameters):
    return {**BASE, "method": "grid", "parameters": parameters}


def random(**parameter):
    return {**BASE, "method": "random", "parameters": {"x": parameter}}


def whole(method="random", parameters=RANGE, **more):
    return {**BASE, "method": method, "parameters": parameters, **more}


def by(name, **keys):
    return random(distribution=name, **keys)


def hyperband(**keys):
    return whole(metric=LOSS, early_terminate={"type": "hyperband", **keys})


GRIDS = {
    "two axes": grid(a={"values": [1, 2, 3]}, b={"values": ["x", "y"]}),
    "by name, capitals first": grid(b={"values": [1, 2]}, A={"values": [3, 4]}, a={"value": 0}),
    "by code point": grid(a_b={"values": [1, 2]}, aB={"values": [3, 4]}, **{"a.b": {"value": 5}}),
    "kinds of values": grid(a={"values": [1, True, "1", None, "null", 1.5]}),
    "lists": grid(a={"values": [[1, 2], [1], []]}, b={"value": [0]}),
    "mappings": grid(a={"values": [{"k": 1}, {"k": 2, "l": [3]}]}),
    "the same twice": grid(a={"values": [2, 1, 2]}, b={"values": ["x", "x"]}),
    "equal numbers": grid(a={"values": [3e6, 3000000, 1, 1.0, 2]}),
    "equal numbers in lists": grid(a={"values": [[1], [1.0], [2]]}),
    "whole bounds": grid(a={"min": -2, "max": 3}, b={"values": ["x", "y"]}),
    "whole bounds, said": grid(a={"distribution": "int_uniform", "min": 5, "max": 7}),
    "steps of a tenth": grid(a={"distribution": "q_uniform", "min": 0.1, "max": 0.7, "q": 0.1}),
    "steps of one": grid(a={"distribution": "q_uniform", "min": 0, "max": 4}),
    "steps that do not fit": grid(a={"distribution": "q_uniform", "min": 1, "max": 8, "q": 3}),
    "groups": grid(
        m={"parameters": {"w": {"values": [8, 16]}, "d": {"parameters": {"z": {"value": 1}}}}},
        b={"values": [0, 1]},
    ),
    "groups between names": grid(
        a={"values": [1, 2]},
        c={"parameters": {"y": {"values": [5, 6]}}},
        d={"values": [True, False]},
    ),
}

# One parameter each. What is drawn is a number, or one of a few values.
DRAWS = {
    "uniform": {"distribution": "uniform", "min": -1.5, "max": 4.0},
    "uniform, inferred": {"min": 0.5, "max": 0.75},
    "log_uniform_values": {"distribution": "log_uniform_values", "min": 1e-6, "max": 1e-1},
    "log_uniform_values above 1": {"distribution": "log_uniform_values", "min": 2.0, "max": 3e4},
    "inv_log_uniform_values": {"distribution": "inv_log_uniform_values", "min": 0.01, "max": 10.0},
    "normal": {"distribution": "normal", "mu": 3.0, "sigma": 2.0},
    "normal by default": {"distribution": "normal"},
    "log_normal": {"distribution": "log_normal", "mu": -2.0, "sigma": 0.5},
    "log_normal by default": {"distribution": "log_normal"},
    "beta": {"distribution": "beta", "a": 2, "b": 5},
    "beta, at its ends": {"distribution": "beta", "a": 0.5, "b": 0.5},
    "beta by default": {"distribution": "beta"},
    "int_uniform": {"distribution": "int_uniform", "min": -3, "max": 4},
    "int_uniform, inferred": {"min": 1, "max": 6},
    "categorical": {"values": ["a", "b", 3, None]},
    "categorical, repeated": {"values": ["a", "b", "b"]},
    "one value": {"values": ["a"]},
    "probabilities": {"values": ["a", "b", "c"], "probabilities": [0.6, 0.3, 0.1]},
    "a probability of nought": {"values": ["a", "b"], "probabilities": [1.0, 0.0]},
    "q_uniform": {"distribution": "q_uniform", "min": 0.0, "max": 1.0, "q": 0.25},
    "q_uniform by default": {"distribution": "q_uniform", "min": 0, "max": 5},
    "q_log_uniform_values": {"distribution": "q_log_uniform_values", "min": 1, "max": 64, "q": 4},
    "q_normal": {"distribution": "q_normal", "mu": 10.0, "sigma": 2.0, "q": 2},
    "q_normal by default": {"distribution": "q_normal"},
    "q_log_normal": {"distribution": "q_log_normal", "mu": 1.0, "sigma": 0.5, "q": 1},
    "q_beta": {"distribution": "q_beta", "a": 2, "b": 2, "q": 0.2},
    "constant": {"value": 7},
}
CONTINUOUS_MANY = 12  # the first ones: numbers without end

VERDICTS = {
    "no method": {**BASE, "parameters": CHOICE},
    "no parameters": {**BASE, "method": "grid"},
    "no parameter": whole("grid", {}),
    "an unknown method": whole("sobol"),
    "a method that is a number": whole(3),
    "parameters as a list": whole("grid", [1]),
    "a bare value": whole("grid", {"x": 5}),
    "a bare null": whole("grid", {"x": None}),
    "a list as parameter": whole("grid", {"x": [1, 2]}),
    "an empty parameter": whole("grid", {"x": {}}),
    "no values": whole("grid", {"x": {"values": []}}),
    "values that are a text": whole("grid", {"x": {"values": "ab"}}),
    "value and values": whole("grid", {"x": {"value": 1, "values": [1]}}),
    "values and bounds": whole("grid", {"x": {"values": [1], "min": 0}}),
    "a name with a hyphen": whole("grid", {"lr-rate": {"value": 1}}),
    "a name with a point": whole("grid", {"m.lr": {"value": 1}}),
    "a name with a digit first": whole("grid", {"1x": {"value": 1}}),
    "a name with a slash": whole("grid", {"a/b": {"value": 1}}),
    "a name with a space": whole("grid", {"a b": {"value": 1}}),
    "an unknown key above": whole(colour="red"),
    "settings": whole(settings={}),
    "imports": whole(imports=["x"]),
    "prior runs": whole(prior_runs=["a"]),
    "a launch": whole(launch={}),
    "an unknown key of a parameter": random(min=0.1, max=0.9, step=0.1),
    "an unknown distribution": by("zipf", a=2),
    "only a least value": random(min=0.1),
    "only a greatest value": random(max=0.1),
    "bounds the wrong way round": random(min=0.9, max=0.1),
    "equal bounds": random(min=0.5, max=0.5),
    "equal whole bounds": random(min=5, max=5),
    "mixed bounds": random(min=0, max=0.5),
    "mixed bounds, the greatest whole": random(min=0.5, max=1),
    "mixed bounds of a uniform": by("uniform", min=0, max=0.5),
    "bounds that are texts": random(min="a", max="b"),
    "whole bounds of a uniform": by("uniform", min=1, max=3),
    "broken bounds of an int_uniform": by("int_uniform", min=0.5, max=3.5),
    "a uniform without a bound": by("uniform", min=0.1),
    "log values from nought": by("log_uniform_values", min=0, max=1),
    "log values below nought": by("log_uniform_values", min=-1.0, max=1.0),
    "log values": by("log_uniform_values", min=1e-4, max=1.0),
    "inverse log values": by("inv_log_uniform_values", min=1e-4, max=1.0),
    "steps of log values": by("q_log_uniform_values", min=1, max=100, q=5),
    "exponents of e": by("log_uniform", min=-5, max=0),
    "steps of exponents of e": by("q_log_uniform", min=-5, max=0),
    "inverse exponents of e": by("inv_log_uniform", min=0, max=5),
    "nested exponents of e": whole(
        parameters={
            "m": {"parameters": {"x": {"distribution": "log_uniform", "min": -5, "max": 0}}}
        }
    ),
    "steps": by("q_uniform", min=0, max=1, q=0.1),
    "steps of nought": by("q_uniform", min=0, max=1, q=0),
    "steps below nought": by("q_uniform", min=0, max=1, q=-1),
    "a bell": by("normal", mu=0, sigma=1),
    "a bell of its defaults": by("normal"),
    "a bell without width": by("normal", sigma=0),
    "a bell of negative width": by("normal", sigma=-1),
    "a bell with bounds": by("normal", min=0, max=1),
    "beta": by("beta", a=1, b=2),
    "beta of nought": by("beta", a=0, b=1),
    "beta below nought": by("beta", a=-1, b=1),
    "steps of a bell": by("q_normal", mu=0, sigma=1, q=0.5),
    "steps of log bells": by("q_log_normal"),
    "steps of beta": by("q_beta", q=0.1),
    "a constant that is a list": random(value=[1, 2]),
    "a constant by name": by("constant", value=3),
    "a constant without a value": by("constant"),
    "categories by name": by("categorical", values=[1]),
    "probabilities": random(values=[1, 2], probabilities=[0.5, 0.5]),
    "too few probabilities": random(values=[1, 2], probabilities=[1.0]),
    "probabilities above one": random(values=[1, 2], probabilities=[0.7, 0.7]),
    "a negative probability": random(values=[1, 2], probabilities=[1.5, -0.5]),
    "nested probabilities above one": whole(
        parameters={"m": {"parameters": {"x": {"values": [1, 2], "probabilities": [0.6, 0.6]}}}}
    ),
    "probabilities in a grid": whole("grid", {"x": {"values": [1], "probabilities": [1.0]}}),
    "groups": whole(parameters={"m": {"parameters": RANGE}}),
    "an empty group": whole(parameters={"m": {"parameters": {}}}),
    "a group with a value": whole(parameters={"m": {"parameters": RANGE, "value": 1}}),
    "a nested bare value": whole("grid", {"m": {"parameters": {"x": 3}}}),
    "a metric": whole(metric={"name": "a/b", "goal": "maximize", "target": 0.9}),
    "a metric without a name": whole(metric={"goal": "minimize"}),
    "a metric that is a text": whole(metric="loss"),
    "an unknown goal": whole(metric={"name": "loss", "goal": "min"}),
    "a target that is a text": whole(metric={"name": "loss", "target": "low"}),
    "imputes": whole("bayes", metric={**LOSS, "impute": "best", "impute_while_running": "latest"}),
    "an unknown impute": whole("bayes", metric={**LOSS, "impute": "mean"}),
    "an unknown key of the metric": whole(metric={**LOSS, "unit": "s"}),
    "bayes": whole("bayes", metric=LOSS),
    "bayes without a metric": whole("bayes"),
    "two metrics": whole(metrics=[LOSS, {"name": "cost"}]),
    "a cap": whole(run_cap=5),
    "a cap with a point": whole(run_cap=5.0),
    "a broken cap": whole(run_cap=5.5),
    "a cap of nought": whole(run_cap=0),
    "a cap that is a text": whole(run_cap="5"),
    "a cap that is true": whole(run_cap=True),
    "hyperband": hyperband(min_iter=3),
    "hyperband from its greatest": hyperband(max_iter=81, s=4),
    "hyperband without counts": hyperband(),
    "hyperband without looks": hyperband(max_iter=81),
    "hyperband of both": hyperband(min_iter=3, max_iter=27, s=2),
    "hyperband of both, without looks": hyperband(min_iter=3, max_iter=27),
    "hyperband without a band": hyperband(max_iter=2, s=2),
    "hyperband of one": hyperband(min_iter=3, eta=1),
    "hyperband of one and a half": hyperband(min_iter=3, eta=1.5),
    "hyperband from nought": hyperband(min_iter=0),
    "hyperband of a broken count": hyperband(max_iter=81, s=2.5),
    "hyperband, strict in words": hyperband(min_iter=3, strict="yes"),
    "hyperband, not strict": hyperband(min_iter=3, strict=False),
    "an unknown key of hyperband": hyperband(min_iter=3, grace=1),
    "early ends of another sort": whole(metric=LOSS, early_terminate={"type": "median"}),
    "early ends of no sort": whole(metric=LOSS, early_terminate={"min_iter": 3}),
    "early ends without a metric": whole(early_terminate={"type": "hyperband", "min_iter": 3}),
    "a command": whole(command=["${env}", "python", "${program}", "${args}"]),
    "a command that is a text": whole(command="python t.py"),
    "numbers in a command": whole(command=["python", 3, 0.5, True]),
    "an unknown macro": whole(command=["python", "${argz}"]),
    "a program that is a list": {**whole(), "program": ["t.py"]},
    "a name that is a number": whole(name=3),
    "words for people": whole(name="n", description="d", project="p", entity="e"),
    "a controller": whole(controller={"type": "local"}),
    "an unknown controller": whole(controller={"type": "remote"}),
    "an api version": whole(apiVersion="v1", kind="sweep"),
    "a job": {"job": "acme/p/j:v1", "method": "random", "parameters": RANGE},
    "a scheduler": whole("custom", scheduler={"engine": "optuna"}),
    "custom without a scheduler": whole("custom"),
    "a grid of a continuous one": whole("grid", RANGE),
    "a grid of a log one": whole(
        "grid", {"x": {"distribution": "log_uniform_values", "min": 0.1, "max": 1.0}}
    ),
}
