"""What a task hears from the gateway instead of an answer, and the words by which programs tell."""

NOT_GRANTED = "NotGranted"  # the token is of no task that runs
ENDPOINT_UNKNOWN = "EndpointUnknown"
LIMIT_REACHED = "LimitReached"  # of calls or tokens of a task
BUDGET_EXCEEDED = "BudgetExceeded"
PRICE_UNKNOWN = "PriceUnknown"  # a budget cannot be held with it
MODEL_NOT_FOUND = "ModelNotFound"  # the endpoint declares others
SERVER_UNREACHABLE = "ServerUnreachable"  # nothing was asked, nothing is paid
NO_ANSWER = "NoAnswer"  # asked, but it timed out or broke off
NO_BATCHES = "NoBatches"  # no server of the endpoint has a batch API
BATCH_REFUSED = "BatchRefused"  # the server did not take it: nothing was asked
NOT_SERVED = "NotServed"  # this method, path, or host
NOT_RECORDED = "NotRecorded"  # the disk is full: what cannot be accounted is not asked
BAD_REQUEST = "BadRequest"


class Refusal(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code
