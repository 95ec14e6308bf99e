"""Tests of the client against `reveille dev`. clients/test starts it, and the stub of a broken network."""

import email
import email.policy
import json
import os
import time
import unittest
import urllib.request
from datetime import datetime, timedelta, timezone

import reveille
from reveille import Client, ReveilleError, literal

STUB = os.environ["REVEILLE_STUB"]
MAILBOX = os.environ["REVEILLE_MAILBOX"]
SENDER = "News <news@example.com>"


def read(path):
    with urllib.request.urlopen(MAILBOX + path) as answer:
        return answer.read().decode()


def emails(address, count=1):
    """Returns the emails to an address, once there are so many."""
    ends = time.monotonic() + 20
    while True:
        found = json.loads(read(f"/emails.json?recipient={address}"))
        if len(found) >= count or time.monotonic() > ends:
            return found
        time.sleep(0.05)


def parsed(address):
    """Returns the only email to an address, as Python's own parser reads it."""
    [caught] = emails(address)
    return email.message_from_string(read(f"/emails/{caught['number']}/source"), policy=email.policy.default)


def schedule(name):
    return {
        "timing": {"daily": {"hour": 9}},
        "zone": "Europe/Berlin",
        "policies": {"minGap": "0s", "overlap": "OVERLAP_ALLOW"},
        "content": {"sender": SENDER, "subject": "Hello {{ name }}", "text": "Hello."},
        "audience": {"columns": ["name"], "recipients": [{"address": f"{name}@example.com", "values": ["Own"]}]},
    }


