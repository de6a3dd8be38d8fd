"""Calls W&B's service: the requests that a sweep there needs, without the `wandb` package.

calls.py has a function for each request (create, find, read and move a sweep, act as its agent).
Each sends GraphQL through the GraphqlCall that it is given, and checks the reply: a missing field
raises Unavailable, since one odd reply proves little. http.py makes the call, in a thread of its
own and under a deadline, and is loaded with the first one. A failed call is not repeated here: the
caller, engine/kinds/wandb, knows the effect of a second one. The key reaches no log and no error.
"""
