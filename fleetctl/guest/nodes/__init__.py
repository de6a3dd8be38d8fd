"""Runs several machines as the nodes of one attempt, with one end.

gang.py is pure: a provider or supervisor that leads the nodes takes from it the name of each node,
the variables by which distributed programs find each other, the node that falls behind, and the end
of the attempt: `combine_ends` applies its rules in order, a lost node first, then the success of
node 0, then the first failure. ray.py and rayjob.py do work: in the forked process that leads a
node they start a Ray cluster around the program, or submit it as a job to a cluster that exists,
and never return.
"""
