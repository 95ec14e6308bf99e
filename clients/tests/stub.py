#!/usr/bin/env python3
"""A broken network between the clients and a node, for the tests: `stub.py URL` prints `stub` and its URL.

The first part of the path says what happens to a request; the rest goes to the node:
  /once      the first attempt reaches the node and its answer is lost; the second gets 503 with `Retry-After: 1`; an
             attempt that comes earlier than that second, or has another key or body, is treated as another request
  /lost      each attempt reaches the node, and each answer is cut in the middle
  /cut       the answer is a stream of JSON lines in chunks, and is cut between two lines
  /drip      the answer is such a stream: a line every fifth of a second, without an end
  /busy      the first attempt gets 408 and the second 409, both with `Retry-After: 1`; the third reaches the node
  /missed    an answer that waits for events after `latest` is lost, and one event is after the cursor 7.0
  /unknown   504 after half a second, as by a node that does not know the outcome
  /later     503 with `Retry-After: 3600`
  /old       410, as for a cursor of events that are gone
  /silent    no answer for a minute
"""
import http.client
import http.server
import json
import sys
import threading
import time
import urllib.parse

NODE = urllib.parse.urlsplit(sys.argv[1])
LOCK = threading.Lock()
ATTEMPTS = {}


class Stub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_any(self):
        _, kind, path = self.path.split("/", 2)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        handle = getattr(self, f"do_{kind}", None)
        handle("/" + path, body) if handle else self.answer(404, {"detail": f"there is no {kind}"})

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_any

    def do_once(self, path, body):
        request = (self.command, path, self.headers.get("Idempotency-Key"), body)
        with LOCK:
            times = ATTEMPTS.setdefault(request, [])
            times.append(time.monotonic())
            number, early = len(times), len(times) == 3 and times[2] - times[1] < 1
            if early:
                times.clear()
        if early:
            self.answer(400, {"reason": "TOO_EARLY", "detail": "this attempt ignores Retry-After"})
        elif number == 1:
            self.forward(path, body)
            self.close_connection = True
        elif number == 2:
            self.refuse(503, "NO_LEADER", "no leader is known", {"Retry-After": "1"})
        else:
            status, content = self.forward(path, body)
            self.answer(status, content)

    def do_lost(self, path, body):
        status, content = self.forward(path, body)
        self.answer(status, content[: len(content) // 2], {"Content-Length": str(len(content))})
        self.close_connection = True

    def do_cut(self, _path, _body):
        self.stream(2, 0)

    def do_drip(self, _path, _body):
        self.stream(300, 0.2)

    def stream(self, lines, pause):
        self.send_response(200)
        self.send_header("Content-Type", "application/jsonl")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(lines):
            line = b'{"number": %d}\n' % number
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            time.sleep(pause)
        self.close_connection = True

    def do_busy(self, path, body):
        with LOCK:
            attempts = ATTEMPTS.setdefault((self.command, path, body), [])
            attempts.append(time.monotonic())
        if len(attempts) == 1:
            self.refuse(408, "BODY_TIMED_OUT", "the body did not come in time", {"Retry-After": "1"})
        elif len(attempts) == 2:
            self.refuse(409, "CONCURRENT_CHANGE", "another call changed it meanwhile", {"Retry-After": "1"})
        else:
            self.answer(*self.forward(path, body))

    def do_missed(self, path, _body):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
        if query["after"] == ["7.0"]:
            self.answer(200, {"events": [{"type": "EVENT_TYPE_RUN_OPENED"}], "cursor": "8.0", "more": False})
        elif query["wait"] == ["0s"]:
            self.answer(200, {"events": [], "cursor": "7.0", "more": False})
        else:
            self.close_connection = True

    def do_unknown(self, _path, _body):
        time.sleep(0.5)
        self.refuse(504, "OUTCOME_UNKNOWN", "it may have happened", {})

    def do_later(self, _path, _body):
        self.refuse(503, "NO_QUORUM", "no quorum", {"Retry-After": "3600"})

    def do_old(self, _path, _body):
        self.answer(410, {"reason": "CURSOR_TOO_OLD", "detail": "it is too old", "index": "1042.3"})

    def do_silent(self, _path, _body):
        time.sleep(60)
        self.close_connection = True

    def forward(self, path, body):
        headers = {name: self.headers[name] for name in ("Content-Type", "Idempotency-Key") if name in self.headers}
        connection = http.client.HTTPConnection(NODE.hostname, NODE.port, timeout=30)
        connection.request(self.command, path, body or None, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content

    def refuse(self, status, reason, detail, headers):
        self.answer(status, {"status": status, "reason": reason, "detail": detail}, headers)

    def answer(self, status, content, headers=()):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
server.daemon_threads = True
print(f"stub http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