class Sending(unittest.TestCase):
    def setUp(self):
        self.client = Client()

    def send(self, key, text="Hello.", client=None, **options):
        options.setdefault("to", f"{key}@example.com")
        return (client or self.client).send(key, sender=SENDER, subject="Hello", text=text, **options)

    def test_same_key_again_sends_nothing(self):
        first, again = self.send("py-once"), self.send("py-once")
        self.assertEqual((first["replayed"], again["replayed"]), (False, True))
        self.assertEqual(first["message"]["run"]["run"], again["message"]["run"]["run"])
        self.assertEqual(len(emails("py-once@example.com")), 1)

    def test_next_node_is_asked_if_one_is_down(self):
        client = Client(url="http://127.0.0.1:1, " + os.environ["REVEILLE_URL"])
        self.assertFalse(self.send("py-next-node", client=client)["replayed"])

    def test_answer_in_json_lines_is_a_list(self):
        to = ["py-lines-1@example.com", "py-lines-2@example.com"]
        run = self.client.send("py-lines", to=to, sender=SENDER, subject="Hello", text="Hello.")["message"]["run"]["run"]
        lines = self.client.request("GET", f"/v1/runs/{run}/recipients/export")
        self.assertEqual([line["address"] for line in lines], to)

    def test_other_content_under_the_same_key_is_refused(self):
        self.send("py-strict")
        with self.assertRaises(ReveilleError) as refused:
            self.send("py-strict", "Something else.")
        error = refused.exception
        self.assertEqual((error.status, error.reason, error.may_have_taken_effect), (409, "REQUEST_ID_REUSED", False))
        self.assertEqual(len(emails("py-strict@example.com")), 1)

    def test_attachments_arrive_as_they_were_given(self):
        files = [("Rechnung für Zoë.pdf", bytes(range(256)) * 40, "application/pdf"), ("empty.txt", b"", "text/plain")]
        logo = ("logo.png", b"\x89PNG", "image/png", "logo")
        html = "<img src='cid:logo'>"
        for replayed in (False, True):
            sent = self.send("py-file", html=html, attachments=[*files, logo], cc=["Team <team@example.com>"])
            self.assertEqual(sent["replayed"], replayed)
        whole = parsed("py-file@example.com")
        self.assertEqual((whole.get_content_type(), whole["Cc"]), ("multipart/mixed", "Team <team@example.com>"))
        found = [(part.get_filename(), part.get_payload(decode=True), part.get_content_type())
                 for part in whole.iter_attachments() if part.get_filename()]
        self.assertEqual(found, files)
        related = next(whole.iter_parts())
        self.assertEqual(related.get_content_type(), "multipart/related")
        shown = list(related.iter_parts())[1]
        self.assertEqual((shown["Content-ID"], shown.get_content()), ("<logo>", b"\x89PNG"))
        self.assertEqual(whole.get_body(("html",)).get_content().strip(), html)
        self.assertEqual(whole.get_body(("plain",)).get_content().strip(), "Hello.")

    def test_another_attachment_under_the_same_key_is_refused(self):
        self.send("py-file-strict", attachments=[("a", b"1", "text/plain")])
        with self.assertRaises(ReveilleError) as refused:
            self.send("py-file-strict", attachments=[("a", b"2", "text/plain")])
        self.assertEqual(refused.exception.reason, "REQUEST_ID_REUSED")

    def test_attachments_beyond_the_limits_are_refused(self):
        mebibyte = bytes(1024 * 1024)
        largest = [(f"{number}.bin", mebibyte, "application/zip") for number in range(10)]
        self.assertFalse(self.send("py-file-largest", attachments=largest)["replayed"])
        self.assertEqual(len(list(parsed("py-file-largest@example.com").iter_attachments())), 10)
        for files, status, reason in [
            ([("a", mebibyte * 10 + b"x", "application/zip")], 400, "INVALID_FIELD"),
            ([("a", b"", "text/plain")] * 11, 400, "INVALID_FIELD"),
            ([("a", mebibyte * 13, "application/zip")], 413, "TOO_LARGE"),
        ]:
            with self.assertRaises(ReveilleError) as refused:
                self.send("py-file-over", attachments=files)
            self.assertEqual((refused.exception.status, refused.exception.reason), (status, reason))

    def test_first_call_wins_where_it_is_asked_for(self):
        first = self.send("py-first", "By the first server.", first_wins=True)
        second = self.send("py-first", "By the second server.", first_wins=True)
        self.assertTrue(second["replayed"])
        self.assertEqual(first["message"]["run"]["run"], second["message"]["run"]["run"])
        found = emails("py-first@example.com")
        self.assertEqual(len(found), 1)
        self.assertIn("By the first server.", read(f"/emails/{found[0]['number']}/source"))

    def test_variables_are_filled_in_and_literal_text_is_not(self):
        to = [{"address": f"py-{name}@example.com", "name": name.title(), "city": "Ulm"} for name in ("ann", "bob")]
        braces = "{{ name }} {% if %} {# #} {{{%"
        self.client.send(
            "py-variables",
            to=to,
            sender=SENDER,
            subject="Hello {{ name }} in {{ city }} by {{ team }}",
            text=literal(braces),
            variables={"team": "us"},
            headers={"X-Team": "{{ team }}"},
        )
        for name in ("ann", "bob"):
            [email] = emails(f"py-{name}@example.com")
            self.assertEqual(email["subject"], f"Hello {name.title()} in Ulm by us")
            source = read(f"/emails/{email['number']}/source")
            self.assertIn(braces, source)
            self.assertIn("X-Team: us", source)

    def test_message_of_the_future_is_cancelled(self):
        at = datetime.now(timezone.utc) + timedelta(hours=1)
        self.send("py-future", at=at)
        message = self.client.message("py-future")
        self.assertEqual(message["recipients"][0]["state"], "RECIPIENT_STATE_PENDING")
        sends = datetime.fromisoformat(message["sendTime"].split(".")[0].rstrip("Z") + "+00:00")
        self.assertLess(abs(sends - at), timedelta(seconds=2))
        # The first answer is lost: it may be cancelled twice.
        Client(url=f"{STUB}/once").cancel("py-future")
        self.assertEqual(self.client.message("py-future")["recipients"][0]["state"], "RECIPIENT_STATE_CANCELLED")

    def test_answer_that_is_lost_sends_once(self):
        flaky = Client(url=f"{STUB}/once")
        began = time.monotonic()
        self.assertTrue(self.send("py-lost-answer", client=flaky)["replayed"])
        self.assertGreaterEqual(time.monotonic() - began, 1.0)
        self.assertEqual(len(emails("py-lost-answer@example.com")), 1)

    def test_wrong_field_is_named(self):
        with self.assertRaises(ReveilleError) as refused:
            self.send("py-wrong", "{{ nothing }}")
        self.assertEqual((refused.exception.status, refused.exception.reason), (400, "INVALID_FIELD"))
        self.assertIn("text", refused.exception.fields[0]["field"])

    def test_empty_key_and_time_without_zone_are_refused_here(self):
        with self.assertRaises(ValueError):
            self.send("", to="x@example.com")
        with self.assertRaises(ValueError):
            self.send("py-naive", at=datetime(2030, 1, 1))
        with self.assertRaises(ValueError):
            self.send("py-uneven", to=["a@example.com", {"address": "b@example.com", "name": "B"}])

    def test_recipient_with_a_value_of_none_is_refused_here(self):
        for to in ({"address": "py-none@example.com", "link": None}, {"address": None}):
            with self.assertRaises(ValueError):
                self.send("py-none", to=to)
        with self.assertRaises(ValueError):
            self.send("py-none", variables={"link": None})

    def test_answer_with_retry_after_is_repeated(self):
        self.assertFalse(self.send("py-busy", client=Client(url=f"{STUB}/busy"))["replayed"])

    def test_events_tell_what_became_of_it(self):
        cursor = self.client.events("latest", wait=0)["cursor"]
        run = self.send("py-events")["message"]["run"]["run"]
        seen = []
        ends = time.monotonic() + 20
        while "EVENT_TYPE_RUN_FINISHED" not in seen and time.monotonic() < ends:
            page = self.client.events(cursor, wait=5)
            cursor = page["cursor"]
            seen += [event["type"] for event in page["events"] if event["run"] == run]
        self.assertIn("EVENT_TYPE_RECIPIENTS_SENT", seen)
        self.assertEqual(seen.count("EVENT_TYPE_RUN_FINISHED"), 1)
        opened = self.client.events(types=["EVENT_TYPE_RUN_OPENED"], wait=0)["events"]
        self.assertEqual({event["type"] for event in opened}, {"EVENT_TYPE_RUN_OPENED"})

    def test_events_from_latest_on_are_not_missed(self):
        page = Client(url=f"{STUB}/missed", total=3).events("latest", wait=1)
        self.assertEqual((len(page["events"]), page["cursor"]), (1, "8.0"))


