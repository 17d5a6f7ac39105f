"""A controller's REST API without switches: admission, calendar and journal, on configs/demo.yaml.

Prints its URL, and serves until standard input ends.
"""

import sys
import tempfile

from apps.controller.record.ledger import Ledger
from apps.journal.sqlite import SqliteJournal
from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.server import RestServer
from benchmarks.rest import LedgerService

fabric = load_configuration("configs/demo.yaml").fabric
with tempfile.TemporaryDirectory() as directory:
    ledger = Ledger(fabric=fabric, journal=SqliteJournal(f"{directory}/journal.db"))
    ledger.load()
    server = RestServer(create_app(LedgerService(fabric, ledger)), "127.0.0.1", 0)
    server.start()
    print(server.url, flush=True)
    sys.stdin.read()
    server.stop()
    ledger.close()
