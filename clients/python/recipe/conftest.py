"""A fixture with a node of Reveille for tests: copy this file, and set REVEILLE to the program if it is not in PATH."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from datetime import datetime

import pytest

import reveille

REVEILLE = os.environ.get("REVEILLE", "reveille")


class Node:
    """One node with a test clock. It sends to a mailbox instead of a relay."""

    def __init__(self, folder):
        self.log = folder / "reveille.log"
        command = [REVEILLE, "dev", "--test-clock", "--free-ports", "--data-dir", folder / "data"]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.url = "http://" + self.address("admin")
        self.mailbox = self.address("mailbox")
        self.client = reveille.Client(url=self.url, token="")

    def address(self, what):
        for _ in range(300):
            found = re.search(rf"^{what} +(\S+).*\n", self.log.read_text(), re.MULTILINE)
            if found:
                return found[1]
            time.sleep(0.1)
        raise RuntimeError(self.log.read_text())

    def now(self):
        """Returns the time of the test clock."""
        now = self.client.request("GET", "/v1/clock")["currentTime"]
        return datetime.fromisoformat(re.sub(r"(\.\d+)?Z$", "+00:00", now))

    def advance(self, duration):
        """Moves the clock on, by `20h` or `90s`, and waits until what is due by then is sent."""
        environment = {**os.environ, "REVEILLE_URL": self.url}
        subprocess.run([REVEILLE, "clock", "advance", duration], env=environment, check=True, capture_output=True)

    def emails(self, recipient="", count=0):
        """Returns the emails that were sent, oldest first. `count`: waits for so many, up to ten seconds."""
        for _ in range(200):
            with urllib.request.urlopen(f"{self.mailbox}/emails.json?per_page=1000&recipient={recipient}") as answer:
                found = json.load(answer)[::-1]
            if len(found) >= count:
                break
            time.sleep(0.05)
        return found

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    node = Node(tmp_path_factory.mktemp("reveille"))
    yield node
    node.stop()
