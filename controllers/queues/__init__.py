"""Shares the quotas of queues: decides which runs may start, in which order, and by preemption.

QueueStates (queue_state.py) holds the usage and the waiting objects of every queue; a run's usage
is stored beside it before it starts. A pass checks each start with QueueAdmission
(queue_admission.py): every quota has capacity, and no earlier object could use it. In a tick in
which a cohort changed, preemption.py picks the next objects to wake, and the runs to stop for at
most one object. queue_position.py computes the order that users see, on request alone. Pure.
"""
