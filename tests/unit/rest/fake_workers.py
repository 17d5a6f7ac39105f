"""Workers of a controller: a serving worker, and a lost worker."""

from apps.process.worker_list import SessionEnd, WorkerKnown, WorkerSeen


class FakeWorkers:
    shards = 4

    def __init__(self, *, just_known: bool = False):
        self.just_known = just_known
        self.here = (WorkerSeen("w1", "1.2", 1001.0, 12, 6, (0, 2), 3.25),)

    def seen(self):
        return self.here

    def known(self):
        (w1,) = self.here or (None,)
        if self.just_known:
            return (WorkerKnown("w1", w1, 0.25, {}),)
        return (
            WorkerKnown("w1", w1, 0.25, {SessionEnd.SILENT: 2}),
            WorkerKnown("w2", None, 70.0, {SessionEnd.ENDED: 1, SessionEnd.ORDERS_LATE: 3}),
        )
