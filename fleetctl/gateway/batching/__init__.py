"""Sends rows of many tasks together, through a model server's own batch API.

batcher.py gathers the rows of one object, endpoint and model until no other comes for a while; the
highest cost of a row is held from its first moment. running_batch.py then stores the batch with a
tag, uploads it through batch_api.py, polls, and reads the answers. Its record is durable before the
server gets it, so after a lost reply or a restart it is found by its tag and not begun twice. Each
answer is on disk before it is charged and delivered. A row that the server never began goes into
another batch; a batch is cancelled once no caller wants any row.
"""
