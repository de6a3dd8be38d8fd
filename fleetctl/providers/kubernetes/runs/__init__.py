"""Makes the Jobs of runs, begins the work in their pods, follows it, and ends them.

`job_creator.py` makes one Job for a run, named after the run, once `tenancy.py` allows the objects
that its pod names, and waits for its pods. The handle of Job and pod is stored before
`pod_streams.py` begins the run by a command in that pod; secrets travel on its input.
`job_informers.py` watches each namespace, so that no run costs a call, and a look by name decides
where the watch lacks an object. An end is confirmed once Job and pods are gone.
"""
