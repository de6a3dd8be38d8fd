"""The refusal that a task receives from the gateway instead of an answer, with its reason codes for
programs.
"""

NOT_GRANTED = "NotGranted"  # the token is of no task that runs
ENDPOINT_UNKNOWN = "EndpointUnknown"
LIMIT_REACHED = "LimitReached"  # of calls or tokens of a task
BUDGET_EXCEEDED = "BudgetExceeded"
PRICE_UNKNOWN = "PriceUnknown"  # a budget cannot be held with it
MODEL_NOT_FOUND = "ModelNotFound"  # the endpoint declares others
SERVER_UNREACHABLE = "ServerUnreachable"  # no request was sent, no cost arose
NO_ANSWER = "NoAnswer"  # sent, but the request timed out or broke off
NO_BATCHES = "NoBatches"  # no server of the endpoint has a batch API
BATCH_REFUSED = "BatchRefused"  # the server did not accept it: no request was sent
NOT_SERVED = "NotServed"  # this method, path, or host
NOT_RECORDED = "NotRecorded"  # the disk is full: a call that cannot be accounted for is not sent
BAD_REQUEST = "BadRequest"


class GatewayRefusal(Exception):
    def __init__(
        self,
        status: int,
        code: str,
        message: str,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