class Schedules(unittest.TestCase):
    def test_schedule_is_put_changed_and_triggered_once(self):
        client = Client()
        first = client.put_schedule("py-put", schedule("py-put"))
        self.assertEqual(client.put_schedule("py-put", schedule("py-put"))["etag"], first["etag"])
        changed = client.put_schedule("py-put", {**schedule("py-put"), "zone": "Asia/Tokyo"})
        self.assertEqual((changed["zone"], changed["number"]), ("Asia/Tokyo", first["number"]))
        runs = [client.trigger("py-put", "py-put-2026-W47")["run"]["run"] for _ in range(2)]
        self.assertEqual(runs[0], runs[1])
        self.assertEqual(len(emails("py-put@example.com")), 1)

    def test_trigger_with_a_list_goes_to_the_first_list(self):
        client = Client()
        client.put_schedule("py-list", schedule("py-list-own"))
        lists = [[{"address": f"py-list-{server}@example.com", "name": server}] for server in ("one", "two")]
        answers = [client.trigger("py-list", "py-list-2026-W47", people, first_wins=True) for people in lists]
        runs = [answer["run"]["run"] for answer in answers]
        self.assertEqual(runs[0], runs[1])
        self.assertEqual([answer["replayed"] for answer in answers], [False, True])
        with self.assertRaises(ReveilleError) as refused:
            client.trigger("py-list", "py-list-2026-W47", lists[1])
        self.assertEqual(refused.exception.reason, "REQUEST_ID_REUSED")
        self.assertEqual(emails("py-list-one@example.com")[0]["subject"], "Hello one")
        self.assertEqual(emails("py-list-two@example.com", 0) + emails("py-list-own@example.com", 0), [])

    def test_schedule_made_of_a_template_is_put_again(self):
        client = Client()
        content = schedule("py")["content"]
        client.request("PUT", "/v1/templates/py-template", content)
        to = {"address": "py-template@example.com", "name": "Ann"}
        client.send("py-template", to=to, template="py-template", variables={}, headers={}, cc=[], validate_only=True)
        made = {**schedule("py-of-template"), "template": "py-template"}
        del made["content"]
        for zone in ("Europe/Berlin", "Asia/Tokyo"):
            put = client.put_schedule("py-of-template", {**made, "zone": zone})
            self.assertEqual((put["zone"], put["template"]), (zone, "py-template@1"))
        put = client.put_schedule("py-of-template", schedule("py-of-template"))
        self.assertEqual(put["template"], "")

    def test_tenant_of_the_client_holds_for_each_call(self):
        client, shop = Client(), Client(tenant="py-shop")
        path, missing = "/v1/schedules/py-tenant", "/v1/schedules/py-tenant-missing"
        self.assertEqual(client.put_schedule("py-tenant", schedule("py-tenant"))["tenant"], "default")
        for call in (("GET", path), ("DELETE", path), ("POST", f"{path}/pause", {}), ("GET", f"{path}?stale=true")):
            with self.assertRaises(ReveilleError) as refused:
                shop.request(*call)
            self.assertEqual(refused.exception.reason, "SCHEDULE_NOT_FOUND", call)
        self.assertEqual(shop.put_schedule("py-tenant", schedule("py-tenant"))["tenant"], "py-shop")
        changed = shop.request("PATCH", path, {"zone": "Asia/Tokyo"}, {"updateMask": "zone"})["schedule"]
        self.assertEqual((changed["tenant"], changed["zone"]), ("py-shop", "Asia/Tokyo"))
        shop.request("DELETE", path)
        self.assertEqual(shop.request("GET", path, query={"tenant": "default"})["schedule"]["zone"], "Europe/Berlin")
        self.assertIn("members", shop.request("GET", "/v1/cluster/members"))

    def test_tenant_is_a_field_of_each_call_that_it_is_added_to(self):
        described = Client().request("GET", "/v1/openapi.json")

        def fields(schema):
            while "$ref" in schema:
                schema = described["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
            return schema.get("properties", {})

        for path, methods in described["paths"].items():
            for method, call in methods.items():
                found = {one["name"] for one in call["parameters"] if one["in"] == "query"}
                for media in call.get("requestBody", {"content": {}})["content"].values():
                    body = fields(media["schema"])
                    # The body of some calls is the schedule itself.
                    inner = body if "timing" in body else fields(body.get("schedule", {}))
                    found |= set(body) | {f"schedule.{name}" for name in inner}
                    found -= {"tenant"} if "timing" in body else set()
                # The schedules of a batch have a tenant each.
                expected = {"schedule.tenant"} if path.endswith("/batch") else {"tenant", "schedule.tenant"} & found
                added = reveille._tenant_field(method.upper(), path)
                self.assertEqual({added} - {""}, expected, f"{method} {path}")

    def test_lost_delete_has_deleted(self):
        client = Client()
        client.put_schedule("py-delete", schedule("py-delete"))
        with self.assertRaises(ReveilleError) as refused:
            client.request("DELETE", "/v1/schedules/py-delete", query={"etag": "1.1"})
        self.assertEqual(refused.exception.reason, "ETAG_MISMATCH")
        client.request("DELETE", "/v1/schedules/py-delete", query={"validateOnly": True})
        flaky, query = Client(url=f"{STUB}/once"), {"validateOnly": False}
        self.assertEqual(flaky.request("DELETE", "/v1/schedules/py-delete", query=query), {})
        with self.assertRaises(ReveilleError) as refused:
            client.request("DELETE", "/v1/schedules/py-delete")
        self.assertEqual(refused.exception.reason, "SCHEDULE_NOT_FOUND")

    def test_path_or_key_that_is_no_ascii_text_is_refused_here(self):
        # Nothing listens there: a call that is made is repeated.
        client, began = Client(url="http://127.0.0.1:1", total=5), time.monotonic()
        for path, key in [("/v1/runs/a b/pause", None), ("/v1/runs/ä", None), ("/v1/relays", "ключ"), ("/", "a\nb")]:
            with self.assertRaises(ValueError) as refused:
                client.request("POST", path, {}, key=key)
            self.assertIn("ASCII", str(refused.exception))
        self.assertLess(time.monotonic() - began, 1)

    def test_write_that_keeps_no_key_is_made_once(self):
        with self.assertRaises(ReveilleError) as refused:
            Client().request("POST", "/v1/clock/advance", {"by": "1s"})
        self.assertEqual(refused.exception.fields[0]["field"], "idempotency-key")
        with self.assertRaises(ReveilleError) as lost:
            Client(url=f"{STUB}/once").request("POST", "/v1/clock/advance", {"by": "1s"}, key="")
        self.assertEqual((lost.exception.status, lost.exception.may_have_taken_effect), (0, True))

    def test_drawn_keys_are_kept_over_retries(self):
        client = Client(url=f"{STUB}/once")
        client.put_schedule("py-flaky", schedule("py-flaky"))
        changed = client.put_schedule("py-flaky", {**schedule("py-flaky"), "zone": "Asia/Tokyo"})
        self.assertEqual(changed["zone"], "Asia/Tokyo")
        client.trigger("py-flaky", "py-flaky-2026-W47")
        self.assertEqual(len(emails("py-flaky@example.com")), 1)


class Failing(unittest.TestCase):
    def fail_with(self, method="POST", **options):
        began = time.monotonic()
        with self.assertRaises(ReveilleError) as failed:
            Client(**{"total": 1.5, **options}).request(method, "/v1/cluster")
        self.assertLess(time.monotonic() - began, 4)
        return failed.exception

    def test_unknown_outcome_is_marked_after_the_last_retry(self):
        error = self.fail_with(url=f"{STUB}/unknown")
        self.assertEqual((error.status, error.reason, error.may_have_taken_effect), (504, "OUTCOME_UNKNOWN", True))
        self.assertFalse(self.fail_with("GET", url=f"{STUB}/unknown").may_have_taken_effect)
        self.assertTrue(self.fail_with(url=f"{STUB}/silent", timeout=0.5).may_have_taken_effect)

    def test_cut_answer_is_no_answer(self):
        for kind in ("lost", "cut"):
            error = self.fail_with("GET", url=f"{STUB}/{kind}")
            self.assertEqual((error.status, error.may_have_taken_effect), (0, False))

    def test_slow_answer_ends_at_the_timeout(self):
        for timeout in (0.5, 20):
            error = self.fail_with(url=f"{STUB}/drip", timeout=timeout)
            self.assertEqual((error.status, error.may_have_taken_effect), (0, True))

    def test_long_retry_after_is_not_waited_for(self):
        error = self.fail_with(url=f"{STUB}/later")
        self.assertEqual((error.status, error.retry_after, error.may_have_taken_effect), (503, 3600, False))

    def test_old_cursor_is_answered_with_the_oldest_one(self):
        with self.assertRaises(ReveilleError) as refused:
            Client(url=f"{STUB}/old").events("1.0")
        self.assertEqual((refused.exception.reason, refused.exception.index), ("CURSOR_TOO_OLD", "1042.3"))

    def test_node_that_cannot_be_reached_did_nothing(self):
        error = self.fail_with(url="http://127.0.0.1:1")
        self.assertEqual((error.status, error.may_have_taken_effect), (0, False))

    def test_node_with_tls_and_tokens(self):
        url, ca, token = (os.environ[name] for name in ("TLS_URL", "TLS_CA", "TLS_TOKEN"))
        shop = Client(url=url, ca_file=ca, token=token, tenant="shop")
        self.assertEqual(shop.put_schedule("py", schedule("py"))["tenant"], "shop")
        for client, status, reason in [
            (Client(url=url, ca_file=ca, token=token), 403, "NOT_PERMITTED"),
            (Client(url=url, ca_file=ca, token="rvt_wrong"), 401, "TOKEN_NOT_VALID"),
            (Client(url=url, token=token), 0, ""),
        ]:
            with self.assertRaises(ReveilleError) as refused:
                client.put_schedule("py", schedule("py"))
            error = refused.exception
            self.assertEqual((error.status, error.reason, error.may_have_taken_effect), (status, reason, False))

    def test_url_without_host_is_refused(self):
        with self.assertRaises(ValueError):
            Client(url="127.0.0.1:7600")


if __name__ == "__main__":
    unittest.main()
